"""What the logs of a set say about its progress, and what its score is going to be."""

from __future__ import annotations

from pathlib import Path

from orchestrator.mllog.olympic import dropped_per_side, olympic_mean
from orchestrator.onnode.mllog_tail import Evaluation, Tail, minutes


def projected(benchmark: str, times: list[float], misses: int) -> float | None:
    """Return the mean that counts of the runs so far, in minutes as `times` are; None while nothing is left of them."""
    return olympic_mean(times, misses, dropped_per_side(benchmark))


class Logs:
    """How a picture reads logs: each time anew."""

    def minutes(self, result: Path) -> float | None:
        """Return the time to train of a published result."""
        return minutes(result)

    def evaluation(self, log: Path) -> Evaluation | None:
        """Return the last evaluation of a log that grows."""
        return Tail(log).look()


class KeptLogs(Logs):
    """Remembers: a published result is read once, of a growing log only what is new (at first its last part)."""

    def __init__(self) -> None:
        self._minutes: dict[Path, float | None] = {}
        self._tail = Tail()

    def minutes(self, result: Path) -> float | None:
        if result not in self._minutes:
            self._minutes[result] = minutes(result)
        return self._minutes[result]

    def evaluation(self, log: Path) -> Evaluation | None:
        if self._tail.path != log:
            self._tail = Tail(log)
        return self._tail.look()
