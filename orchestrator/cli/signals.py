"""Signals that end a command in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def exit_on(*numbers: signal.Signals) -> Iterator[None]:
    """Make these signals raise SystemExit with 128 + n in the block, so that its `finally`
    clauses run."""
    before = {number: signal.signal(number, _exit) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _: object) -> None:
    raise SystemExit(128 + number)
