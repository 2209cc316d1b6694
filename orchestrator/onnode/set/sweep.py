"""Unfinished files of nodes, jobs and commands that were killed while writing."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..kernel.files import Files, is_temporary
from ..kernel.layout import Layout
from ..kernel.world import World
from .lease import remove_unfinished

BUNDLE_COPY = ".bundle.tmp."
"""Prefix of unfinished copies of a bundle."""


def sweep(layout: Layout, world: World) -> None:
    """Remove such files from a set's folder, as far as possible."""
    for folder in _folders(layout, world.files):
        with suppress(OSError):
            for name in world.files.names(folder):
                if name.startswith(BUNDLE_COPY):  # the set has its bundle: nobody copies it now
                    world.files.remove_tree(folder / name)
                elif is_temporary(name):
                    world.files.remove(folder / name)
    with suppress(OSError):
        remove_unfinished(layout.loop_lock, world)


def _folders(layout: Layout, files: Files) -> list[Path]:
    """Return the folders of a set in which a program may write."""
    folders = [layout.root, layout.jobs, layout.preflight, *_below(layout.nodes, files)]
    for run in _below(layout.runs, files):
        attempts = _below(run, files)
        folders += [run, *attempts, *(attempt / "hang" for attempt in attempts)]
    return folders


def _below(folder: Path, files: Files) -> list[Path]:
    """Return the folders in a folder; [] if it is unreadable."""
    try:
        return [folder / name for name in sorted(files.names(folder)) if "." not in name]
    except OSError:
        return []
