"""Folders of a set that containers write.

The container's root is another user on many file servers (root_squash), so everybody may write
there. Other users of the storage are kept out: they can enter the folder above, but not list it,
and the name below it is random.
"""

from __future__ import annotations

import contextlib
import os
import re

_NAME = ".name"
_RANDOM = re.compile("[0-9a-f]{32}")


def make_hidden(folder: str) -> str:
    """Return the place that every user may write, the same for all nodes. Raises OSError."""
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, 0o711)
    if not _read(folder):
        _name_it(folder)
    place = hidden(folder)
    if place == folder:
        raise OSError(f"{folder}/{_NAME} names no folder")
    os.makedirs(place, exist_ok=True)
    os.chmod(place, 0o1777)  # sticky: only this user can remove files of others
    return place


def hidden(folder: str) -> str:
    """Return the place that containers write; `folder` itself without a name."""
    name = _read(folder)
    return f"{folder}/{name}" if name else folder


def close_hidden(folder: str) -> None:
    """Only this user may write from now on."""
    place = hidden(folder)
    if place != folder and os.path.isdir(place):
        os.chmod(place, 0o755)


def keep_from_others(folder: str) -> None:
    """Let only this user, and a group that may write, enter: everybody may write containers'
    files."""
    mode = os.stat(folder).st_mode & 0o7770
    os.chmod(folder, mode if mode & 0o020 else mode & ~0o070)


def _read(folder: str) -> str:
    try:
        fd = os.open(f"{folder}/{_NAME}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(fd, encoding="ascii", errors="replace") as file:
        text = file.read(64)
    return text if _RANDOM.fullmatch(text) else ""


def _name_it(folder: str) -> None:
    """Write the name, unless another node was first."""
    new = f"{folder}/{_NAME}.{os.urandom(8).hex()}"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(os.urandom(16).hex())
        file.flush()
        os.fsync(file.fileno())
    try:
        with contextlib.suppress(FileExistsError):
            os.link(new, f"{folder}/{_NAME}")
    finally:
        os.unlink(new)
