"""Write permission in a set: the owner's, or the site's group's (docs/howto/several-people.md)."""

from __future__ import annotations

import grp
import os
from pathlib import Path


def umask_for(group: str, before: int) -> int:
    """Return the umask in a set. Whatever a group can change, it can execute."""
    return before & 0o005 | 0o002 if group else before | 0o022


def give(folder: Path, group: str) -> None:
    """Give a new folder and its content to a group. Raises LookupError for an unknown group,
    OSError (EPERM) for non-members."""
    os.chown(folder, -1, _number(group))
    folder.chmod(folder.stat().st_mode & 0o005 | 0o2770)


def show(folder: Path, group: str) -> None:
    """Let a group read a folder and its content. Raises like `give`."""
    number = _number(group)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, -1, number, follow_symlinks=False)
        if not path.is_symlink():
            mode = path.stat().st_mode & 0o755
            path.chmod(mode | (0o050 if mode & 0o100 else 0o040))


def show_like(path: Path, folder: Path, mode: int) -> None:
    """Give a new path its owner's `mode`, and the readers of `folder`. Raises OSError."""
    readers = folder.stat()
    os.chown(path, -1, readers.st_gid)
    path.chmod(mode | mode >> 3 & readers.st_mode & 0o050 | mode >> 6 & readers.st_mode & 0o005)


def _number(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise LookupError(f"there is no group {group} on {os.uname().nodename}") from error
