"""When people are told: once for each thing, and a score only when this job has made it possible."""

from __future__ import annotations

import pytest

from orchestrator.onnode.policy.job_state import SetCounts, due, has_score


@pytest.mark.parametrize(
    ("converged", "missed", "enough"),
    [(10, 0, True), (9, 1, True), (8, 2, False), (9, 0, False), (12, 3, True), (0, 10, False)],
)
def test_a_score_can_do_without_one_run(converged: int, missed: int, enough: bool) -> None:
    assert has_score(10, converged, missed) is enough


@pytest.mark.parametrize(
    ("state", "converged", "before", "told", "events"),
    [
        ("running", 9, (0, 0), (), []),
        ("running", 10, (0, 0), (), ["score"]),
        ("running", 11, (0, 0), ("score",), []),
        ("running", 11, (10, 0), (), []),  # the job before this one has told it
        ("complete", 10, (0, 0), (), ["score", "complete"]),
        ("complete", 12, (0, 0), ("score",), ["complete"]),
        ("paused", 3, (0, 0), (), ["paused"]),
        ("time_limit", 3, (0, 0), (), ["paused"]),
        ("failed", 0, (0, 0), (), ["failed"]),
        ("failed", 0, (0, 0), ("failed",), []),
        ("cancelled", 3, (0, 0), (), []),
        ("a word of another version", 3, (0, 0), (), []),
    ],
)
def test_what_is_due(
    state: str, converged: int, before: tuple[int, int], told: tuple[str, ...], events: list[str]
) -> None:
    assert due(SetCounts(state, 10, converged, 0, before, told)) == events
