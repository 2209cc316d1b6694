"""What Slurm does to a job: it starts it again under the same id, and pre-empts it. Slurm's commands are programs in their place."""

from __future__ import annotations

import os
import signal
import stat

import pytest
from bundle_parts import Bundles, Loop, Set

from orchestrator.evidence.ledger import verify
from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.state import judge
from orchestrator.onnode import ledger

PROGRAMS = {
    "srun": 'while [[ $1 == --* ]]; do shift; done; SLURMD_NODENAME=n1 exec "$@"',
    "scontrol": 'case $2 in hostnames) echo n1 ;; *) echo "JobId=7 JobState=RUNNING PreemptTime=${PREEMPTED:-None}" ;; esac',
    "squeue": "exit 1",
    "sinfo": "exit 1",
}
HANG_IN_RUN_2 = "[[ $me != 2.1.* ]] || hang"


class Slurm:
    """A job of one node that is started once, twice, ..."""

    def __init__(self, bundles: Bundles) -> None:
        self.bundles, self.folder = bundles, bundles.folder / "bin"
        self.folder.mkdir()
        for name, body in PROGRAMS.items():
            path = self.folder / name
            path.write_text(f"#!/bin/bash\n{body}\n")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def start(self, restart: int, **more: str) -> Loop:
        job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_CLUSTER_NAME": "alpha"}
        count = {"SLURM_RESTART_COUNT": str(restart)} if restart else {}  # the first time Slurm does not set it
        path = f"{self.folder}{os.pathsep}{os.environ['PATH']}"
        return self.bundles.start("run_with_docker_slurm.sh", PATH=path, **job, **count, **more)


@pytest.fixture
def slurm(bundles: Bundles) -> Slurm:
    return Slurm(bundles)


def in_run_2(slurm: Slurm, bundles: Bundles) -> tuple[Loop, Set]:
    bundles.make(HANG_IN_RUN_2, nexp=3, scheduler="slurm")
    return slurm.start(0), bundles.running(2, 1, "hanging")


def test_a_job_that_slurm_starts_again_goes_on_at_the_first_missing_run(slurm: Slurm, bundles: Bundles) -> None:
    first, one = in_run_2(slurm, bundles)
    again = slurm.start(1, ORCH_SET_DIR=str(one.root))
    assert again.end() == 1 and "job 7 on" in again.out and "is already working on" in again.out
    assert first.process.poll() is None and (one.root / "loop.lock").exists()

    result = (one.root / "runs/1/result_1.txt").read_bytes()
    first.kill_all()  # its node lost power
    again = slurm.start(2, ORCH_SET_DIR=str(one.root))
    assert again.end() == 0, again.out
    assert "taking over from job 7 on" in again.out and "which is gone" in again.out
    assert [one.outcomes(run) for run in (1, 2, 3)] == [["success"], ["interrupted", "success"], ["success"]]
    assert (one.root / "runs/1/result_1.txt").read_bytes() == result and one.results() == [1, 2, 3]
    assert [job["state"] for job in one.jobs()] == ["complete"]
    assert [entry.data["restart"] for entry in ledger.read(one.root)[0] if entry.kind == "job"] == [0, 2]
    assert [str(problem) for problem in verify(one.root).problems] == []
    assert [path.name for path in one.root.glob("events-*")] == ["events-7.tsv"]
    assert (one.root / "events-7.tsv").read_text().count("\tbegin\t") == 2
    assert bundles.decisions_again() == []


@pytest.mark.parametrize(("preempted", "state"), [("2026-11-22T09:59:00", "paused"), ("None", "cancelled")])
def test_a_job_that_is_pre_empted_says_so(slurm: Slurm, bundles: Bundles, preempted: str, state: str) -> None:
    bundles.make(HANG_IN_RUN_2, nexp=3, scheduler="slurm")
    loop = slurm.start(0, PREEMPTED=preempted)
    one = bundles.running(2, 1, "hanging")
    loop.signal(signal.SIGTERM)
    assert loop.end() == 1
    assert one.job["state"] == state and ("pre-empted" in one.job["reason"]) == (state == "paused")
    assert one.outcomes(2) == ["interrupted"] and one.left_behind() == []
    assert judge(SetEvidence(one.root), {})[0] == state
    assert "\tending\t" in (one.root / "events-7.tsv").read_text() and bundles.decisions_again() == []
