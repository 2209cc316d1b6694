"""Local jobs: real processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from until import LIMIT_S, until

from orchestrator.errors import SchedulerError
from orchestrator.scheduler.job import JobRequest
from orchestrator.scheduler.local import Local, members

ENV = {"PATH": "/usr/bin:/bin", "MARK": "a,b 'c' \"d\" $(e)"}

BOOTED_S = 1_048_576.0


def start(tmp_path: Path, body: str, name: str = "orch-t") -> str:
    script = tmp_path / "job.sh"
    script.write_text(body)
    return Local().submit(JobRequest(script, name, tmp_path, ENV, str(tmp_path / "job_%j.out")))


def test_name_id_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"orch-{tmp_path.name}"
    job_id = start(tmp_path, 'env -0 >env; echo "$ORCH_JOB_ID"; while :; do sleep 0.05; done', name)
    output = tmp_path / f"job_{job_id}.out"
    try:
        until(lambda: output.exists() and output.read_text() == f"{job_id}\n")
        with monkeypatch.context() as clocks:  # read one after the other, they never agree
            clocks.setattr("time.time", lambda: BOOTED_S + 50.0)
            clocks.setattr("time.clock_gettime", lambda clock: 50.0)
            [job] = Local().jobs(names=[name]).values()
            same = Local().jobs(ids=[job_id])[job_id]
        assert (job.id, job.name, job.state, job.alive) == (job_id, name, "RUNNING", True)
        ticks = int(job_id.rpartition("-")[2])
        started_ms = (BOOTED_S + ticks / os.sysconf("SC_CLK_TCK")) * 1000
        assert same.start_ms == job.start_ms == int(started_ms)
        inside = dict(
            pair.split("=", 1) for pair in (tmp_path / "env").read_text().split("\0") if pair
        )
        ours = {
            name: value
            for name, value in inside.items()
            if name not in ("PWD", "SHLVL", "_", "OLDPWD")
        }
        assert ours == {**ENV, "ORCH_JOB_NAME": name, "ORCH_JOB_ID": job_id}
    finally:
        assert Local().cancel(job_id, 0)
    assert Local().jobs(names=[name]) == {}


def test_cancel_lets_the_job_end_by_itself(tmp_path: Path) -> None:
    job_id = start(
        tmp_path, 'trap "echo closed >closed; exit" TERM; echo up >up; while :; do sleep 0.02; done'
    )
    until((tmp_path / "up").exists)
    assert Local().cancel(job_id, LIMIT_S)
    assert (tmp_path / "closed").read_text() == "closed\n"


def test_cancel_ends_by_force_what_ignores_it_and_what_moved_away(tmp_path: Path) -> None:
    job_id = start(
        tmp_path, 'trap "" TERM; setsid sleep 600 & echo up >up; while :; do sleep 0.02; done'
    )
    until((tmp_path / "up").exists)
    until(lambda: len(members(job_id)) >= 2)
    assert Local().cancel(job_id, 0.2)
    assert members(job_id) == []


def test_a_recycled_pid_is_not_the_job(tmp_path: Path) -> None:
    job_id = start(tmp_path, "while :; do sleep 0.02; done")
    try:
        _, pid, ticks = job_id.split("-")
        assert Local().jobs(ids=[f"local-{pid}-{int(ticks) - 1}"]) == {}
        assert Local().cancel(
            f"local-{pid}-{int(ticks) - 1}", 0
        )  # nothing to end, and nothing was ended
        assert Local().jobs(ids=[job_id])
    finally:
        Local().cancel(job_id, 0)


@pytest.mark.parametrize("job_id", ["17", "local-1", "local-a-b", "local-1-2;rm"])
def test_ids_of_other_schedulers_are_refused(job_id: str) -> None:
    with pytest.raises(SchedulerError, match="not a job of this machine"):
        Local().cancel(job_id, 0)


@pytest.mark.parametrize(
    "job_id",
    [f"local-{1 << 31}-1", f"local-{1 << 80}-1", "local-0-1", "17", "local-1-2\n", "local-۱-1"],
)
def test_an_id_in_anybodys_file_ends_no_question(tmp_path: Path, job_id: str) -> None:
    """The jobs of other sets are found all the same."""
    mine = start(tmp_path, "while :; do sleep 0.02; done")
    try:
        assert Local().jobs(ids=[job_id, mine]).keys() == {mine}
    finally:
        Local().cancel(mine, 0)
