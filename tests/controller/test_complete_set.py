"""`resume` settles a complete set, and disturbs no live job."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from shutil import rmtree

import pytest
from controller_parts import Cluster, write_set
from until import make_older

from orchestrator.errors import SetError
from orchestrator.evidence.ledger import verify
from orchestrator.evidence.sets import RunSet, SetEvidence, SubmissionRecord, open_set
from orchestrator.evidence.state import judge
from orchestrator.onnode.kernel.records import JobRecord, RunRecord, read, write
from orchestrator.onnode.kernel.world import THIS
from orchestrator.onnode.policy.lease import STALE_S
from orchestrator.onnode.set import ledger
from orchestrator.onnode.set.folder import Folder
from orchestrator.onnode.set.lease import read as read_lease
from orchestrator.runset.complete import restore
from orchestrator.runset.submit import submit
from orchestrator.scheduler.job import Job

KILLED = JobRecord(job_id="7", state="running", started_ms=1, updated_ms=2)


@pytest.fixture
def abandoned(tmp_path: Path) -> RunSet:
    """A set of two good runs. Its job was killed with the set and the ledger locked, and the state of its last attempt is lost."""
    run_set = open_set(write_set(tmp_path, "s", nexp=2, done=2, job=KILLED))
    layout = run_set.layout
    states = [read(RunRecord, layout.attempt_state(run, 1)) for run in (1, 2)]
    good = [state for state in states if isinstance(state, RunRecord)]
    for state in good:
        (layout.results / f"result_{state.run}.txt").symlink_to(layout.result(state.run))
    results = [ledger.published(layout.result(run), run, 1, 0, THIS.files) for run in (1, 2)]
    declared = ledger.declaration(run_set.record, layout.root, layout.root.stat().st_ino)
    attempts = [record(state) for state in good for record in RECORDS]
    ledger.append(layout.root, declared, *attempts, *results)
    layout.attempt_state(2, 1).unlink()
    for path, job_id in ((layout.loop_lock, "7"), (layout.root / ledger.LOCK, "")):
        dead = replace(THIS.holder(job_id), host="n1", boot="7")
        path.write_text(json.dumps(asdict(dead)))
        make_older(path, STALE_S + 1)
    return run_set


RECORDS = (ledger.attempt_started, ledger.attempt_ended)


def resume(run_set: RunSet, cluster: Cluster | None = None) -> list[str]:
    """Resume a complete set; return the notes."""
    notes = list[str]()
    with pytest.raises(SetError, match="s is done: 2 runs; nothing is left to run"):
        submit(run_set, cluster or Cluster(), note=notes.append)
    return notes


def test_it_is_settled(abandoned: RunSet) -> None:
    root = abandoned.layout.root
    assert judge(SetEvidence(root), {})[0] == "lost"
    assert [str(problem) for problem in verify(root).problems] == [
        "runs/2/attempt_1/state.json: cannot be used; `orchestrator resume` restores it from the ledger"
    ]
    assert resume(abandoned) == ["note: all runs are done; job 7 is recorded as complete"]
    assert judge(SetEvidence(root), {}) == ("complete", "", None)
    assert not verify(root).problems
    assert [path.name for path in (*root.glob(".*"), *root.glob("*.lock"))] == []
    assert resume(abandoned) == []


def test_a_lost_link_to_a_result_is_made_again(abandoned: RunSet) -> None:
    link = abandoned.layout.result_link(1)
    link.unlink()
    resume(abandoned)
    assert link.resolve() == abandoned.layout.result(1)


def test_a_lost_folder_of_links_is_made_again(abandoned: RunSet) -> None:
    layout = abandoned.layout
    rmtree(layout.results)
    assert resume(abandoned) == ["note: all runs are done; job 7 is recorded as complete"]
    assert [layout.result_link(run).resolve() for run in (1, 2)] == [*map(layout.result, (1, 2))]


def test_links_that_cannot_be_made_do_not_keep_it_open(abandoned: RunSet) -> None:
    layout = abandoned.layout
    rmtree(layout.results)
    layout.results.touch()
    _, note = resume(abandoned)
    assert note == f"note: {layout.results}: File exists; the set could not be settled"
    assert judge(SetEvidence(layout.root), {})[0] == "complete"
    assert read_lease(layout.loop_lock) is None


def test_a_lost_state_of_its_job_does_not_make_it_cancelled(tmp_path: Path) -> None:
    """`cancel` was asked for in the job's last second, and what the job wrote at its end is lost."""
    asked = SubmissionRecord(number=1, job_name="orch-s", requested_ms=1, state="submitted")
    cancelled = replace(asked, job_id="7", cancelled_ms=2)
    root = write_set(tmp_path, "s", nexp=2, done=2, submission=cancelled)
    assert judge(SetEvidence(root), {}) == ("complete", "", None)
    # An earlier job has one.
    earlier = replace(KILLED, state="time_limit", reason="the limit came", ended_ms=3)
    write(earlier, root / "jobs/7.json")
    write(replace(cancelled, number=2, job_id="8", requested_ms=4), root / "submissions/2.json")
    assert judge(SetEvidence(root), {}) == ("complete", "", None)
    resume(open_set(root))
    assert read(JobRecord, root / "jobs/7.json") == earlier
    assert judge(SetEvidence(root), {}) == ("complete", "", None)
    root = write_set(tmp_path, "other", nexp=2, done=1, submission=cancelled)
    assert judge(SetEvidence(root), {})[:2] == ("cancelled", "cancelled before it started")


@pytest.mark.parametrize(
    ("alive", "why"), [(True, "the scheduler shows its job"), (None, "does not answer")]
)
def test_a_job_that_may_live_keeps_it(abandoned: RunSet, alive: bool | None, why: str) -> None:
    cluster = Cluster()
    cluster.silent = alive is None
    cluster.known["7"] = Job("7", "by hand", "RUNNING")
    [note] = resume(abandoned, cluster)
    assert note.startswith("note: the set is not settled: job 7 on n1 holds it; ") and why in note
    assert read_lease(abandoned.layout.loop_lock) is not None
    assert read(JobRecord, abandoned.layout.job("7")) == KILLED
    assert not abandoned.layout.attempt_state(2, 1).exists()


def test_a_command_that_lost_it_meanwhile_writes_nothing(
    abandoned: RunSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still, and a new job took the set."""

    def late(folder: Folder) -> None:
        folder.layout.loop_lock.write_text("another job's")
        restore(folder)

    monkeypatch.setattr("orchestrator.runset.complete.restore", late)
    [note] = resume(abandoned)
    assert "is not this job's any more" in note
    assert read(JobRecord, abandoned.layout.job("7")) == KILLED
    assert abandoned.layout.loop_lock.read_text() == "another job's"


def test_the_last_job_by_submission_has_completed_it(abandoned: RunSet) -> None:
    """The clock of an earlier job's host was a day ahead; the last one was killed."""
    layout, day_ms = abandoned.layout, 86_400_000
    first = replace(KILLED, state="time_limit", reason="the limit came", started_ms=day_ms)
    first = replace(first, ended_ms=day_ms + 1)
    last = JobRecord(job_id="8", state="running", started_ms=1)
    for number, job in enumerate((first, last), 1):
        write(job, layout.job(job.job_id))
        asked = SubmissionRecord(number=number, state="submitted", job_id=job.job_id)
        write(asked, layout.submission(number))
    for group, time_s in (("8", 10), ("8.2", 20), ("88", 40)):
        layout.events(group).write_text("")
        os.utime(layout.events(group), (time_s, time_s))
    assert resume(abandoned) == ["note: all runs are done; job 8 is recorded as complete"]
    assert read(JobRecord, layout.job("7")) == first
    assert read(JobRecord, layout.job("8")) == replace(last, state="complete", ended_ms=20_000)
    assert judge(SetEvidence(layout.root), {})[0] == "complete"


@pytest.mark.parametrize("state", ["paused", "time_limit", "cancelled", "failed"])
def test_a_set_whose_last_job_was_stopped_after_its_last_run_is_complete(
    abandoned: RunSet, state: str
) -> None:
    """As by storage that failed when the job was restarted."""
    layout = abandoned.layout
    job = replace(KILLED, state=state, reason="no room", ended_ms=70_000)
    write(job, layout.job("7"))
    assert judge(SetEvidence(layout.root), {}) == ("complete", "", None)
    assert resume(abandoned) == []
    assert read(JobRecord, layout.job("7")) == job
    layout.result(2).unlink()
    layout.run_state(2).unlink()
    assert judge(SetEvidence(layout.root), {})[:2] == (state, "no room")


@pytest.mark.parametrize(
    ("done", "asked", "state"),
    [(2, "submitted", "complete"), (1, "submitted", "lost"), (2, "unknown", "unknown")],
    ids=["all done", "a failed run", "perhaps submitted"],
)
def test_a_job_submitted_before_the_set_was_complete_is_not_awaited(
    tmp_path: Path, done: int, asked: str, state: str
) -> None:
    """Slurm had given up a host that stood still, and whose loop completed the set later; the next job did not start."""
    job = replace(KILLED, state="complete", ended_ms=9)
    root = write_set(tmp_path, "s", nexp=2, done=done, job=job)
    if done == 1:
        failed = RunRecord(run=2, attempt=1, state="failed", outcome="infrastructure")
        write(failed, root / "runs/2/state.json")
    first = SubmissionRecord(number=1, state="submitted", job_id="7", job_name="orch-s")
    second = replace(first, number=2, state=asked, job_id="8" if asked == "submitted" else "")
    for submission in (first, replace(second, requested_ms=THIS.wall_ms())):
        write(submission, root / f"submissions/{submission.number}.json")
    files = SetEvidence(root)
    assert judge(files, {})[0] == state
    assert files.settled == (state == "complete")


def test_an_attempt_that_the_ledger_lacks_is_not_recorded(abandoned: RunSet) -> None:
    """Nobody's command vouches for what somebody has put into the set."""
    layout = abandoned.layout
    layout.attempt(1, 2).mkdir()
    added = RunRecord(run=1, attempt=2, state="failed", outcome="infrastructure", nodes=["n1"])
    write(added, layout.attempt_state(1, 2))
    before = (layout.root / ledger.NAME).read_bytes()
    resume(abandoned)
    assert (layout.root / ledger.NAME).read_bytes() == before
    assert any("attempt_2" in str(problem) for problem in verify(layout.root).problems)


def test_a_job_s_id_leads_nowhere_else(abandoned: RunSet) -> None:
    layout = abandoned.layout
    elsewhere = layout.root / "7.json"
    layout.job("7").write_text(json.dumps(asdict(KILLED) | {"job_id": "../7"}))
    resume(abandoned)
    assert not elsewhere.exists()


def test_a_storage_that_refuses_is_named(abandoned: RunSet) -> None:
    path = abandoned.layout.attempt_state(2, 1)
    (path / "a").mkdir(parents=True)
    [note] = resume(abandoned)
    assert "runs/2/attempt_1" in note and note.endswith("; the set could not be settled")


def test_a_set_without_a_ledger_gets_none(tmp_path: Path) -> None:
    run_set = open_set(write_set(tmp_path, "s", nexp=2, done=2, job=KILLED))
    resume(run_set)
    assert not (run_set.layout.root / ledger.NAME).exists()
    assert read(JobRecord, run_set.layout.job("7")) == KILLED
