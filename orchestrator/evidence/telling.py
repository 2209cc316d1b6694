"""The log that shows how far an attempt is: that of the node that logs for all."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.mllog_tail import lines
from orchestrator.onnode.kernel.regular import open_regular
from orchestrator.onnode.kernel.walk import FilesInside, SetWalk

_BLOCK = 1024 * 1024
_OF_EVERY_RANK = frozenset({"cache_clear", "init_start"})
"""Some programs log these in every process, all else in a single process."""


def telling_log(layout: Layout, run: int, attempt: int) -> Path:
    """Return the logging node's log: rank 0 if it has logged, or no node has yet."""
    walk = SetWalk(layout.root, FilesInside(layout.root), lambda *_: None)
    ranks = [0, *walk.ranks(run, attempt, ".log")]
    logs = [layout.node_log(run, attempt, rank) for rank in ranks]
    return next(filter(_has_logged, logs), logs[0])


def _has_logged(path: Path) -> bool:
    """Return whether the logging process has records in its first or last megabyte."""
    try:
        with open_regular(path) as file:
            first = file.read(_BLOCK)
            file.seek(max(len(first), os.fstat(file.fileno()).st_size - _BLOCK))
            return any(
                record["key"] not in _OF_EVERY_RANK
                for chunk in (first, file.read(_BLOCK))
                for record in lines(chunk)
            )
    except OSError:
        return False
