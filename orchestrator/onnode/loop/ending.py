"""The end of a job."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from ..policy.job_state import JobEnd, last_state
from .allocation import JobAllocation
from .host import Reactor

ANSWERS = 3
"""Questions to the scheduler whether the job ends: no answer is not a no."""


class Ending:
    """Once a job has a last `state`, or "closing", it starts nothing more."""

    def __init__(self) -> None:
        self.state = self.reason = ""

    def close(self, state: str, reason: str) -> None:
        """An earlier end keeps its state and reason."""
        if not self.state:
            self.state, self.reason = state, reason

    def check(self) -> bool | None:
        """Return whether the end has come, None if unknown; asked before nodes are blamed."""
        return bool(self.state)


class SetEnding(Ending):
    """The end of a set's job, by a signal or by the scheduler's account."""

    def __init__(
        self,
        reactor: Reactor,
        allocation: JobAllocation,
        announce: Callable[[], object],
        record: Callable[[dict[str, Any]], object],
    ) -> None:
        super().__init__()
        self._reactor, self._allocation = reactor, allocation
        self._announce, self._record = announce, record
        self._unexplained_signals: list[str] = []

    def has_come(self) -> bool:
        """Return whether the end has come, also by a signal since the last wait."""
        self._reactor.notice()
        self.take_signals()
        return bool(self.state)

    def take_signals(self) -> None:
        """Close the set at its first signals, before the scheduler explains them: time may not
        suffice for that."""
        if self._reactor.signals and not self.state:
            self._unexplained_signals = [
                signal.Signals(number).name for number in self._reactor.signals
            ]
            self._set(*last_state(self._unexplained_signals, JobEnd()))
            self.ask_why()

    def check(self) -> bool | None:
        """The scheduler may signal other processes first."""
        if self.has_come():
            return True
        answers = (self._allocation.job_end() for _ in range(ANSWERS))
        end = next((end for end in answers if end is not None), None)
        if end is not None and end.is_ended:
            self._explain([], end)
        return bool(self.state) if end is not None or self.state else None

    def ask_why(self) -> None:
        """Ask the scheduler for the cause of the signals, until it answers."""
        if not self._unexplained_signals:
            return
        end = self._allocation.job_end()
        self._explain(self._unexplained_signals, end or JobEnd())
        if end is not None:
            self._unexplained_signals = []

    def _explain(self, signals: list[str], end: JobEnd) -> None:
        state, reason = last_state(signals, end)
        if (state, reason) != (self.state, self.reason):
            self._set(state, reason)
        self._record({"signals": signals, "told": end.text, "state": state, "reason": reason})

    def _set(self, state: str, reason: str) -> None:
        self.state, self.reason = state, reason
        self._announce()
