"""A command that is killed between its submission and the answer: what is said of the set, and that its lock is in nobody's way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from controller_parts import Commands, one_node, write_set
from until import now_ms, until

from orchestrator.evidence.ledger import verify
from orchestrator.evidence.sets import SubmissionRecord, open_set
from orchestrator.onnode.kernel.holder import Holder
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.records import JobRecord, read, write
from orchestrator.onnode.kernel.world import THIS
from orchestrator.onnode.set import ledger
from orchestrator.onnode.set.submissions import settle_own
from orchestrator.runset.submit import submissions
from orchestrator.scheduler.kinds import APPEARS_WITHIN_S
from orchestrator.scheduler.local import Local
from orchestrator.scheduler.slurm import FIELD

TOP = Path(__file__).parents[2]
Fake = Callable[[str, str], Path]


def killed(*argv: str | Path) -> None:
    """Run a command that is killed on the way."""
    arguments = [sys.executable, "-m", "orchestrator", *map(str, argv)]
    done = subprocess.run(
        arguments, env=os.environ | {"PYTHONPATH": str(TOP)}, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.fixture
def root(tmp_path: Path, fake: Fake) -> Path:
    """A set whose `resume` was killed when sbatch had made job 7, which waits."""
    folder = write_set(tmp_path, "s-w-20261121-101500-0001")
    fake("scontrol", "exit 1")
    (folder / "bundle").mkdir()
    fake("squeue", queue())
    fake("sbatch", "kill -KILL $PPID; echo 7")
    killed("resume", folder)
    fake(
        "squeue",
        queue(
            f"7{FIELD}PENDING{FIELD}N/A{FIELD}N/A{FIELD}{FIELD}Priority{FIELD}orch-{folder.name}"
        ),
    )
    [asked] = submissions(open_set(folder).layout)
    assert (asked.state, asked.job_id) == ("intended", "") and (
        folder / ".controller.lock"
    ).exists()
    return folder


def queue(*rows: str) -> str:
    return (
        "printf '%s\\n' " + " ".join(f"'{FIELD}MARK{FIELD}{row}'" for row in rows)
        if rows
        else "exit 0"
    )


def test_status_finds_its_job_by_name(root: Path, cli: Commands, fake: Fake) -> None:
    answer = cli.json("status", root)
    assert (answer["state"], answer["job_id"], answer["job_state"]) == ("pending", "7", "PENDING")
    assert cli("resume", root).code == 5 and "job 7 (PENDING)" in cli.err  # which settles it
    assert [(record.state, record.job_id) for record in submissions(open_set(root).layout)] == [
        ("submitted", "7")
    ]
    assert not (root / ".controller.lock").exists()


def test_without_a_job_status_says_what_is_known(root: Path, cli: Commands, fake: Fake) -> None:
    fake("squeue", queue())
    answer = cli.json("status", root)
    assert (
        answer["state"] == "unknown"
        and "the submission was interrupted; there is no job of it yet" in answer["reason"]
    )
    fake("squeue", "exit 1")
    assert "no answer from the scheduler now" in cli.json("status", root)["reason"]
    fake("squeue", queue())
    path = root / "submissions/1.json"
    asked = read(SubmissionRecord, path)
    assert isinstance(asked, SubmissionRecord)
    write(replace(asked, requested_ms=int(now_ms() - 1000 * (APPEARS_WITHIN_S + 1))), path)
    answer = cli.json("status", root)
    assert (
        answer["state"] == "refused"
        and "no job of this name ever appeared; resume submits it again" in answer["reason"]
    )
    answer = cli("explain", root)
    assert "never appeared" in answer.out + answer.err
    fake("sbatch", "echo 8")
    assert cli("resume", root).code == 0, cli.err  # and it is as status said
    assert [record.state for record in submissions(open_set(root).layout)] == [
        "refused",
        "submitted",
    ]


KILLED_BEFORE_THE_OUTCOME = """
import os, sys
from orchestrator.cli import main
from orchestrator.runset import submit

record = submit._record
submit._record = lambda *args: os.kill(os.getpid(), 9) if args[1].state == "submitted" else record(*args)
main(sys.argv[1:])
"""


@pytest.fixture
def complete(site: Path, tmp_path: Path) -> Path:
    """A complete set whose `submit` was killed when the job was made, and which then had a job of its own."""
    arguments = ["submit", *map(str, one_node(tmp_path, site))]
    script, go = tmp_path / "code/run_and_time.sh", tmp_path / "go"
    script.write_text(f"until [[ -e {go} ]]; do sleep 0.05; done\n{script.read_text()}")
    environment = os.environ | {"PYTHONPATH": str(TOP)}
    argv = [sys.executable, "-c", KILLED_BEFORE_THE_OUTCOME, *arguments]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    [root] = [path for path in (tmp_path / "sets").iterdir() if path.is_dir()]
    assert read(SubmissionRecord, root / "submissions/1.json").state == "intended"  # type: ignore[union-attr]
    go.touch()  # at its end the job settles the submission
    until(
        lambda: (
            (root / "results/result_1.txt").exists()
            and not Local().jobs(names=[f"orch-{root.name}"])
        )
    )
    return root


def settled(root: Path) -> list[tuple[str, str]]:
    """The submissions of a set, and in its ledger."""
    job = next((root / "jobs").glob("*.json")).stem
    [asked] = submissions(open_set(root).layout)
    records = [record.data for record in ledger.read(root)[0] if record.kind == "submit"]
    assert records == [{"number": 1, "state": "submitted", "job_id": job}]
    assert (asked.state, asked.job_id) == ("submitted", job)
    return [str(record) for record in verify(root).problems]


def test_the_job_of_a_killed_submit_settles_it(complete: Path, cli: Commands) -> None:
    """Nobody trips over the intent and the lock: they go with the job that completes the set."""
    assert settled(complete) == [] and list(complete.glob(".*lock*")) == []
    answer = cli.json("status", complete)
    assert (answer["state"], answer["done"], answer["findings"]) == ("complete", 1, [])
    assert cli("watch", complete).code == 0 and cli("replay", complete).code == 0
    assert cli("resume", complete).code == 5 and "nothing is left to run" in cli.err
    assert cli("cancel", complete).code == 5 and "no job to cancel" in cli.err


def unsettle(root: Path, holder: Holder) -> None:
    """Make a set what it was before its job settled the submission; `holder` has the controller's lock."""
    [asked] = submissions(open_set(root).layout)
    write(replace(asked, state="intended", job_id="", ledger=""), root / "submissions/1.json")
    (root / ".controller.lock").write_text(json.dumps(asdict(holder)))


def test_resume_settles_a_complete_set_that_its_job_could_not(
    complete: Path, cli: Commands
) -> None:
    """The lock of another host's controller was not old enough when the job ended."""
    elsewhere = replace(THIS.holder(), host="elsewhere", boot="other", pid=1)
    unsettle(complete, elsewhere)
    os.utime(complete / ".controller.lock", (1, 1))
    assert cli("resume", complete).code == 5 and "nothing is left to run" in cli.err
    assert settled(complete) == [] and list(complete.glob(".*lock*")) == []


def test_a_job_is_found_although_its_clock_is_behind_that_of_its_submitter(
    complete: Path, cli: Commands
) -> None:
    """The ledger has grown since the request, whatever both clocks say."""
    unsettle(complete, THIS.holder())
    (complete / ".controller.lock").unlink()
    head = "2 " + ledger.read(complete)[0][1].hash
    write(
        replace(submissions(open_set(complete).layout)[0], ledger=head),
        complete / "submissions/1.json",
    )
    path = next((complete / "jobs").glob("*.json"))
    job = read(JobRecord, path)
    assert isinstance(job, JobRecord)
    write(replace(job, started_ms=job.started_ms - 200_000_000), path)
    assert cli.json("status", complete)["state"] == "complete"
    assert cli("resume", complete).code == 5 and "nothing is left to run" in cli.err
    assert settled_as(complete) == path.stem


def test_a_job_that_left_no_record_does_not_keep_a_complete_set_open(
    complete: Path, cli: Commands
) -> None:
    """It found the set at work, and ended; the command that submitted it was killed."""
    [asked] = submissions(open_set(complete).layout)
    long_ago = now_ms() - 2000 * APPEARS_WITHIN_S
    second = replace(asked, number=2, state="intended", job_id="", requested_ms=long_ago)
    write(replace(second, ledger=""), complete / "submissions/2.json")
    assert cli("resume", complete).code == 5 and "nothing is left to run" in cli.err
    assert [asked.state for asked in submissions(open_set(complete).layout)] == [
        "submitted",
        "refused",
    ]
    assert cli.json("status", complete)["state"] == "complete"


def test_a_job_leaves_the_submission_of_a_living_controller_alone(complete: Path) -> None:
    unsettle(complete, THIS.holder())
    job = next((complete / "jobs").glob("*.json")).stem
    settle_own(Layout(complete), job, "")
    [asked] = submissions(open_set(complete).layout)
    assert asked.state == "intended" and (complete / ".controller.lock").exists()
    (complete / ".controller.lock").unlink()
    settle_own(Layout(complete), "another", "")  # the ledger knows better
    assert settled_as(complete) == job
    settle_own(Layout(complete), "a third", "")
    assert settled_as(complete) == job and list(complete.glob(".*lock*")) == []


def test_a_job_removes_the_files_of_a_killed_cancel(complete: Path) -> None:
    half = complete / "submissions/.1.json.tmp.4711"
    half.write_text("{")
    job = next((complete / "jobs").glob("*.json")).stem
    settle_own(Layout(complete), job, "")
    assert half.exists(), "its writer may be alive"
    os.utime(half, (1, 1))
    settle_own(Layout(complete), job, "")
    assert not half.exists() and list(complete.glob(".*lock*")) == []


def settled_as(root: Path) -> str:
    return submissions(open_set(root).layout)[0].job_id
