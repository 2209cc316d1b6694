"""The folder of this host that a node shares with its container: made, removed, and swept when its holder was killed."""

from __future__ import annotations

import os
import stat

from ..events import number
from ..records import write_bytes
from .node import Node, first_line, process_start


def open_channel(node: Node) -> None:
    """Make the node's channel with `hold_pid` in it: this process, and its start. Raises OSError."""
    _sweep(node)
    if os.path.lexists(node.channel):
        _remove(node.channel)
    os.mkdir(node.channel, 0o700)
    write_bytes(f"{node.channel}/hold_pid", f"{os.getpid()} {process_start(os.getpid())}\n".encode(), sync=False)


def close_channel(node: Node) -> None:
    """Remove the node's channel, if it is this process's. Raises OSError."""
    if first_line(f"{node.channel}/hold_pid").split()[:1] == [str(os.getpid())]:
        _remove(node.channel)


def _sweep(node: Node) -> None:
    """Remove what holders left that were killed: the next one on this host does it.

    Not what this job has for other nodes of this host, which can make it anew at any time.
    """
    this_job = f"orch-{os.getuid()}-{node.owner[: -len(node.name)]}"
    for name in os.listdir(node.channels):
        folder = f"{node.channels}/{name}"
        if name.startswith(f"orch-{os.getuid()}-") and not name.startswith(this_job) and _is_abandoned(folder):
            try:
                _remove(folder)
            except OSError as error:
                node.log(f"{folder} of an ended job stays: {error.strerror}")


def _is_abandoned(folder: str) -> bool:
    words = first_line(f"{folder}/hold_pid").split()
    holder = number(words[0], 9) if words else None
    if holder is None or os.path.islink(folder) or os.lstat(folder).st_uid != os.getuid():
        return False
    start = process_start(holder)
    return not start or (len(words) > 1 and words[1] != start)


def _remove(folder: str) -> None:
    """Remove a folder with what is in it; what somebody makes anew under its name meanwhile stays. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for _, folders, files, inside in os.fwalk(".", topdown=False, dir_fd=fd):
            for name in (*files, *folders):
                (os.rmdir if stat.S_ISDIR(os.lstat(name, dir_fd=inside).st_mode) else os.unlink)(name, dir_fd=inside)
        if os.path.samestat(os.fstat(fd), os.lstat(folder)):
            os.rmdir(folder)
    finally:
        os.close(fd)
