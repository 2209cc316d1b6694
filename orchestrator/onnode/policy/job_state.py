"""A job's decisions: why it ends, whether another run fits, due notifications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TIME_LIMIT = ("time_limit", "the job reached its time limit")
CANCELLED = ("cancelled", "ended by a signal (scancel or cancel)")
UNEXPLAINED = ("paused", "ended by a signal, and the scheduler does not say why")
PREEMPTED = ("paused", "pre-empted by a job of higher priority")
WARNING = "SIGUSR1"
"""The signal before the time limit (--signal of job.sh)."""
CLOSE_S = 120
"""Seconds between WARNING and the time limit (--signal of job.sh)."""
ENDED_BY_SCHEDULER = ("container", "loop", "silent")
"""Failures of a node that the scheduler causes, too, when it ends a job."""
MOST_MISSED = 1
"""The olympic mean drops the slowest run (mllog/olympic.py)."""
_EVENTS = {
    "complete": "complete",
    "paused": "paused",
    "time_limit": "paused",
    "failed": "failed",
}
"""A job's state -> event. A set out of time waits for `resume`, as if paused. Cancellations need no
notification."""


@dataclass(frozen=True)
class JobEnd:
    """The scheduler's account of a job. `text`: its words, or ""."""

    text: str = ""
    is_ended: bool = False
    """Recorded by the scheduler before its signals."""
    cause: tuple[str, str] | None = None
    """State and reason of an end other than a cancellation, if reported."""


def last_state(signals: Sequence[str], end: JobEnd) -> tuple[str, str]:
    """Return state and reason. `signals`: names, in order.

    Time limit, pre-emption and cancellation send the same signals: only the scheduler's account
    shows a cancellation.
    """
    if list(signals) == [WARNING]:
        return TIME_LIMIT
    return end.cause or (CANCELLED if end.text else UNEXPLAINED)


def fits(left_s: float, needs_s: float) -> bool:
    """`needs_s`: the shortest run known, or 0."""
    return left_s - CLOSE_S >= needs_s


@dataclass(frozen=True)
class SetCounts:
    state: str
    required: int
    converged: int
    missed: int
    before: tuple[int, int]
    """Runs that had converged, and missed the target, before this job."""
    told: tuple[str, ...] = ()


def has_score(required: int, converged: int, missed: int) -> bool:
    """Return whether the runs suffice for a score; `orchestrator score` validates it."""
    return converged + min(missed, MOST_MISSED) >= required


def due(now: SetCounts) -> list[str]:
    """Return the due events, in order."""
    events = []
    had_score = has_score(now.required, *now.before)
    if not had_score and has_score(now.required, now.converged, now.missed):
        events.append("score")
    if now.state in _EVENTS:
        events.append(_EVENTS[now.state])
    return [event for event in events if event not in now.told]
