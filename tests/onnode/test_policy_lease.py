"""Who counts as gone, and who may be alive though nobody sees them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.onnode.kernel.holder import Holder
from orchestrator.onnode.policy.lease import ALIVE, GONE, STALE_S, UNKNOWN, WAIT, Observation, judge

ME = Holder("alpha", 1001, "login1", "boot-l", "pid:[1]", 40, "400")
JOB = Holder("alpha", 1001, "node7", "boot-7", "pid:[1]", 4, "40", job="7", token="t")
LOCAL = replace(JOB, cluster="", job="local-4-40")
OLD, YOUNG = STALE_S + 1, 3.0


@pytest.mark.parametrize("age_s", [YOUNG, OLD])
@pytest.mark.parametrize("job", [True, False, None])
def test_the_kernel_of_a_holder_is_certain(age_s: float, job: bool | None) -> None:
    """Also of a loop that was stopped for hours, and of one that was killed a moment ago."""
    here = replace(JOB, boot=ME.boot)
    assert judge(here, ME, Observation(True, job, age_s)).word == ALIVE
    assert judge(here, ME, Observation(False, job, age_s)).word == GONE


@pytest.mark.parametrize("job", [True, False, None])
def test_a_process_of_another_kernel_says_nothing(job: bool | None) -> None:
    """Hosts of one name, a host that was booted, another namespace: pids mean something else there."""
    for other in (replace(JOB, boot="other"), replace(JOB, boot=ME.boot, pids="pid:[2]")):
        assert judge(other, ME, Observation(False, job, YOUNG)).word != GONE


def test_gone_is_who_is_not_shown_and_silent() -> None:
    assert judge(JOB, ME, Observation(None, False, OLD)).word == GONE
    waiting = judge(JOB, ME, Observation(None, False, YOUNG))
    assert (waiting.word, waiting.wait_s) == (WAIT, STALE_S - YOUNG)


@pytest.mark.parametrize("age_s", [YOUNG, OLD])
def test_a_job_that_is_shown_is_alive_however_silent(age_s: float) -> None:
    """Suspended, or its storage hangs."""
    assert judge(JOB, ME, Observation(None, True, age_s)).word == ALIVE


def test_no_answer_is_unknown() -> None:
    assert judge(JOB, ME, Observation(None, None, OLD)).word == UNKNOWN


@pytest.mark.parametrize(
    ("viewer", "why"),
    [
        (replace(ME, cluster="beta"), "it is of cluster alpha, and this is beta"),
        (replace(ME, cluster=""), "it is of cluster alpha, and this is not known to be one"),
        (replace(ME, uid=1002), "another user's"),
    ],
)
def test_not_seen_from_elsewhere_is_never_gone(viewer: Holder, why: str) -> None:
    for days in (1, 100):
        verdict = judge(JOB, viewer, Observation(None, False, days * 86400))
        assert verdict.word == UNKNOWN and why in verdict.why
    assert judge(JOB, viewer, Observation(None, False, YOUNG)).word == ALIVE


def test_root_sees_the_jobs_of_all() -> None:
    assert judge(JOB, replace(ME, uid=0), Observation(None, False, OLD)).word == GONE


def test_a_local_job_is_seen_on_its_host_only() -> None:
    assert judge(LOCAL, ME, Observation(None, None, OLD)).word == UNKNOWN
    booted = replace(LOCAL, host=ME.host)  # of this name, before the last boot
    assert judge(booted, ME, Observation(None, None, OLD)).word == GONE
    assert judge(booted, ME, Observation(None, None, YOUNG)).word == WAIT


def test_a_job_that_slurm_started_again_waits_for_the_silence_of_its_former_self() -> None:
    again = replace(JOB, host="node8", boot="boot-8", restart=1)
    assert judge(JOB, again, Observation(None, True, YOUNG)).word == WAIT
    assert judge(JOB, again, Observation(None, True, OLD)).word == GONE
    # A second loop in the same allocation is no new start.
    assert judge(JOB, replace(again, restart=0), Observation(None, True, OLD)).word == ALIVE


def test_a_command_is_gone_when_it_is_silent() -> None:
    command = replace(JOB, job="")
    for viewer in (ME, replace(ME, cluster="beta"), replace(ME, uid=1002)):
        assert judge(command, viewer, Observation(None, None, YOUNG)).word == WAIT
        assert judge(command, viewer, Observation(None, None, OLD)).word == GONE
