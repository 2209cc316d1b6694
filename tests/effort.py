"""Effort, counted: the load of the machine does not change it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any


def lines_run(work: Callable[[], object]) -> int:
    """Return how many lines of Python `work` runs; each turn of a loop counts, also of a comprehension."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def bytes_read(work: Callable[[], object]) -> int:
    """Return how many bytes `work` reads from files, pipes and sockets (it must not map files into memory)."""

    def so_far() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = so_far()
    work()
    return so_far() - before


def unlike_lines(letters: Mapping[int, str] | None = None) -> bytes:
    """Return 800 lines of a log that are all unlike; `letters` replaces digits in them."""
    nouns = ["alpha", "the", "file", "not", "found", "error", "rank", "gpu", "open", "torch"]
    nouns.append("failed")
    lines = []
    for at in range(800):
        text = " ".join(nouns[(at * step) % 11] for step in range(1, 13))
        lines.append(f"{text} {at:x}".translate(letters or {}))
    return "\n".join(lines).encode()
