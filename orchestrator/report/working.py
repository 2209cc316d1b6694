"""A sign of life on a terminal during a longer operation."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate

from orchestrator.resources import file_sizes
from orchestrator.words import bare, clean

LARGE = 64 << 20
"""Fewer bytes of logs are read within about a second."""


@contextmanager
def working(text: str, folder: str = "") -> Iterator[None]:
    """Show `text` with a moving sign on standard error; with `folder` only for large logs."""
    if (
        not sys.stderr.isatty()
        or os.environ.get("TERM") == "dumb"
        or (folder and not _is_large(folder))
    ):
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(file=bare(sys.stderr)).status(Text(clean(text))):  # brackets are no markup
        yield


def _is_large(folder: str) -> bool:
    return any(total > LARGE for total in accumulate(file_sizes(folder)))
