"""Whether a job is ended, and why."""

from __future__ import annotations

import pytest

from orchestrator.onnode.policy.ending import (
    CANCELLED,
    PREEMPTED,
    TIME_LIMIT,
    ending,
    is_ended,
    job_fields,
)

SHOWN = (
    "JobId=7 JobName=x UserId=me(1000) Priority=1 JobState=%s Reason=None Restarts=0 EndTime=2026-11-22T10:00:00 "
    "PreemptEligibleTime=2026-11-22T09:00:00 PreemptTime=%s SuspendTime=None"
)


@pytest.mark.parametrize(
    ("state", "time", "decided"),
    [
        ("RUNNING", "None", CANCELLED),
        ("CANCELLED", "None", CANCELLED),
        ("RUNNING", "2026-11-22T09:59:00", PREEMPTED),  # in its grace time
        ("COMPLETING", "2026-11-22T09:59:00", PREEMPTED),
        ("PREEMPTED", "None", PREEMPTED),
        ("TIMEOUT", "None", TIME_LIMIT),
    ],
)
def test_who_is_pre_empted_is_not_cancelled(
    state: str, time: str, decided: tuple[str, str]
) -> None:
    fields = job_fields(SHOWN % (state, time))
    assert fields == f"JobState={state} Reason=None PreemptTime={time}"
    assert ending(["SIGTERM"], fields) == decided


@pytest.mark.parametrize(
    ("state", "time", "ends"),
    [
        ("RUNNING", "None", False),
        ("SUSPENDED", "None", False),
        ("STOPPED", "N/A", False),
        ("RUNNING", "2026-11-22T09:59:00", True),
        ("COMPLETING", "None", True),
        ("CANCELLED", "None", True),
        ("NODE_FAIL", "None", True),
    ],
)
def test_slurm_knows_the_end_of_a_job_before_its_processes_do(
    state: str, time: str, ends: bool
) -> None:
    assert is_ended(job_fields(SHOWN % (state, time))) is ends


def test_a_job_of_which_nothing_is_told_goes_on_and_one_that_is_forgotten_has_ended() -> None:
    assert not is_ended(
        job_fields("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    )
    assert is_ended(job_fields("slurm_load_jobs error: Invalid job id specified"))


def test_without_a_word_it_is_cancelled() -> None:
    assert (
        ending(["SIGTERM"], job_fields("slurm_load_jobs error: Invalid job id specified"))
        == CANCELLED
    )
    assert ending(["SIGTERM"], "") == CANCELLED
    assert ending(["SIGUSR1", "SIGTERM"], "") == CANCELLED


def test_a_job_at_its_limit_that_slurm_could_not_warn() -> None:
    assert (
        ending(
            ["SIGTERM"], job_fields("JobId=7 JobState=COMPLETING Reason=TimeLimit PreemptTime=None")
        )
        == TIME_LIMIT
    )


def test_the_warning_of_the_time_limit() -> None:
    assert ending(["SIGUSR1"], "PreemptTime=2026-11-22T09:59:00") == TIME_LIMIT
