"""Decisions about a job: why it ends, if another run fits, and which notifications are due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TIME_LIMIT = ("time_limit", "the time limit of the job is near")
CANCELLED = ("cancelled", "ended by a signal (scancel or cancel)")
PREEMPTED = ("paused", "pre-empted by a job of higher priority")
WARNING = "SIGUSR1"
"""The signal before the time limit (--signal of job.sh)."""
CLOSE_S = 120
"""Seconds between WARNING and the time limit (--signal of job.sh): time to close the set."""
MOST_MISSED = 1
"""Runs a score does without: the olympic mean drops the slowest (mllog/olympic.py)."""
_EVENTS = {
    "complete": "complete",
    "paused": "paused",
    "time_limit": "paused",
    "failed": "failed",
}
"""State of a job -> event. A set out of time waits for `resume`, as if paused.

A cancelled set sends nothing: the person who cancelled it knows.
"""


# ---- why a job ends ----


@dataclass(frozen=True)
class JobEnd:
    """The scheduler's account of a job. `text` is its own, for the record; "" without an answer."""

    text: str = ""
    is_ended: bool = False
    """The scheduler ends the job: it records that before it signals any process."""
    cause: tuple[str, str] | None = None
    """TIME_LIMIT or PREEMPTED, if the scheduler reports either."""


def ending(signals: Sequence[str], end: JobEnd) -> tuple[str, str]:
    """Return the state of an ending job and its reason. `signals`: their names, in order.

    At its time limit or pre-empted, a job gets the same signals as if cancelled.
    """
    if list(signals) == [WARNING]:
        return TIME_LIMIT
    return end.cause or CANCELLED


def fits(left_s: float, needs_s: float) -> bool:
    """Return whether a run can end before the job's time limit, in `left_s`.

    `needs_s`: the shortest known run, or 0.
    """
    return left_s - CLOSE_S >= needs_s


# ---- notifications ----


@dataclass(frozen=True)
class SetCounts:
    """Progress of a set. `told`: sent events."""

    state: str
    required: int
    converged: int
    missed: int
    before: tuple[int, int]
    """Runs that had converged, and had missed the target, before this job."""
    told: tuple[str, ...] = ()


def has_score(required: int, converged: int, missed: int) -> bool:
    """Return whether the runs are enough for a score.

    `orchestrator score` decides on its validity by RCP and compliance.
    """
    return converged + min(missed, MOST_MISSED) >= required


def due(now: SetCounts) -> list[str]:
    """Return the events to notify people of now, in order."""
    events = []
    had_score = has_score(now.required, *now.before)
    if not had_score and has_score(now.required, now.converged, now.missed):
        events.append("score")
    if now.state in _EVENTS:
        events.append(_EVENTS[now.state])
    return [event for event in events if event not in now.told]
