"""Submission happens once, whatever the scheduler answers and whoever else submits."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from controller_parts import Cluster, Hasty, write_set
from until import LIMIT_S, make_older, now_ms

from orchestrator.errors import SchedulerBusy, SchedulerError, SchedulerUnknown, SetError
from orchestrator.evidence.sets import RunSet, SetEvidence, SubmissionRecord, open_set
from orchestrator.evidence.state import appears_within_s, judge
from orchestrator.onnode.kernel.files import Files, PathLike
from orchestrator.onnode.kernel.records import JobRecord, read, write
from orchestrator.onnode.kernel.world import THIS, World
from orchestrator.onnode.policy.lease import STALE_S
from orchestrator.onnode.set.lease import read as read_lease
from orchestrator.runset.cancel import cancel
from orchestrator.runset.submit import (
    ENDING_AGAIN_S,
    WITHDRAWN,
    controller_lock,
    job_environment,
    submissions,
    submit,
)
from orchestrator.scheduler.job import Job, JobRequest
from orchestrator.scheduler.kinds import APPEARS_WITHIN_S


@pytest.fixture
def run_set(tmp_path: Path) -> RunSet:
    return open_set(write_set(tmp_path, "s-w-20261121-101500-0001"))


def old(run_set: RunSet) -> None:
    """Make the last submission older than the grace period."""
    last = submissions(run_set.layout)[-1]
    write(
        replace(last, requested_ms=last.requested_ms - APPEARS_WITHIN_S * 1000 - 1),
        run_set.layout.submission(last.number),
    )


def test_the_intent_is_on_disk_before_the_scheduler_is_asked(run_set: RunSet) -> None:
    seen = []

    class Looking(Cluster):
        def submit(self, request: JobRequest) -> str:
            seen.append(read(SubmissionRecord, run_set.layout.submission(1)))
            return super().submit(request)

    record = submit(run_set, Looking())
    assert (seen[0].state, seen[0].job_name) == ("intended", f"orch-{run_set.name}")
    assert (record.state, record.job_id) == ("submitted", "101")
    assert submissions(run_set.layout) == [record]
    assert not run_set.layout.lock.exists()


def test_a_lost_answer_of_an_accepted_job_is_found_by_name(run_set: RunSet) -> None:
    record = submit(run_set, Cluster(answer=SchedulerUnknown), world=Hasty())
    assert (record.state, record.job_id) == ("submitted", "101")


def test_a_refusal_that_was_none_is_found_by_name(run_set: RunSet) -> None:
    assert submit(run_set, Cluster(answer=SchedulerError), world=Hasty()).job_id == "101"


def test_a_job_that_started_and_ended_meanwhile_is_found_by_its_own_file(run_set: RunSet) -> None:
    class Quick(Cluster):
        def submit(self, request: JobRequest) -> str:
            job = JobRecord(job_id="7", state="failed", started_ms=now_ms() + 5)
            write(job, run_set.layout.job("7"))
            raise SchedulerUnknown("no answer")

    assert submit(run_set, Quick(), world=Hasty()).job_id == "7"


def test_no_answer_and_no_job_is_unknown_and_nothing_is_submitted_again(run_set: RunSet) -> None:
    cluster = Cluster(accepts=False, answer=SchedulerUnknown)
    with pytest.raises(SchedulerUnknown, match="unknown whether set .* has a job") as caught:
        submit(run_set, cluster, world=Hasty())
    assert "orchestrator resume" in caught.value.hint
    assert [record.state for record in submissions(run_set.layout)] == ["unknown"]
    with pytest.raises(SchedulerUnknown, match="submission 1 got no answer"):
        submit(run_set, cluster, world=Hasty())
    assert len(cluster.submitted) == 1


def test_after_the_grace_period_an_answering_scheduler_is_believed(run_set: RunSet) -> None:
    cluster = Cluster(accepts=False, answer=SchedulerUnknown)
    with pytest.raises(SchedulerUnknown):
        submit(run_set, cluster, world=Hasty())
    old(run_set)
    cluster.silent = True
    with pytest.raises(SchedulerUnknown):
        submit(run_set, cluster, world=Hasty())
    assert len(cluster.submitted) == 1
    cluster.silent, cluster.accepts, cluster.answer = False, True, None
    assert submit(run_set, cluster).number == 2
    assert [record.state for record in submissions(run_set.layout)] == ["refused", "submitted"]


def test_a_job_that_appears_late_is_adopted(run_set: RunSet) -> None:
    cluster = Cluster(accepts=False, answer=SchedulerUnknown)
    with pytest.raises(SchedulerUnknown):
        submit(run_set, cluster, world=Hasty())
    cluster.known["55"] = Job("55", f"orch-{run_set.name}", "RUNNING")
    with pytest.raises(SetError, match=r"job 55 \(RUNNING\) .* is alive"):
        submit(run_set, cluster)
    assert [(record.state, record.job_id) for record in submissions(run_set.layout)] == [
        ("submitted", "55")
    ]


@pytest.mark.parametrize("looks", [1, 3, len(ENDING_AGAIN_S), len(ENDING_AGAIN_S) + 1])
def test_a_job_that_has_closed_the_set_is_waited_for(run_set: RunSet, looks: int) -> None:
    """`submit --wait` ends with the job's last record; `resume` may be the next word of a script."""

    class Ending(Cluster):
        def jobs(self, **wanted: Iterable[str]) -> dict[str, Job]:
            found = super().jobs(**wanted)
            self.looked += 1
            if self.looked == looks:
                self.known.clear()
            return found

        looked = 0

    cluster, world = Ending(), Hasty()
    cluster.known["7"] = Job("7", f"orch-{run_set.name}", "RUNNING")
    write(JobRecord(job_id="7", state="complete"), run_set.layout.job("7"))
    if looks <= len(ENDING_AGAIN_S):
        assert submit(run_set, cluster, world=world).state == "submitted"
        assert world.pauses == list(ENDING_AGAIN_S[:looks])
    else:
        with pytest.raises(SetError, match=r"job 7 \(RUNNING\) .* is still ending"):
            submit(run_set, cluster, world=world)
        assert cluster.submitted == [] and world.pauses == list(ENDING_AGAIN_S)


def test_a_job_that_works_is_not_waited_for(run_set: RunSet) -> None:
    cluster, world = Cluster(), Hasty()
    cluster.known["7"] = Job("7", f"orch-{run_set.name}", "RUNNING")
    for record in (JobRecord(job_id="7", state="running"), JobRecord(job_id="6", state="complete")):
        write(record, run_set.layout.job(record.job_id))
        with pytest.raises(SetError, match="a set has one job at a time"):
            submit(run_set, cluster, world=world)
    assert world.pauses == []


def test_a_controller_that_died_between_intent_and_answer(run_set: RunSet) -> None:
    name = f"orch-{run_set.name}"
    write(
        SubmissionRecord(number=1, job_name=name, state="intended", requested_ms=now_ms()),
        run_set.layout.submission(1),
    )
    cluster = Cluster()
    cluster.known["9"] = Job("9", name, "PENDING")
    with pytest.raises(SetError, match="job 9"):
        submit(run_set, cluster)
    assert cluster.submitted == []


def test_what_a_killed_controller_was_writing_is_removed(run_set: RunSet) -> None:
    """But not fresh ones, whose writer may be alive: `cancel` takes no lock."""
    old, fresh = (run_set.layout.submissions / f".1.json.tmp.{pid}" for pid in (4711, 4712))
    archive = run_set.layout.program / ".8f.tar.gz.tmp.4711"
    archive.parent.mkdir(exist_ok=True)
    for path in (old, fresh, archive):
        path.write_text("{")
    for path in (old, archive):
        os.utime(path, (1, 1))
    submit(run_set, Cluster())
    assert {path.name for path in run_set.layout.submissions.iterdir()} == {"1.json", fresh.name}
    assert not archive.exists()


def test_what_killed_controllers_left_is_removed_from_a_complete_set(tmp_path: Path) -> None:
    """No job will come any more that does it. A waiting loop's file is the loops' concern."""
    run_set = open_set(write_set(tmp_path, "s", nexp=2, done=2))
    root = run_set.layout.root
    old = ("..controller.lock.new.8f", "..controller.lock.of-8f", ".loop.lock.new.8f")
    for name in (*old, "..controller.lock.new.9a"):
        (root / name).write_text("{")
    for name in old:
        os.utime(root / name, (1, 1))
    with pytest.raises(SetError, match="s is done"):
        submit(run_set, Cluster())
    left = sorted(path.name for path in root.glob(".*lock*"))
    assert left == ["..controller.lock.new.9a", ".loop.lock.new.8f"]


def test_refused_is_on_record(run_set: RunSet) -> None:
    with pytest.raises(SchedulerError, match="odd"):
        submit(run_set, Cluster(accepts=False, answer=SchedulerError), world=Hasty())
    [record] = submissions(run_set.layout)
    assert (record.state, record.error) == ("refused", "an odd answer")


def test_two_controllers_at_once_make_one_job(run_set: RunSet) -> None:
    inside, leave = threading.Event(), threading.Event()

    class Slow(Cluster):
        def submit(self, request: JobRequest) -> str:
            inside.set()
            assert leave.wait(LIMIT_S)
            return super().submit(request)

    cluster = Slow()
    first = threading.Thread(target=submit, args=(run_set, cluster))
    first.start()
    try:
        assert inside.wait(LIMIT_S)
        with pytest.raises(
            SetError, match=f"another controller works on .*: process {os.getpid()} on"
        ):
            submit(run_set, cluster)
    finally:
        leave.set()
        first.join()
    with pytest.raises(SetError, match="is alive"):
        submit(run_set, cluster)
    assert len(cluster.submitted) == 1


def test_a_lock_of_a_dead_process_is_taken_over(run_set: RunSet) -> None:
    stale = replace(THIS.holder(), start="1")  # this pid, but another start time
    run_set.layout.lock.write_text(json.dumps(asdict(stale)))
    assert submit(run_set, Cluster()).state == "submitted"
    assert [path.name for path in run_set.layout.root.glob(".controller*")] == []


def test_a_lock_of_another_host_is_believed_until_it_is_old(run_set: RunSet) -> None:
    run_set.layout.lock.write_text(
        json.dumps(asdict(replace(THIS.holder(), host="login7", boot="7", pid=4)))
    )
    with pytest.raises(SetError, match="process 4 on login7"):
        submit(run_set, Cluster())
    make_older(run_set.layout.lock, STALE_S + 1)
    assert submit(run_set, Cluster()).state == "submitted"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"host": "a", "pid": "1", "start": 0, "time_ms": "now", "token": ""}',
        "[]",
        "[" * 100_000,
    ],
    ids=["unfinished", "other types", "a list", "too deep"],
)
def test_a_damaged_lock_is_believed_until_it_is_old(run_set: RunSet, text: str) -> None:
    run_set.layout.lock.write_text(text)
    with pytest.raises(SetError, match="somebody on an unknown host"):
        submit(run_set, Cluster())
    os.utime(run_set.layout.lock, (1, 1))
    assert submit(run_set, Cluster()).state == "submitted"


def test_who_lost_the_lock_does_not_submit(run_set: RunSet) -> None:
    with controller_lock(run_set.layout.lock) as lock:
        thief = replace(THIS.holder(), host="elsewhere")
        run_set.layout.lock.write_text(json.dumps(asdict(thief)))
        with pytest.raises(SetError, match="elsewhere"):
            lock.confirm()
    result = read_lease(run_set.layout.lock)
    assert result is not None and result[0] == thief  # not ours to remove


class Busy(Cluster):
    """A scheduler that takes nothing now; `meanwhile` happens while it is asked."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__(accepts=False, answer=SchedulerBusy)
        self.meanwhile = meanwhile

    def submit(self, request: JobRequest) -> str:
        self.meanwhile()
        return super().submit(request)


def test_who_lost_the_lock_does_not_ask_a_busy_scheduler_again(run_set: RunSet) -> None:
    other = json.dumps(asdict(replace(THIS.holder(), host="elsewhere")))
    busy = Busy(lambda: run_set.layout.lock.write_text(other))
    with pytest.raises(SetError, match="process .* on elsewhere"):
        submit(run_set, busy, world=Hasty())
    assert len(busy.submitted) == 1
    [record] = submissions(run_set.layout)
    assert (record.state, record.error) == ("refused", WITHDRAWN)


def test_a_job_may_appear_as_long_after_the_last_request_as_after_the_first(
    run_set: RunSet,
) -> None:
    """A killed controller's sbatch lives on."""

    class Killed(Exception):
        pass

    def meanwhile() -> None:
        asked = submissions(run_set.layout)[-1]
        assert appears_within_s(asked) > APPEARS_WITHIN_S - 60
        old(run_set)
        if len(busy.submitted) == 2:
            raise Killed

    busy = Busy(meanwhile)
    with pytest.raises(Killed):
        submit(run_set, busy, world=Hasty())
    assert len(busy.submitted) == 2


def test_cancel_waits_for_a_live_controller(run_set: RunSet) -> None:
    """It may ask a busy scheduler again, however long ago it began."""
    cluster = Cluster()
    asked = SubmissionRecord(number=1, job_name=run_set.record.job_name, state="intended")
    write(asked, run_set.layout.submission(1))
    with controller_lock(run_set.layout.lock):
        with pytest.raises(SchedulerUnknown, match="is being submitted by process"):
            cancel(run_set, cluster, 0)
        state, reason, _ = judge(SetEvidence(run_set.layout.root), {})
        assert state == "unknown" and "is submitting it" in reason
    assert cancel(run_set, cluster, 0) == {}


def test_all_done_is_refused(tmp_path: Path) -> None:
    run_set = open_set(write_set(tmp_path, "s", nexp=2, done=2))
    with pytest.raises(SetError, match="s is done: 2 runs"):
        submit(run_set, Cluster())


def test_a_local_job_of_another_host_is_not_doubled(tmp_path: Path) -> None:
    job = JobRecord(job_id="local-1-2", state="running", host="elsewhere", started_ms=1)
    run_set = open_set(write_set(tmp_path, "s", scheduler="local", job=job))
    with pytest.raises(SetError, match="runs on elsewhere"):
        submit(run_set, Cluster())
    assert socket.gethostname() != "elsewhere"


def test_the_job_environment_is_small(run_set: RunSet) -> None:
    caller = {
        "PATH": "/bin",
        "HOME": "/h",
        "SLURM_JOB_ID": "4",
        "HF_TOKEN": "t",
        "LD_PRELOAD": "x",
        "SEED": "1",
    }
    named = replace(run_set, record=replace(run_set.record, pass_env=["HF_TOKEN", "DATADIR"]))
    assert job_environment(caller, named) == {
        "PATH": "/bin",
        "HOME": "/h",
        "HF_TOKEN": "t",
        "NEXP": "3",
        "ORCH_SET_DIR": str(run_set.layout.root),
    }


class FullSubmissions(Files):
    """Storage without room for a submission."""

    def create(self, path: PathLike, content: bytes, *, sync: bool = False) -> None:
        if Path(path).parent.name == "submissions":
            raise OSError(28, "No space left on device")
        super().create(path, content, sync=sync)


def test_a_full_disk_before_the_submission_submits_nothing(run_set: RunSet) -> None:
    cluster, world = Cluster(), World()
    world.files = FullSubmissions()
    with pytest.raises(SetError, match="1.json cannot be written: No space left") as caught:
        submit(run_set, cluster, world=world)
    assert "make room" in caught.value.hint and caught.value.fix is not None
    assert caught.value.fix.command.startswith(f"df -h {run_set.layout.root.parent}; du ")
    assert cluster.submitted == []


class Unlisted(Files):
    """Storage that does not list the submissions."""

    def names(self, folder: PathLike) -> list[str]:
        if str(folder).endswith("submissions"):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(folder))
        return super().names(folder)


def test_a_submission_whose_number_cannot_be_found_takes_the_place_of_none(run_set: RunSet) -> None:
    cluster = Cluster()
    submit(run_set, cluster)
    cluster.known.clear()
    before = run_set.layout.submission(1).read_bytes()
    world = World()
    world.files = Unlisted()
    with pytest.raises(SetError, match="Stale file handle; nothing was submitted"):
        submit(run_set, cluster, world=world)
    assert (run_set.layout.submission(1).read_bytes(), len(cluster.submitted)) == (before, 1)


class Overtaken(Files):
    """Storage on which a submission takes so long that another controller acts before it is there, or after."""

    def __init__(self, act: Callable[[], object], *, after: bool) -> None:
        self._act, self._after = act, after

    def link(self, source: PathLike, target: PathLike) -> None:
        is_submission = Path(target).parent.name == "submissions"
        if is_submission and not self._after:
            self._act()
        super().link(source, target)
        if is_submission and self._after:
            self._act()


def taken_over(run_set: RunSet) -> None:
    thief = replace(THIS.holder(), host="elsewhere")
    run_set.layout.lock.write_text(json.dumps(asdict(thief)))


def test_a_submission_of_a_lost_set_is_withdrawn(run_set: RunSet) -> None:
    cluster, world = Cluster(), World()
    world.files = Overtaken(lambda: taken_over(run_set), after=True)
    with pytest.raises(SetError, match="elsewhere; it took over meanwhile"):
        submit(run_set, cluster, world=world)
    [record] = submissions(run_set.layout)
    assert (record.state, record.error, cluster.submitted) == ("refused", WITHDRAWN, [])


def test_a_submission_never_takes_the_place_of_another(run_set: RunSet) -> None:
    cluster, world = Cluster(), World()
    other = SubmissionRecord(number=1, state="submitted", job_id="7")
    world.files = Overtaken(lambda: write(other, run_set.layout.submission(1)), after=False)
    with pytest.raises(SetError, match="it has just written .*/submissions/1.json") as caught:
        submit(run_set, cluster, world=world)
    assert caught.value.hint == f"orchestrator status {run_set.layout.root}"
    assert (submissions(run_set.layout), cluster.submitted) == ([other], [])
    assert [path.name for path in run_set.layout.submissions.iterdir()] == ["1.json"]


def test_a_controller_that_lost_the_set_before_its_submission_writes_none(run_set: RunSet) -> None:
    class Late(Cluster):
        def jobs(self, *arguments: Any, **named: Any) -> dict[str, Job]:
            taken_over(run_set)
            return super().jobs(*arguments, **named)

    cluster = Late()
    with pytest.raises(SetError, match="elsewhere; it took over meanwhile"):
        submit(run_set, cluster)
    assert (submissions(run_set.layout), cluster.submitted) == ([], [])


def test_a_submission_without_hard_links(run_set: RunSet) -> None:
    class NoLinks(Files):
        def link(self, source: PathLike, target: PathLike) -> None:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(target))

    world = World()
    world.files = NoLinks()
    record = submit(run_set, Cluster(), world=world)
    assert submissions(run_set.layout) == [record]
