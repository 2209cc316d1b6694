"""Waiting, and dates for files: the only place in which tests read a clock or sleep (tests/test_waiting.py)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

LIMIT_S = 300
"""Ends a test that hangs. What has not happened by then never happens, so no verdict depends on the machine's speed."""

Value = TypeVar("Value")


def until(condition: Callable[[], Value], state: object = None) -> Value:
    """Poll `condition` until it is true and return its value. A failure prints `state`, or what `state` returns."""
    start = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - start
        if waited > LIMIT_S:
            shown = value if state is None else state() if callable(state) else state
            raise AssertionError(f"not true within {LIMIT_S} s: {shown!r}")
        time.sleep(min(max(0.005, waited / 20), 0.2))
    return value


def now_ms() -> int:
    return time.time_ns() // 10**6


def make_older(path: Path, seconds: float) -> None:
    """Date a file back."""
    os.utime(path, (time.time() - seconds,) * 2)
