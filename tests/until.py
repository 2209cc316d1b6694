"""Waiting, and dates for files: the only place in which tests read a clock or sleep (tests/lint/test_hygiene.py)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

LIMIT_S = 600
"""Ends a test that hangs. What has not happened by then never happens, so no verdict depends on the machine's speed."""

Value = TypeVar("Value")


class Endless(BaseException):
    """Not an Exception: code that handles errors must not swallow it."""


def until(condition: Callable[[], Value], state: object = None) -> Value:
    """Poll `condition` until it is true and return its value. A failure prints `state`, or what `state` returns."""
    start = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - start
        if waited > LIMIT_S:
            shown = value if state is None else state() if callable(state) else state
            raise AssertionError(f"not true within {LIMIT_S} s: {shown!r}")
        time.sleep(min(max(0.005, waited / 10), 0.2))
    return value


@contextmanager
def bounded() -> Iterator[None]:
    """Raise Endless, after LIMIT_S, in a block that would hang."""

    def over(*_: object) -> None:
        raise Endless(f"no end within {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def now_ms() -> int:
    return time.time_ns() // 10**6


def make_older(path: Path, seconds: float) -> None:
    """Date a file back."""
    os.utime(path, (time.time() - seconds,) * 2)
