"""A run's files in /results, kept for its attempt."""

from __future__ import annotations

import errno
import os

from ..kernel.settings import Settings
from .node import Node


def keep_files(node: Node, folder: os.PathLike[str]) -> None:
    """Move a run's files in /results to `folder`: the next run must not overwrite them."""
    try:
        found = set(os.listdir(node.results)) - _mounted(node.settings)
        if found:
            os.makedirs(folder, exist_ok=True)
        for name in found:
            _move(os.path.join(node.results, name), os.path.join(folder, name))
    except FileNotFoundError:
        return  # nothing ran here yet
    except OSError as error:
        node.log(f"could not keep {error.filename or 'the files of /results'}: {error.strerror}")


def _mounted(settings: Settings) -> set[str]:
    """Return the names in /results that are other mounts in the container: moved away, they
    would be lost to it."""
    places = [*settings.launch_shared, *(mount.split("\t")[1] for mount in settings.site_mounts)]
    return {
        one.split("/")[2]
        for one in places
        if one.startswith("/results/") and settings.engine != "none"
    }


def _move(source: str, target: str) -> None:
    """Move a file or folder, also to another file system. Raises OSError."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EACCES, errno.EPERM):
            raise
        import shutil

        try:
            shutil.move(source, target)
        except shutil.Error as failure:
            raise OSError(errno.EACCES, f"{failure}"[:200], source) from failure
