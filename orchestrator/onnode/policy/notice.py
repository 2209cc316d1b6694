"""What is worth telling of a set: a decision from its counts before and now, and the state of its job."""

from __future__ import annotations

from dataclasses import dataclass

MOST_MISSED = 1
"""A score can do without so many runs: the olympic mean drops the slowest one (orchestrator/mllog/olympic.py)."""
_OF_STATES = {
    "complete": "complete",
    "paused": "paused",
    "time_limit": "paused",
    "failed": "failed",
}
"""State of a job -> event. A set whose time is over waits for `resume` as a paused one does; who cancels one knows it."""


@dataclass(frozen=True)
class SetCounts:
    """Where a set stands. `before`: runs that had converged, or missed the target, before this job; `told`: its events so far."""

    state: str
    required: int
    converged: int
    missed: int
    before: tuple[int, int]
    told: tuple[str, ...] = ()


def has_score(required: int, converged: int, missed: int) -> bool:
    """Return whether the runs are enough for a score. Whether it is valid by RCP and compliance, `orchestrator score` says."""
    return converged + min(missed, MOST_MISSED) >= required


def due(now: SetCounts) -> list[str]:
    """Return the events that are to be told now, in order."""
    found = []
    if has_score(now.required, now.converged, now.missed) and not has_score(
        now.required, *now.before
    ):
        found.append("score")
    if event := _OF_STATES.get(now.state, ""):
        found.append(event)
    return [one for one in found if one not in now.told]
