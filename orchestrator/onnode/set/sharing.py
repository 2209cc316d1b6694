"""Who may write in a set: its owner alone, or the group that the site names (docs/howto/several-people.md)."""

from __future__ import annotations

import grp
import os
from pathlib import Path


def umask_for(group: str, before: int) -> int:
    """Return the umask for what is written in a set. What a group can change in one, it can have run."""
    return before & 0o005 | 0o002 if group else before | 0o022


def give(folder: Path, group: str) -> None:
    """Have a new folder, and all that is made in it, belong to a group that may write there.

    Raises LookupError for a group that is not known here, OSError (EPERM) for one that this user is no member of.
    """
    os.chown(folder, -1, _number(group))
    folder.chmod(folder.stat().st_mode & 0o005 | 0o2770)


def show(folder: Path, group: str) -> None:
    """Have a group read a folder with all that is in it; it may change nothing there. Raises as `give` does."""
    number = _number(group)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, -1, number, follow_symlinks=False)
        if not path.is_symlink():
            mode = path.stat().st_mode & 0o755
            path.chmod(mode | (0o050 if mode & 0o100 else 0o040))


def _number(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise LookupError(f"there is no group {group} on {os.uname().nodename}") from error
