"""A sign of life on a terminal during a longer operation. Nothing in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.words import bare, clean

LARGE = 64 << 20
"""Fewer bytes of logs are read in less than about a second."""


@contextmanager
def working(text: str, folder: str = "") -> Iterator[None]:
    """Show `text` with a moving sign on standard error; with `folder` only if its logs are
    large."""
    if (
        not sys.stderr.isatty()
        or os.environ.get("TERM") == "dumb"
        or (folder and not _is_large(folder))
    ):
        yield
        return
    from rich.console import Console

    with Console(file=bare(sys.stderr)).status(clean(text)):
        yield


def _is_large(folder: str) -> bool:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_size
            except OSError:
                continue
        if total > LARGE:
            return True
    return False
