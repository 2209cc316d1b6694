"""The umask of a command that writes into a set."""

from __future__ import annotations

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
