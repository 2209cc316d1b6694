"""Signals that end a command in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def exit_on(*numbers: signal.Signals) -> Iterator[None]:
    """Raise SystemExit with 128 + n, so that the block's `finally` clauses run."""
    before = {number: signal.signal(number, _exit) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _: object) -> None:
    raise SystemExit(128 + number)
