"""Keys of MLLOG records that mark the course of a run, and its start and stop."""

from __future__ import annotations

START, STOP = "run_start", "run_stop"
ACCURACY = "eval_accuracy"
EVALUATIONS = (ACCURACY, "eval_error")
"""Keys of an evaluation."""


class StartStop:
    """A run's start and stop by its records in file order, in Unix milliseconds; None if unknown.

    The last `run_start` and the last `run_stop` count until both are known. Source:
    result_summarizer, _query_run_start_stop.
    """

    __slots__ = ("start", "stop")

    def __init__(self) -> None:
        self.start: float | None = None
        self.stop: float | None = None

    @property
    def is_known(self) -> bool:
        return self.start is not None and self.stop is not None

    def take(self, key: object, time_ms: float) -> None:
        if self.is_known:
            return
        if key == START:
            self.start = time_ms
        elif key == STOP:
            self.stop = time_ms
