"""Waiting code as a generator: it yields the time of its next check."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

Flow = Generator[float, None, Any]
"""Waiting code: it yields the time (World.now) of its next check, and is resumed then, or
sooner."""

UNTIL_WOKEN = float("inf")
"""Wait for another flow or a node, not for a time."""


def together(flows: Sequence[Flow]) -> Flow:
    """Run `flows` side by side until each has returned; return their values. The first exception is
    raised.

    When one ends, the others check again at once: they may wait for its nodes.
    """
    going, values, raised = dict(enumerate(flows)), dict[int, Any](), list[Exception]()
    while going:
        until, before = [], len(going)
        for at, flow in list(going.items()):
            try:
                until.append(next(flow))
                continue
            except StopIteration as end:
                values[at] = end.value
            except Exception as error:
                raised.append(error)
            del going[at]
        if going:
            yield min(until) if len(going) == before else 0.0
    if raised:
        raise raised[0]
    return [values[at] for at in sorted(values)]
