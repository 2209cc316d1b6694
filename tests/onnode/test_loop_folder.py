"""The folder of a set on the batch host: one job at a time, states after any damage, results that stay."""

from __future__ import annotations

import errno
import functools
import itertools
import json
import os
import shutil
import stat
import threading
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from policy_parts import settings

from orchestrator.onnode.kernel import records
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.program import Program
from orchestrator.onnode.kernel.records import JobRecord, NodeRunRecord, RunRecord
from orchestrator.onnode.kernel.system import process_start
from orchestrator.onnode.kernel.world import THIS
from orchestrator.onnode.loop.allocation import LocalAllocation
from orchestrator.onnode.loop.host import BatchHost
from orchestrator.onnode.set import ledger
from orchestrator.onnode.set.folder import Folder, FolderError, sweep
from orchestrator.onnode.set.opening import open_folder
from orchestrator.onnode.set.settle import settle

DAMAGE = {
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "no object": lambda path: path.write_text("[1]"),
    "another run's": lambda path: path.write_text(
        json.dumps(json.loads(path.read_text()) | {"run": 9, "attempt": 9})
    ),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}
LIVE = f"local-{os.getppid()}-{process_start(os.getppid())}"


def mllog(status: str = "") -> bytes:
    start = b':::MLLOG {"key": "run_start", "time_ms": 1, "metadata": {}}\n'
    stop = (
        b':::MLLOG {"key": "run_stop", "time_ms": 2, "metadata": {"status": "%s"}}\n'
        % status.encode()
    )
    return start + (stop if status else b"")


def job(root: Path, name: str = "", seed: str = "", nexp: int = 2) -> Folder:
    """A job that works on the set in `root`; `seed`: ROOT_SEED of its environment."""
    bundle = root.parent / "bundle"
    bundle.mkdir(exist_ok=True)
    program = Program({}, folder=str(bundle))
    root.mkdir(exist_ok=True)
    world = BatchHost()
    given = {"ORCH_SET_DIR": str(root), "ORCH_JOB_ID": name, "ROOT_SEED": seed}
    world.environment = {name: value for name, value in given.items() if value}
    scheduler = LocalAllocation(world.environment, 1, world)
    mine = open_folder(
        program, settings(nexp=nexp, logdir=str(root.parent)), scheduler, world.environment, world
    )
    world.run(mine.taking(scheduler))
    return mine


def attempt(
    folder: Folder, run: int, number: int, outcome: str, status: str = "", rank: int = 0
) -> RunRecord:
    """An attempt as the loop makes one, with a log of each of its two nodes."""
    state = RunRecord(
        run=run,
        attempt=number,
        state="running",
        seed=number,
        job_id=folder.job_id,
        nodes=["n0", "n1"],
    )
    folder.begin(state)
    for one in (0, 1):
        text = mllog(status if one == rank else "") + b"attempt %d\n" % number
        folder.layout.node_log(run, number, one).write_bytes(text)
        records.write(
            NodeRunRecord(f"n{one}", one, 0, 10, 20), folder.layout.node_state(run, number, one)
        )
    folder.layout.cache_log(run, number).write_bytes(b"cleared\n")
    if outcome:
        word = "success" if outcome == "success" else "failed"
        state = replace(state, state=word, outcome=outcome, end_ms=5)
        folder.close(state, rank if outcome in ("success", "not_converged") else None)
    return state


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    mine = job(tmp_path / "set")
    settle(mine)
    return mine


def successor(folder: Folder) -> Folder:
    """The next job of the set, after this one has let go."""
    folder.release()
    following = job(folder.layout.root)
    settle(following)
    return following


# ---- states ----


@pytest.mark.parametrize(("outcome", "rank"), [("success", 1), ("not_converged", 0)])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("which", ["run", "attempt", "both"])
def test_a_result_outlives_every_damage_of_its_states(
    folder: Folder, outcome: str, rank: int, damage: object, which: str
) -> None:
    status = "success" if outcome == "success" else "aborted"
    attempt(folder, 1, 1, "infrastructure")
    attempt(folder, 1, 2, outcome, status, rank)
    result = folder.layout.result(1).read_bytes()
    assert result == b"cleared\n" + mllog(status) + b"attempt 2\n"
    for path in (folder.layout.run_state(1), folder.layout.attempt_state(1, 2)):
        if which == "both" or (which == "run") == (path == folder.layout.run_state(1)):
            damage(path)  # type: ignore[operator]
    if folder.layout.run_state(1).is_dir() or folder.layout.attempt_state(1, 2).is_dir():
        with pytest.raises(OSError, match="Is a directory"):
            successor(folder)
        assert folder.layout.result(1).read_bytes() == result
        return
    after = successor(folder)
    assert after.missing() == [2]
    state = after.run_state(1)
    assert state is not None and (state.outcome, state.attempt, state.seed) == (
        outcome,
        2,
        state.seed,
    )
    assert records.read(RunRecord, folder.layout.attempt_state(1, 2)) == state
    assert (
        folder.layout.result(1).read_bytes() == folder.layout.result_link(1).read_bytes() == result
    )
    # And for good: nothing is written once more.
    before = {path: path.stat().st_mtime_ns for path in folder.layout.runs.rglob("*.json")}
    successor(after)
    assert {path: path.stat().st_mtime_ns for path in folder.layout.runs.rglob("*.json")} == before


@pytest.mark.parametrize("damage", [DAMAGE["gone"], DAMAGE["half"]])
def test_a_damaged_state_of_an_attempt_that_died_costs_no_other(
    folder: Folder, damage: object
) -> None:
    attempt(folder, 1, 1, "infrastructure")
    attempt(folder, 1, 2, "infrastructure", "aborted")
    damage(folder.layout.attempt_state(1, 1))  # type: ignore[operator]
    after = successor(folder)
    assert after.missing() == [1, 2] and after.last_attempt(1) == 2
    left = records.read(RunRecord, folder.layout.attempt_state(1, 1))
    assert isinstance(left, RunRecord)
    assert (left.state, left.outcome, left.nodes, left.exit_codes) == (
        "failed",
        "infrastructure",
        ["n0", "n1"],
        {},
    )
    assert left.seed == 1
    assert not folder.layout.result(1).exists()


@pytest.mark.parametrize("status", ["success", ""])
def test_an_attempt_that_a_dead_job_left_is_on_record_before_its_end_is_seen(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """The storage fails at each step of the next job in turn; that job gives up there."""
    attempt(folder, 1, 1, "", status)
    folder.release()
    whole, real = folder.layout.root, {name: getattr(os, name) for name in ("replace", "link")}
    for step in itertools.count(1):
        calls = itertools.count(1)

        def fail(name: str, *paths: Path, at: int = step, calls: Any = calls) -> None:
            if next(calls) == at:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(paths[-1]))
            real[name](*paths)

        layout = Layout(whole.with_name(f"copy_{step}"))
        shutil.copytree(whole, layout.root, symlinks=True)
        mine = job(layout.root)
        with monkeypatch.context() as patch:
            for name in real:
                patch.setattr(os, name, functools.partial(fail, name))
            with suppress(OSError):
                settle(mine)
        mine.release()
        known = {ledger.subject(one) for one in ledger.read(layout.root)[0]}
        if is_final(layout.attempt_state(1, 1)):
            assert ("end", 1, 1) in known, f"step {step}"
        if layout.result(1).exists():
            assert {("end", 1, 1), ("result", 1, 0)} <= known, f"step {step}"
        if next(calls) <= step:  # nothing failed
            break
    assert step > 3 and layout.result(1).exists() == (status == "success")


def test_an_attempt_without_a_file_is_not_begun_twice(folder: Folder) -> None:
    """Its state is lost before a node has logged: it is on record all the same."""
    folder.begin(RunRecord(run=1, attempt=1, state="running", seed=1, nodes=["n0", "n1"]))
    folder.layout.attempt_state(1, 1).unlink()
    assert successor(folder).last_attempt(1) == 1
    left = records.read(RunRecord, folder.layout.attempt_state(1, 1))
    assert isinstance(left, RunRecord) and (left.outcome, left.nodes) == (
        "interrupted",
        ["n0", "n1"],
    )


def test_an_attempt_whose_folder_is_lost_is_not_begun_twice(folder: Folder) -> None:
    """A server that crashes can lose a folder whose attempt is on record."""
    folder.begin(RunRecord(run=1, attempt=1, state="running", seed=1, nodes=["n0", "n1"]))
    shutil.rmtree(folder.layout.attempt(1, 1))
    following = successor(folder)
    assert following.last_attempt(1) == 1
    attempt(following, 1, 2, "interrupted")
    shutil.rmtree(folder.layout.attempt(1, 2))
    left = successor(following).run_state(1)
    assert left is not None and (left.attempt, left.outcome, left.end_ms) == (2, "interrupted", 5)


def test_a_ledger_with_impossible_numbers_adds_no_attempt(folder: Folder) -> None:
    for number in ([], "1", True, -1, 10**9):
        folder.record_that(("attempt", {"run": 1, "attempt": number}), ("end", {"run": number}))
    assert successor(folder).last_attempt(1) == 0


def test_an_attempt_whose_record_came_with_an_error_stays(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later job must not begin another with its number, perhaps on other nodes."""
    state = RunRecord(run=1, attempt=1, state="running", seed=1, nodes=["n0", "n1"])
    append = ledger.append

    def loses_its_reply(*new: Any, **options: Any) -> str:
        append(*new, **options)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patches:
        patches.setattr(ledger, "append", loses_its_reply)
        with pytest.raises(OSError, match="Input/output"):
            folder.begin(state)
    with monkeypatch.context() as patches:
        patches.setattr(records, "write", is_full)
        with pytest.raises(OSError, match="No space"):
            folder.begin(state)
    assert folder.last_attempt(1) == 1, "its job can be killed before the next try"
    folder.begin(state)
    assert [entry.kind for entry in ledger.read(folder.layout.root)[0]].count("attempt") == 1
    assert successor(folder).last_attempt(1) == 1


@pytest.mark.parametrize("left", ["", ".state.json.tmp.1.ab", "state.json"])
def test_an_attempt_whose_folder_an_earlier_try_has_left_begins(folder: Folder, left: str) -> None:
    state = RunRecord(run=1, attempt=1, state="running", seed=1, nodes=["n0", "n1"])
    place = folder.layout.attempt(1, 1)
    place.mkdir(parents=True)
    if left:
        records.write(state, place / left)
    folder.begin(state)
    with pytest.raises(FileExistsError):  # another job's
        folder.begin(replace(state, job_id="other"))
    (place / "node_0.log").touch()
    with pytest.raises(FileExistsError):
        folder.begin(state)


def test_a_record_whose_reply_is_lost_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server answers a second request for a rename with ENOENT."""
    rename = os.replace

    def loses_its_reply(source: str, target: Path) -> None:
        rename(source, target)
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", source)

    monkeypatch.setattr(os, "replace", loses_its_reply)
    records.replace(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    monkeypatch.setattr(os, "replace", lambda source, target: os.stat(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError):
        records.replace(tmp_path / "a", b"newer")
    assert os.listdir(tmp_path) == ["a"]


def is_full(*record: Any, **options: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_an_attempt_that_finds_no_room_leaves_no_folder(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "write", is_full)
    with pytest.raises(OSError, match="No space"):
        folder.begin(RunRecord(run=1, attempt=1, state="running"))
    assert folder.last_attempt(1) == 0


@pytest.mark.parametrize("number", [errno.EEXIST, errno.EIO])
def test_a_result_whose_link_s_reply_is_lost_is_published(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    link = os.link

    def fails(source: str, target: str) -> None:
        link(source, target)
        raise OSError(number, os.strerror(number), target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", fails)
        attempt(folder, 1, 1, "success", "success")
    assert folder.layout.result(1).read_bytes().endswith(b"attempt 1\n")
    assert successor(folder).missing() == [2]


def test_a_result_that_was_removed_is_published_again(folder: Folder) -> None:
    attempt(folder, 1, 1, "success", "success")
    result = folder.layout.result(1).read_bytes()
    folder.layout.result(1).unlink()
    assert successor(folder).missing() == [2]
    assert folder.layout.result(1).read_bytes() == result
    kinds = [entry.kind for entry in ledger.read(folder.layout.root)[0]]
    assert kinds.count("result") == 1, "it is on record already; a second record counts as inserted"


def test_a_run_whose_result_and_logs_are_lost_is_run_again(folder: Folder) -> None:
    attempt(folder, 1, 1, "success", "success")
    folder.layout.result(1).unlink()
    for rank in (0, 1):
        folder.layout.node_log(1, 1, rank).unlink()
    after = successor(folder)
    assert after.missing() == [1, 2]
    attempt(after, 1, 2, "success", "success")
    assert successor(after).missing() == [2]
    state = after.run_state(1)
    assert state is not None and state.attempt == 2


def test_an_attempt_that_had_not_begun_is_none(folder: Folder) -> None:
    folder.layout.attempt(1, 1).mkdir()
    (folder.layout.attempt(1, 1) / ".state.json.tmp.1").write_text("{")
    assert successor(folder).last_attempt(1) == 0


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EIO])
def test_an_attempt_that_had_not_begun_is_none_if_a_reply_is_lost(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Its folder is removed: an attempt on record would have none."""
    folder.layout.attempt(1, 1).mkdir()
    rmdir = os.rmdir

    def loses_its_reply(path: Path) -> None:
        rmdir(path)
        raise OSError(number, os.strerror(number), path)

    with monkeypatch.context() as patches:
        patches.setattr(os, "rmdir", loses_its_reply)
        with suppress(OSError):
            settle(folder)
    assert successor(folder).last_attempt(1) == 0
    assert "attempt" not in [entry.kind for entry in ledger.read(folder.layout.root)[0]]


def test_a_published_result_is_never_replaced(folder: Folder) -> None:
    attempt(folder, 1, 1, "success", "success")
    with pytest.raises(FolderError, match="a published result is never replaced"):
        attempt(folder, 1, 2, "success", "success")
    assert folder.layout.result(1).read_bytes().endswith(b"attempt 1\n")
    assert list(folder.layout.runs.rglob(".*")) == []


def test_a_log_that_is_gone_or_no_file_is_no_result(folder: Folder) -> None:
    state = attempt(folder, 1, 1, "", "success")
    folder.layout.node_log(1, 1, 0).unlink()
    with pytest.raises(FileNotFoundError):
        folder.close(replace(state, state="success", outcome="success"), 0)
    os.mkfifo(folder.layout.node_log(1, 1, 0))
    with pytest.raises(OSError, match="no regular file"):
        folder.close(replace(state, state="success", outcome="success"), 0)
    assert not folder.layout.result(1).exists() and list(folder.layout.runs.rglob(".*")) == []


def test_jobs_that_never_closed_are_closed(folder: Folder) -> None:
    path = folder.layout.job("1")
    records.write(JobRecord(job_id="1", state="running"), path)
    records.write(JobRecord(job_id="2", state="complete", ended_ms=7), folder.layout.job("2"))
    folder.layout.job("3").write_text("{")
    successor(folder)
    closed = records.read(JobRecord, path)
    assert isinstance(closed, JobRecord)
    assert (closed.state, closed.reason, closed.ended_ms > 0) == (
        "failed",
        "the job ended without a word",
        True,
    )
    assert records.read(JobRecord, folder.layout.job("2")) == JobRecord(
        job_id="2", state="complete", ended_ms=7
    )


@pytest.mark.parametrize(("updated_ms", "ended_ms"), [(1, 20_000), (30_000, 30_000)])
def test_a_dead_job_ended_with_the_last_change_of_its_files(
    folder: Folder, updated_ms: int, ended_ms: int
) -> None:
    """The next job may come days later. Other jobs' files do not count."""
    record = JobRecord(job_id="1", state="running", started_ms=1, updated_ms=updated_ms)
    records.write(record, folder.layout.job("1"))
    for name, time_s in (("1", 10), ("1.2", 20), ("11", 40)):
        events = folder.layout.events(name)
        events.write_text("")
        os.utime(events, (time_s, time_s))
    successor(folder)
    closed = records.read(JobRecord, folder.layout.job("1"))
    assert isinstance(closed, JobRecord) and closed.ended_ms == ended_ms


def unfinished(folder: Folder) -> list[Path]:
    """Files as writers leave them that are killed before they rename."""
    attempt(folder, 1, 1, "", "")
    for place in ("nodes/n1", "preflight", "runs/1/attempt_1/hang"):
        (folder.layout.root / place).mkdir(parents=True, exist_ok=True)
    names = ("nodes/n1/.network.tsv.tmp.9.ab", "jobs/.7.json.tmp.9.ab", "preflight/.7.tsv.tmp.9.ab")
    names += (
        "runs/1/.state.json.tmp.9.ab",
        "runs/1/attempt_1/.node_0.json.tmp.9.ab",
        ".environment.sh.tmp.9.ab",
    )
    names += ("runs/1/attempt_1/hang/.n1.txt.tmp.9.ab",)
    for name in names:
        (folder.layout.root / name).write_text("half")
    (folder.layout.root / "nodes/n1/.hidden").write_text("somebody's")
    (folder.layout.root / ".bundle.tmp.9/lib").mkdir(parents=True)
    return [folder.layout.root / name for name in (*names, ".bundle.tmp.9")]


@pytest.mark.parametrize("ended", ["by itself", "killed"])
def test_what_killed_writers_left_unfinished_is_removed(folder: Folder, ended: str) -> None:
    """By the job that they were of, which may be the set's last; else by the next one."""
    left = unfinished(folder)
    if ended == "by itself":
        folder.release()
    else:
        folder.layout.loop_lock.unlink()
        settle(job(folder.layout.root))
    assert [path for path in left if path.exists()] == []
    assert (folder.layout.root / "nodes/n1/.hidden").exists()


@pytest.mark.parametrize("time_s", [1, 4_000_000_000], ids=["old", "of a clock that was set back"])
def test_what_killed_takers_of_a_lease_left_is_removed_once_nobody_can_be_taking_it(
    folder: Folder, time_s: int
) -> None:
    names = ("..ledger.lock.new.8f", ".loop.lock.new.8f", ".loop.lock.of-8f", ".clock.8f")
    for name in (*names, ".hidden"):
        (folder.layout.root / name).write_text("half")
    sweep(folder.layout, folder.world)
    assert all((folder.layout.root / name).exists() for name in names)
    for name in (*names, ".hidden"):
        os.utime(folder.layout.root / name, (time_s, time_s))
    folder.release()
    assert [path.name for path in folder.layout.root.glob(".*")] == [".hidden"]


def test_a_lease_that_could_not_be_removed_is_removed_with_the_set_s_own(folder: Folder) -> None:
    left, another = folder.layout.root / ".ledger.lock", folder.layout.root / ".other.lock"
    mine = folder.world.holder()
    for path, token in ((left, mine.token), (another, "another")):
        path.write_text(json.dumps(asdict(replace(mine, token=token))))
        folder.world.abandoned.add((path, mine.token))
    folder.release()
    assert (left.exists(), another.exists()) == (False, True)


def test_a_job_that_lost_the_set_removes_nothing(folder: Folder) -> None:
    left = unfinished(folder)
    folder.layout.loop_lock.write_text("another job's")
    folder.release()
    assert all(path.exists() for path in left)


# ---- one job at a time ----


def locked(folder: Folder, **changes: object) -> str:
    """Make the set another job's, which lives elsewhere; the content of its lock."""
    folder.release()
    elsewhere: dict[str, Any] = {"boot": "another boot", "host": "elsewhere", **changes}
    other = replace(THIS.holder("77", "other"), **elsewhere)
    folder.layout.loop_lock.write_text(json.dumps(asdict(other)))
    return folder.layout.loop_lock.read_text()


@pytest.mark.parametrize("content", ["", "local-1-1\n", "[1]", '{"pid": 1}', "\0" * 50, "é"])
def test_a_lock_that_says_nothing_is_nobodys_when_it_is_old(folder: Folder, content: str) -> None:
    folder.release()
    folder.layout.loop_lock.write_text(content)
    os.utime(folder.layout.loop_lock, (1, 1))
    after = job(folder.layout.root)
    assert after.is_mine
    assert list(folder.layout.root.glob(".loop.lock*")) == []


def test_a_lock_of_a_process_that_is_over(folder: Folder) -> None:
    locked(folder, boot=THIS.holder().boot, pid=999_999_999, start="5")
    assert job(folder.layout.root).is_mine


def test_a_second_loop_of_the_same_job_is_refused(folder: Folder) -> None:
    before = folder.layout.loop_lock.read_text()
    with pytest.raises(
        FolderError,
        match=f"job {folder.job_id} on .* is already working on .*its process is at work",
    ):
        job(folder.layout.root, folder.job_id)
    assert folder.layout.loop_lock.read_text() == before and folder.is_mine
    assert list(folder.layout.root.glob(".loop.lock*")) == []


def test_a_job_of_another_cluster_is_never_gone(folder: Folder) -> None:
    """Its scheduler does not answer here, and this one does not know the job."""
    before = locked(folder)
    os.utime(folder.layout.loop_lock, (1, 1))
    with pytest.raises(
        FolderError, match="job 77 on elsewhere is already working on .*: it is of cluster other"
    ):
        job(folder.layout.root)
    assert folder.layout.loop_lock.read_text() == before


def test_one_of_many_takes_a_lock_that_nobody_holds(folder: Folder) -> None:
    locked(folder, boot=THIS.holder().boot, pid=999_999_999, start="5")
    took: list[Folder] = []

    def take(name: str) -> None:
        world = BatchHost()
        scheduler = LocalAllocation({"ORCH_JOB_ID": name}, 1, world)
        try:
            one = Folder(folder.layout, folder.record, name, world)
            world.run(one.taking(scheduler))
            took.append(one)
        except FolderError:
            pass

    threads = [threading.Thread(target=take, args=(f"{LIVE}-{one}",)) for one in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(took) == 1 and took[0].is_mine
    assert list(folder.layout.root.glob(".loop.lock*")) == []


def test_a_loop_that_lost_the_set_writes_nothing_and_leaves_the_lock(folder: Folder) -> None:
    state = attempt(folder, 1, 1, "", "success")
    records.write(JobRecord(job_id="next", state="running"), folder.layout.job("next"))
    before = {path: path.read_bytes() for path in folder.layout.root.rglob("*") if path.is_file()}
    other = json.dumps(asdict(THIS.holder("next")))
    folder.layout.loop_lock.write_text(other)
    for write in (
        lambda: folder.close(replace(state, state="failed", outcome="infrastructure"), None),
        lambda: folder.close(replace(state, state="success", outcome="success"), 0),
        lambda: folder.begin(RunRecord(run=2, attempt=1, state="running")),
        lambda: folder.write(state, folder.layout.run_state(1)),
        lambda: folder.put(folder.layout.environment, b""),
        lambda: folder.record_that(("job", {})),
        lambda: settle(folder),
    ):
        with pytest.raises(FolderError, match="is not this job's any more"):
            write()
    folder.release()
    assert folder.layout.loop_lock.read_text() == other
    assert all(
        path.read_bytes() == content
        for path, content in before.items()
        if path != folder.layout.loop_lock
    )


# ---- set.json ----


@pytest.mark.parametrize(
    "damage", ["empty", "half", "zeros", "no object", '{"nexp": 3}', '{"root_seed": 5}']
)
def test_a_damaged_set_is_refused(folder: Folder, damage: str) -> None:
    folder.release()
    DAMAGE.get(damage, lambda path: path.write_text(damage))(folder.layout.set_file)
    (folder.layout.root / "ledger.jsonl").unlink()
    with pytest.raises(FolderError, match="set.json.*it is damaged"):
        job(folder.layout.root)


@pytest.mark.parametrize("damage", ["gone", "empty", "half", "zeros", "no object"])
def test_a_damaged_set_is_restored_from_its_declaration(folder: Folder, damage: str) -> None:
    before = folder.layout.set_file.read_bytes()
    attempt(folder, 1, 1, "success", "success")
    DAMAGE[damage](folder.layout.set_file)
    after = successor(folder)
    assert after.record == folder.record and folder.layout.set_file.read_bytes() == before
    assert after.missing() == [2]


@pytest.mark.parametrize("changes", [{"nexp": 3}, {"root_seed": 5}])
def test_a_set_that_was_changed_since_it_was_declared_is_refused(
    folder: Folder, changes: dict[str, int]
) -> None:
    folder.release()
    records.write(replace(folder.record, **changes), folder.layout.set_file)  # type: ignore[arg-type]
    with pytest.raises(FolderError, match="were declared"):
        job(folder.layout.root)


@pytest.mark.parametrize(("member", "value"), [("nexp", 0), ("nexp", 10_000), ("root_seed", 0)])
def test_a_set_with_impossible_numbers_is_refused(folder: Folder, member: str, value: int) -> None:
    folder.release()
    (folder.layout.root / "ledger.jsonl").unlink()
    records.write(replace(folder.record, **{member: value}), folder.layout.set_file)  # type: ignore[arg-type]
    with pytest.raises(FolderError, match="it is damaged"):
        job(folder.layout.root)


def with_seed(folder: Folder, nexp: int, root_seed: int) -> Folder:
    """A set as a controller declared it, opened by its next job."""
    folder.release()
    (folder.layout.root / "ledger.jsonl").unlink()
    records.write(replace(folder.record, nexp=nexp, root_seed=root_seed), folder.layout.set_file)
    return job(folder.layout.root)


@pytest.mark.parametrize(
    ("nexp", "root"), [(2, 2**31 - 2000), (2, 2**31 - 2_000_001), (2000, 2**31 - 2_000_000)]
)
def test_a_root_seed_whose_seeds_fit_is_taken(folder: Folder, nexp: int, root: int) -> None:
    assert with_seed(folder, nexp, root).record.root_seed == root


@pytest.mark.parametrize(
    ("nexp", "root"), [(2, 2**31 - 1999), (2001, 2**31 - 2_000_002), (9999, 2**31 - 2_000_002)]
)
def test_a_root_seed_whose_seeds_overflow_is_refused(folder: Folder, nexp: int, root: int) -> None:
    message = f"`root_seed` is {root}; seeds of {nexp} runs stay below 2.31 only up to {2**31 - 1000 * nexp}; start"
    with pytest.raises(FolderError, match=message):
        with_seed(folder, nexp, root)


def test_a_root_seed_that_is_none_is_refused(tmp_path: Path) -> None:
    words = "must be a number from 1 to 2137484648: seeds of 9999 runs stay below 2^31"
    for seed in ("0", "-5", "x", "2137484649", "99999999999999999999", "1+1", "a[$(touch pwned)]"):
        with pytest.raises(FolderError) as refused:
            job(tmp_path / "set", seed=seed, nexp=9999)
        assert str(refused.value) == f"ROOT_SEED={seed} {words}"


def test_each_set_has_a_root_seed_of_its_own(tmp_path: Path) -> None:
    assert len({job(tmp_path / name).record.root_seed for name in ("a", "b", "c")}) == 3


def test_a_set_with_runs_and_without_its_declaration_is_refused(folder: Folder) -> None:
    folder.layout.set_file.unlink()
    (folder.layout.root / "ledger.jsonl").unlink()
    with pytest.raises(FolderError, match="is missing, and the set has runs"):
        job(folder.layout.root)
    assert not folder.layout.set_file.exists()


def test_a_bundle_that_cannot_be_copied_leaves_nothing_half(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle/gone").symlink_to("nowhere")
    with pytest.raises(FolderError, match="cannot write to .*No such file or directory"):
        job(tmp_path / "set")
    assert not (tmp_path / "set/bundle").exists() and list((tmp_path / "set").glob(".*")) == []
    (tmp_path / "bundle/gone").unlink()
    assert Layout(tmp_path / "set").bundle.parent == job(tmp_path / "set").layout.root
    shutil.rmtree(tmp_path / "set")


class Disk:
    """What would be left if the machine lost power now: which files and names are synced. The calls are the real ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: dict[int, int] = {}
        """inode of a file -> bytes of it that are on the disk."""
        self.names: dict[int, set[tuple[str, int]]] = {}
        """inode of a folder -> (name, inode) of what is found in it."""
        self.announced: list[str] = []
        self.broken: list[str] = []
        fsync, replace_, link = os.fsync, os.replace, os.link

        def on_fsync(fd: int) -> None:
            fsync(fd)
            about = os.fstat(fd)
            self.sizes[about.st_ino] = about.st_size
            if stat.S_ISDIR(about.st_mode):
                self.names[about.st_ino] = {(entry.name, entry.inode()) for entry in os.scandir(fd)}

        def named(source: os.PathLike[str], target: os.PathLike[str], call: Any) -> None:
            about, name = os.stat(source), Path(target).name
            if name.startswith("result_") or (name == "state.json" and is_final(source)):
                self.announced.append(str(target))
                if self.sizes.get(about.st_ino) != about.st_size:
                    self.broken.append(f"{target} appeared before its content was on the disk")
            call(source, target)

        monkeypatch.setattr(os, "fsync", on_fsync)
        monkeypatch.setattr(os, "replace", lambda source, target: named(source, target, replace_))
        monkeypatch.setattr(os, "link", lambda source, target: named(source, target, link))

    def keeps(self, path: Path, top: Path) -> bool:
        """Whether a file, and every name on the way to it from `top`, is on the disk."""
        way = [path, *(one for one in path.parents if one.is_relative_to(top))]
        found = all(
            (entry.name, entry.lstat().st_ino) in self.names.get(folder.stat().st_ino, ())
            for entry, folder in itertools.pairwise(way)
        )
        return found and self.sizes.get(path.stat().st_ino) == path.stat().st_size


def is_final(path: os.PathLike[str]) -> bool:
    return json.loads(Path(path).read_text())["state"] not in ("queued", "running")


@pytest.mark.parametrize("outcome", ["success", "not_converged", "infrastructure"])
def test_what_is_final_is_on_the_disk_before_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    disk = Disk(monkeypatch)
    mine = job(tmp_path / "set")
    settle(mine)
    attempt(mine, 1, 1, outcome, "" if outcome == "infrastructure" else outcome)
    assert disk.broken == []
    finals = [mine.layout.attempt_state(1, 1), mine.layout.run_state(1)]
    finals += [mine.layout.result(1)] * (outcome != "infrastructure")
    # The result first: a state never speaks of one that is not there.
    assert disk.announced == [str(path) for path in (*finals[2:], *finals[:2])]
    for path in (*finals, mine.layout.root / "ledger.jsonl"):
        assert disk.keeps(path, tmp_path), path
