"""Modes of files that a command writes into a set, like those of its other files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.onnode.kernel.world import World
from orchestrator.onnode.set.sharing import umask_for


@contextmanager
def rights(root: Path, world: World) -> Iterator[None]:
    """Write into a set with the modes of its other files, whatever the user's umask."""
    try:
        mode = root.stat().st_mode
    except OSError:
        mode = 0
    before = world.umask(0o022)
    world.umask(umask_for("a group" if mode & 0o2020 == 0o2020 else "", before))
    try:
        yield
    finally:
        world.umask(before)


def show_like(path: Path, folder: Path, mode: int) -> None:
    """Give a new path its owner's `mode`, and the readers of `folder`. Raises OSError."""
    readers = folder.stat()
    os.chown(path, -1, readers.st_gid)
    path.chmod(mode | mode >> 3 & readers.st_mode & 0o050 | mode >> 6 & readers.st_mode & 0o005)
