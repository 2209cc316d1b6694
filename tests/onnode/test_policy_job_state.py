"""Decisions about a job: why it ends, and which notifications are due."""

from __future__ import annotations

import pytest

from orchestrator.onnode.loop.slurm import job_end
from orchestrator.onnode.policy.job_state import (
    CANCELLED,
    PREEMPTED,
    TIME_LIMIT,
    UNEXPLAINED,
    JobEnd,
    SetCounts,
    due,
    has_score,
    last_state,
)

SHOWN = (
    "JobId=7 JobName=x UserId=me(1000) Priority=1 JobState=%s Reason=%s Restarts=0 "
    "EndTime=2026-11-22T10:00:00 PreemptEligibleTime=2026-11-22T09:00:00 PreemptTime=%s "
    "SuspendTime=None"
)
PREEMPT_TIME = "2026-11-22T09:59:00"
FORGOTTEN = "slurm_load_jobs error: Invalid job id specified"
NO_ANSWER = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


NODE_FAILED = "failed", "the scheduler has ended the job (NODE_FAIL)"


@pytest.mark.parametrize(
    ("state", "reason", "time", "is_ended", "decision"),
    [
        ("RUNNING", "None", "None", False, CANCELLED),
        ("SUSPENDED", "None", "None", False, CANCELLED),
        ("STOPPED", "None", "N/A", False, CANCELLED),
        ("CANCELLED", "None", "None", True, CANCELLED),
        ("COMPLETING", "None", "None", True, CANCELLED),
        ("NODE_FAIL", "None", "None", True, NODE_FAILED),
        (
            "COMPLETING",
            "NodeDown",
            "None",
            True,
            ("failed", "the scheduler has ended the job (NodeDown)"),
        ),
        (
            "RUNNING",
            "NodeDown",
            "None",
            False,
            CANCELLED,
        ),  # requeued: the reason of its former life
        ("RUNNING", "None", PREEMPT_TIME, True, PREEMPTED),  # in its grace time
        ("COMPLETING", "None", PREEMPT_TIME, True, PREEMPTED),
        ("PREEMPTED", "None", "None", True, PREEMPTED),
        ("TIMEOUT", "None", "None", True, TIME_LIMIT),
        ("COMPLETING", "TimeLimit", "None", True, TIME_LIMIT),  # Slurm could not warn it
    ],
)
def test_slurms_account_of_a_job(
    state: str, reason: str, time: str, is_ended: bool, decision: tuple[str, str]
) -> None:
    end = job_end(SHOWN % (state, reason, time))
    assert end.text == f"JobState={state} Reason={reason} PreemptTime={time}"
    assert end.is_ended is is_ended
    assert last_state(["SIGTERM"], end) == decision
    assert job_end(end.text) == end, "the record is enough to decide again"


def test_a_forgotten_job_has_ended_and_an_unknown_one_continues() -> None:
    assert job_end(FORGOTTEN).is_ended and job_end(job_end(FORGOTTEN).text).is_ended
    forgotten = "failed", "the scheduler has ended the job and no longer knows why"
    assert last_state(["SIGTERM"], job_end(FORGOTTEN)) == forgotten
    assert job_end(NO_ANSWER) == JobEnd()


def test_without_an_answer_nobody_is_said_to_have_cancelled() -> None:
    assert last_state(["SIGTERM"], JobEnd()) == UNEXPLAINED
    assert last_state(["SIGUSR1", "SIGTERM"], JobEnd()) == UNEXPLAINED
    assert last_state(["SIGUSR1"], job_end(f"PreemptTime={PREEMPT_TIME}")) == TIME_LIMIT


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
        ("running", 11, (10, 0), (), []),  # the previous job has sent it
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
def test_due_notifications(
    state: str, converged: int, before: tuple[int, int], told: tuple[str, ...], events: list[str]
) -> None:
    assert due(SetCounts(state, 10, converged, 0, before, told)) == events
