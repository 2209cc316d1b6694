"""Users who can change a path: judged by owner, mode and links of a file and its parents, before it
is executed, adopted or believed."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False  # importing typing is slow
if TYPE_CHECKING:
    PathLike = str | os.PathLike[str]

MOST_LINKS = 40  # as the kernel's own limit (MAXSYMLINKS)


def others(path: PathLike, *, parents: bool = True, group: bool = False) -> str:
    """Return why a user other than this user and root decides the content of `path`, or "".

    A link is judged with its target, a missing path by its folder. The sticky bit keeps others from
    replacing a folder's content. `parents=False` judges the path alone. `group`: members of its
    group may write. Raises OSError.
    """
    name = os.path.abspath(os.fspath(path))
    if not parents:
        try:
            return _reason(name, os.lstat(name), group=group, holds=False)
        except FileNotFoundError:
            return ""
    todo = [part for part in name.split("/") if part][::-1]
    here, links = "/", 0
    if why := _reason(here, os.lstat(here), group=False, holds=bool(todo)):
        return why
    while todo:
        part = todo.pop()
        if part == "..":
            here = os.path.dirname(here)
            continue
        inner = os.path.join(here, part)
        try:
            about = os.lstat(inner)
        except FileNotFoundError:
            return ""
        if why := _reason(inner, about, group=group and not todo, holds=bool(todo)):
            return why
        if not stat.S_ISLNK(about.st_mode):
            here = inner
            continue
        links += 1
        if links > MOST_LINKS:
            return f"{name} has too many links"
        target = os.readlink(inner)
        if target.startswith("/"):
            here = "/"
        todo += [piece for piece in target.split("/") if piece not in ("", ".")][::-1]
    return ""


def owner_name(path: PathLike) -> str:
    """Return the owner's name. Raises OSError."""
    return user_name(os.stat(path).st_uid)


def user_name(user: int) -> str:
    """Return a user's name, or `user 4242`."""
    from pwd import getpwuid

    try:
        return getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def replaceable(folder: PathLike) -> str:
    """Return why others can replace files in a folder, by its mode, or ""."""
    about = os.stat(folder)
    if about.st_mode & stat.S_ISVTX:
        return ""
    if about.st_mode & stat.S_IWOTH:
        return f"everybody may write to {folder}"
    shared = about.st_mode & stat.S_IWGRP and not _private(about.st_gid)
    return f"{_group(about.st_gid)} may write to {folder}" if shared else ""


def _reason(name: str, about: os.stat_result, *, group: bool, holds: bool) -> str:
    """`holds`: it is a folder on the way."""
    if about.st_uid not in (os.getuid(), 0):
        return f"{name} belongs to {user_name(about.st_uid)}"
    if stat.S_ISLNK(about.st_mode):  # a link has no mode of its own
        return ""
    if holds and about.st_mode & stat.S_ISVTX:
        return ""
    if about.st_mode & stat.S_IWOTH:
        return f"everybody may write to {name}"
    if about.st_mode & stat.S_IWGRP and not group and not _private(about.st_gid):
        return f"{_group(about.st_gid)} may write to {name}"
    return ""


def _group(gid: int) -> str:
    """Return `group users`, or `group 54321` without a name."""
    from grp import getgrgid

    try:
        return f"group {getgrgid(gid).gr_name}"
    except KeyError:
        return f"group {gid}"


def _private(gid: int) -> bool:
    """True without other members, as on systems with a group per user."""
    import grp
    import pwd

    try:
        user, entry = pwd.getpwuid(os.getuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return (
        user.pw_gid == gid and entry.gr_name == user.pw_name and set(entry.gr_mem) <= {user.pw_name}
    )
