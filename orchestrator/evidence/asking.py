"""Times to ask a scheduler again: soon after a change, and at most 60 times within any hour."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable

HOUR_S = 3600.0
FIRST_S, STEADY_S = 3.0, 90.0
QUICK = 20
"""This many questions within an hour may follow each other quickly; then one every STEADY_S."""


def pause_s(asked: int, since: int) -> float:
    """Return the least seconds from the last question to the next. `asked`: questions within the
    last hour; `since`: those since the last change."""
    return STEADY_S if asked >= QUICK else min(FIRST_S * 1.5 ** max(0, since - 1), STEADY_S)


class Asking:
    """The questions to one scheduler, about all watched sets together. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._asked: deque[float] = deque()
        self._since = 0
        self._late = 1.0

    @property
    def due(self) -> bool:
        now = self._forget()
        return not self._asked or now >= self._asked[-1] + self._late * pause_s(
            len(self._asked), self._since
        )

    def asked(self) -> None:
        """Count a question now."""
        self._asked.append(self._forget())
        self._since += 1
        self._late = random.uniform(1.0, 1.2)  # a lab's watchers should not ask in step

    def changed(self) -> None:
        """Note a change: the next question may come soon."""
        self._since = 0

    def _forget(self) -> float:
        """Forget questions older than an hour; return the time."""
        now = self.clock()
        while self._asked and self._asked[0] <= now - HOUR_S:
            self._asked.popleft()
        return now
