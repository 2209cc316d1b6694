"""The log with the progress of an attempt: that of the node that logs for all."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.mllog_tail import lines
from orchestrator.onnode.kernel.walk import FilesInside, SetWalk

_EDGE = 1024 * 1024
_OF_EVERY_RANK = frozenset({"cache_clear", "init_start"})
"""Some programs log these in every process, all else in a single process."""


def training_log(layout: Layout, run: int, attempt: int) -> Path:
    """Return the logging node's log: rank 0 if it has logged, or no node has yet."""
    files = FilesInside(layout.root)
    walk = SetWalk(layout.root, files, lambda *_: None)
    ranks = [0, *walk.ranks(run, attempt, ".log")]
    logs = [layout.node_log(run, attempt, rank) for rank in ranks]
    return next((log for log in logs if _has_progress(log, files)), logs[0])


def _has_progress(path: Path, files: FilesInside) -> bool:
    """Return whether a log's first or last megabyte has records of the logging process."""
    try:
        with files.open(path) as file:
            first = file.read(_EDGE)
            file.seek(max(len(first), os.fstat(file.fileno()).st_size - _EDGE))
            return any(
                record["key"] not in _OF_EVERY_RANK
                for chunk in (first, file.read(_EDGE))
                for record in lines(chunk)
            )
    except OSError:
        return False
