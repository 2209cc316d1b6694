"""A set whose job this cluster does not show: on another cluster, of another user, or stopped. It is not gone by that."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from controller_parts import FORGOTTEN, Commands, Hasty, write_set

from orchestrator.errors import SchedulerBusy
from orchestrator.evidence.sets import SubmissionRecord, open_set
from orchestrator.onnode.kernel.records import JobRecord
from orchestrator.onnode.kernel.world import THIS
from orchestrator.runset.submit import BUSY_AGAIN_S, submit
from orchestrator.scheduler.job import Job, JobRequest
from orchestrator.scheduler.slurm import Slurm

Fake = Callable[[str, str], Path]
JOB = JobRecord(job_id="7", state="running", host="node7", started_ms=10, run=1, attempt=1)
ASKED = SubmissionRecord(number=1, job_name="orch-s", requested_ms=5, state="submitted", job_id="7")
HEARD_OF = r"it was heard of \d+ s ago"
"""The age depends on how long the test takes."""
# The queue of cluster beta is empty; it would take a job.
QUEUE, SBATCH = "exit 0", "echo 7001"
CONFIG = f'[[ $* != *"show job"* ]] || {{ {FORGOTTEN}; }}; echo "ClusterName             = beta"'


def at_work(root: Path, *, cluster: str = "beta", uid: int = os.getuid(), age_s: float = 0) -> Path:
    """The lock of the loop of job 7, on a node of `cluster`."""
    lock = root / "loop.lock"
    holder = replace(THIS.holder("7", cluster), uid=uid, host="node7", boot="7", pid=4)
    lock.write_text(json.dumps(asdict(holder)))
    now = lock.stat().st_mtime
    os.utime(lock, (now - age_s,) * 2)
    return lock


@pytest.fixture
def beta(fake: Fake) -> Path:
    fake("squeue", QUEUE)
    fake("scontrol", CONFIG)
    return fake("sbatch", SBATCH)


@pytest.mark.parametrize(
    ("holder", "why"),
    [
        ({"cluster": "alpha"}, HEARD_OF),
        ({"cluster": "alpha", "age_s": 1_000_000}, "it is of cluster alpha, and this is beta"),
        ({"age_s": 10}, HEARD_OF),
    ],
)
def test_a_job_that_is_not_shown_is_not_doubled(
    tmp_path: Path, cli: Commands, beta: Path, holder: dict[str, object], why: str
) -> None:
    root = write_set(tmp_path, "s", job=JOB, submission=ASKED)
    lock = at_work(root, **holder)  # type: ignore[arg-type]
    before = lock.read_bytes()
    answer = cli.json("status", root)
    assert answer["state"] == "running"
    assert re.search(f"job 7 is not shown here: {why}", answer["reason"])
    for command in ("resume", "cancel"):
        assert cli(command, root).code == 4
        assert "job 7 on node7 may be at work on it" in cli.err and re.search(why, cli.err)
    assert not beta.exists() and lock.read_bytes() == before


def test_another_users_job_is_not_doubled(tmp_path: Path, cli: Commands, beta: Path) -> None:
    """PrivateData=jobs: Slurm answers as if there were none. Root sees all."""
    root = write_set(tmp_path, "s", job=JOB, submission=ASKED)
    at_work(root, uid=os.getuid() + 1, age_s=1_000_000)
    cli("resume", root)
    if os.getuid():
        assert cli.code == 4 and "another user's" in cli.err and not beta.exists()
    else:
        assert cli.code == 0, cli.err


def test_a_job_of_this_cluster_that_is_not_shown_and_silent_is_gone(
    tmp_path: Path, cli: Commands, beta: Path
) -> None:
    root = write_set(tmp_path, "s", job=JOB, submission=ASKED)
    at_work(root, age_s=1_000)
    assert cli.json("status", root)["state"] == "lost"
    assert cli("resume", root).code == 0, cli.err
    assert len(beta.read_text().splitlines()) == 1
    by = json.loads((root / "submissions/2.json").read_text())["by"]
    assert (by["cluster"], by["uid"], by["host"], by["pid"]) == (
        "beta",
        os.getuid(),
        os.uname().nodename,
        os.getpid(),
    )


def test_a_submission_to_another_cluster_is_not_gone(
    tmp_path: Path, cli: Commands, beta: Path
) -> None:
    by = {**asdict(THIS.holder(cluster="alpha")), "uid": os.getuid()}
    root = write_set(tmp_path, "s", submission=replace(ASKED, by=by))
    answer = cli.json("status", root)
    assert (
        answer["state"] == "pending"
        and "it is of cluster alpha, and this is beta" in answer["reason"]
    )
    assert cli("resume", root).code == 4 and "job 7 has not started" in cli.err
    assert not beta.exists()


@pytest.mark.parametrize(
    ("word", "reason", "state", "message"),
    [
        ("TIMEOUT", "TimeLimit", "time_limit", "was ended by its time limit"),
        ("DEADLINE", "DeadLine", "lost", "--deadline"),
        ("PREEMPTED", "None", "lost", "pre-empted by a job of higher priority"),
        ("NODE_FAIL", "NodeDown", "lost", "lost its batch host (resume with --exclude"),
        ("BOOT_FAIL", "None", "lost", "did not boot"),
        ("OUT_OF_MEMORY", "OutOfMemory", "lost", "want of memory"),
        ("CANCELLED", "None", "cancelled", "was cancelled"),
        ("SUSPENDED", "None", "suspended", "scontrol resume 7"),
        ("REQUEUE_HOLD", "job_requeued_in_held_state", "held", "scontrol release 7"),
        ("REQUEUED", "None", "pending", "continues at the first missing run"),
    ],
)
@pytest.mark.parametrize("begun", [True, False])
def test_what_slurm_did_is_said_with_the_way_out(
    tmp_path: Path,
    cli: Commands,
    fake: Fake,
    word: str,
    reason: str,
    state: str,
    message: str,
    begun: bool,
) -> None:
    root = write_set(tmp_path, "s", job=JOB if begun else None, submission=ASKED)
    fields = "\\x1f".join(("7", word, "0", "0", "n1", reason, "orch-s"))
    fake("squeue", f"printf '\\x1fMARK\\x1f{fields}\\n'")
    fake("scontrol", CONFIG)
    answer = cli.json("status", root)
    assert answer["state"] == state and message in answer["reason"], answer["reason"]


BUSY = [
    "sbatch: error: Slurm job queue full, sleeping and retrying.\nsbatch: error: ...: Resource temporarily unavailable",
    "sbatch: error: Batch job submission failed: Rate limit exceeded, please retry momentarily",
]


@pytest.mark.parametrize("message", BUSY)
def test_not_now_is_asked_again_with_growing_pauses(
    tmp_path: Path, fake: Fake, message: str
) -> None:
    fake("squeue", QUEUE)
    fake("scontrol", CONFIG)
    calls = fake(
        "sbatch", f'(( $(wc -l <"$0.calls") > 3 )) && echo 9 && exit; echo "{message}" >&2; exit 1'
    )
    world = Hasty()
    record = submit(open_set(write_set(tmp_path, "s")), Slurm(), world=world)
    assert (record.state, record.job_id) == ("submitted", "9")
    assert len(calls.read_text().splitlines()) == 4
    assert world.pauses == sorted(world.pauses) and len(world.pauses) == 3


def test_not_now_for_long_is_told(tmp_path: Path) -> None:
    class Busy(Slurm):
        asked = 0

        def submit(self, request: JobRequest) -> str:
            self.asked += 1
            raise SchedulerBusy("Slurm takes no job now")

        def jobs(self, **_: object) -> dict[str, Job]:
            return {}

    busy = Busy()
    with pytest.raises(SchedulerBusy):
        submit(open_set(write_set(tmp_path, "s")), busy, world=Hasty())
    assert busy.asked == len(BUSY_AGAIN_S) + 1
    assert json.loads((tmp_path / "s/submissions/1.json").read_text())["state"] == "refused"
