"""Something that waits, as a generator: it yields when it wants to look again."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

Flow = Generator[float, None, Any]
"""Something that waits: it yields the time (World.now) at which it wants to look again, and is resumed then, or sooner."""

UNTIL_WOKEN = float("inf")
"""What another flow or a node has to bring about, and not the time."""


def together(flows: Sequence[Flow]) -> Flow:
    """Have `flows` go on side by side until each has returned; their values. What the first one raised is raised then.

    Where one ends, the others look again at once: they may wait for what it gives back.
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
