"""Ends that nobody planned: signals, killed loops, pre-emption, jobs that Slurm starts again; and what is resumed."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest
import set_invariants as invariants
from worlds import PATIENCE_S, RUN_S, Ends, Me, Sets, World, exits, hangs

from orchestrator.evidence.ledger import verify
from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.state import judge
from orchestrator.onnode.kernel.waiting import Flow
from orchestrator.onnode.loop.group import Group
from orchestrator.onnode.loop.notice import Notices
from orchestrator.onnode.set import ledger
from orchestrator.onnode.set.submissions import record
from orchestrator.runset.submit import submissions
from orchestrator.simulation import host
from orchestrator.simulation.engine import NEVER


def hangs_in_run_2(me: Me) -> Ends | None:
    return hangs() if me[:2] == (2, 1) else None


def complete_after(world: World, outcomes: list[list[str]]) -> None:
    """Resuming gives a complete set with every attempt on record."""
    assert world.play() == 0
    one, runs = world.set, range(1, len(outcomes) + 1)
    assert [one.outcomes(run) for run in runs] == outcomes
    assert one.results() == list(runs)
    assert one.job["state"] == "complete"
    seeds = [one.attempt(run, attempt)["seed"] for run in runs for attempt in one.attempts(run)]
    assert len(seeds) == len(set(seeds))
    assert one.temporary() == []


@pytest.mark.parametrize(
    ("number", "state"),
    [(signal.SIGTERM, "cancelled"), (signal.SIGINT, "cancelled"), (signal.SIGUSR1, "time_limit")],
)
def test_a_signal_in_a_run(sets: Sets, number: int, state: str) -> None:
    world = sets.make(hangs_in_run_2, nexp=3).start().running(2)
    one = world.set
    before = (one.root / "runs/1/result_1.txt").read_bytes()
    world.signal(number)
    assert world.end() == 1
    assert f"`orchestrator resume {one.root.name}` continues" in world.out
    assert (one.job["state"], one.job["ended_ms"] > 0, one.job["run"], one.job["attempt"]) == (
        state,
        True,
        2,
        1,
    )
    stopped = one.run(2)
    assert (stopped["state"], stopped["outcome"], stopped["end_ms"] > 0) == (
        "failed",
        "interrupted",
        True,
    )
    assert stopped == one.attempt(2, 1)
    assert stopped["reason"] == one.job["reason"] != ""
    assert one.run(3)["state"] == "queued"
    assert one.temporary() == []
    complete_after(world, [["success"], ["interrupted", "success"], ["success"]])
    assert (one.root / "runs/1/result_1.txt").read_bytes() == before
    assert len(one.jobs()) == 2


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_signal_at_any_moment_is_not_lost(sets: Sets, part: int) -> None:
    """From the first second to the end of the first run, and around each moment at which the loop decides."""
    moments = [0.5 + 0.7 * k for k in range(24)] + [575.0 + 4.1 * k for k in range(12)]
    for moment in moments[part::2]:
        world = sets.make(nodes=1, nexp=2).start().wait(moment)
        if not world.jobs.loops or world.last_job.state != "RUNNING":
            continue
        world.signal(signal.SIGTERM)
        world.end()
        assert world.engine.now < moment + 60.0
        if world.set.root.joinpath("jobs").exists():
            assert world.set.job["state"] == "cancelled"
        finished = world.set.results() if (world.set.root / "results").exists() else []
        assert world.play() == 0
        for run in (1, 2):
            assert world.set.outcomes(run) in (["success"], ["interrupted", "success"])
        assert all(world.set.outcomes(run) == ["success"] for run in finished)


def test_slurm_is_asked_again_why_it_ends_the_job(
    sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that is busy with the pre-emption may answer only when the runs have been stopped."""
    monkeypatch.setattr(host, "AT_ONCE", 1.0)
    world = sets.make(nexp=2).start().running(2)
    world.fault("Slurm loses 1 answers")
    world.cluster.preempt(world.last_job)
    world.end()
    assert (world.set.job["state"], "pre-empted" in world.set.job["reason"]) == ("paused", True)
    assert [event.data()["told"] != "" for event in world.set.events("ending")] == [False, True]


@pytest.mark.parametrize("lost", [1, 2])
def test_nobody_is_blamed_as_long_as_slurm_does_not_answer(sets: Sets, lost: int) -> None:
    """Between two runs containers end with the job, one after another; the loop may be the last that hears of it."""
    world = sets.make(nodes=3, nexp=3, spares=1).start().running(1)
    world.play_until(lambda: bool(world.set.results()))
    world.fault(f"Slurm loses {lost} answers")
    world.fault("the job is pre-empted for 3m20s")
    world.end()
    assert world.set.excluded() == []


@pytest.mark.parametrize("run", [0, 1])
def test_nobody_is_blamed_if_slurm_never_answers(sets: Sets, run: int) -> None:
    """The end of a job reaches its nodes first, one after another; Slurm may be silent all the time."""
    world = sets.make(nexp=2, spares=1).start()
    if run:
        world.running(run)
    else:
        world.play_until(lambda: bool(world.machine(2).containers))
    world.fault("Slurm does not answer for 10m")
    world.fault("the container of node 2 ends")
    world.fault("the job is pre-empted for 3m20s")
    world.end()
    assert world.set.excluded() == []


@pytest.mark.parametrize("step", range(39, 70, 6))
def test_no_node_is_late_while_the_loop_stands_still_for_another_group(
    sets: Sets, step: int
) -> None:
    world = sets.make(nodes=2, nexp=4, side_by_side=2, spares=1).start().wait(8.9)
    world.fault(f"the loop is stopped in {step} steps for 33m20s")
    world.end()
    reasons = [
        event.detail for group in (1, 2) for event in world.set.events("blamed", group=group)
    ]
    assert not [reason for reason in reasons if "did not answer" in reason]


def test_a_signal_in_the_moment_in_which_the_last_run_ends(sets: Sets) -> None:
    """The loop finds both at once: the set has all of its results, whatever was asked for."""
    world = sets.make(nexp=1).start().running(1)
    loop = world.jobs.loops[world.last_job.id].process
    loop.stop()
    world.signal(signal.SIGTERM)
    world.wait(2 * RUN_S)
    loop.resume()
    assert world.end() == 0
    assert (world.set.outcomes(1), world.set.job["state"], world.set.job["reason"]) == (
        ["success"],
        "complete",
        "",
    )


def test_a_signal_again_and_again(sets: Sets) -> None:
    world = sets.make(nexp=1).start().running(1)
    world.fault("the training hangs and ignores TERM")
    for _ in range(3):
        world.signal(signal.SIGTERM)
    # The program ignores TERM: it is killed after its time to tidy up.
    assert world.end() == 1
    assert (world.set.job["state"], world.set.outcomes(1)) == ("cancelled", ["interrupted"])


def test_a_run_that_ended_well_while_the_set_was_cancelled(sets: Sets) -> None:
    world = sets.make(lambda me: hangs(after=NEVER), nodes=1).start()
    world.play_until(
        lambda: (
            b"run_stop" in b"".join(path.read_bytes() for path in world.log_dir.rglob("node_0.log"))
        )
    )
    world.signal(signal.SIGTERM)
    assert world.end() == 1
    one = world.set
    assert one.outcomes(1) == ["success"] and one.results() == [1]
    assert (one.job["state"], one.run(2)["state"]) == ("cancelled", "queued")


def test_everything_is_killed(sets: Sets) -> None:
    world = sets.make(hangs_in_run_2, nexp=3).start().running(2)
    world.kill_job()
    one = world.set
    assert (one.run(2)["state"], one.job["state"], one.job["ended_ms"]) == ("running", "running", 0)
    complete_after(world, [["success"], ["interrupted", "success"], ["success"]])
    first = one.jobs()[0]
    assert (first["state"], first["ended_ms"] > 0) == ("failed", True)
    settled = one.attempt(2, 1)
    assert (settled["state"], settled["end_ms"] > 0) == ("failed", True)
    assert settled["reason"] == f"job {first['job_id']} ended without closing this attempt"


@pytest.mark.parametrize(("step", "stride"), [(2, 45), pytest.param(1, 1, marks=pytest.mark.long)])
def test_the_loop_is_killed_in_front_of_any_step(sets: Sets, step: int, stride: int) -> None:
    """Each call of the world is a step: no finished run is lost, and a run is repeated only if it had not ended."""
    while True:
        world = sets.make(nodes=1, nexp=2).start()
        world.play_until(lambda world=world: bool(world.jobs.loops))
        loop = next(iter(world.jobs.loops.values())).process
        loop.die_at(loop.steps + step)
        if world.end() == 0:
            break  # it has fewer steps
        if not world.missing():
            sets.forget()  # nothing is resumed that would remove the lock
            break
        logs = {run: world.set.root / f"runs/{run}/attempt_1/node_0.log" for run in (1, 2)}
        done = [
            run for run, log in logs.items() if log.exists() and b"run_stop" in log.read_bytes()
        ]
        done = [run for run in done if logs[run].with_suffix(".json").exists()]
        world.wait(120.0)
        assert world.play() == 0
        for run in (1, 2):
            assert world.set.outcomes(run) in (["success"], ["interrupted", "success"])
        assert all(world.set.outcomes(run) == ["success"] for run in done)
        step += stride
    assert step > 500


def test_a_loop_that_was_stopped_for_a_while_blames_nobody(sets: Sets) -> None:
    world = sets.make(spares=1, nexp=1)
    world.fault("the loop is stopped for 500 s in run 1 after 30 s")
    assert world.play() == 0
    assert world.set.outcomes(1) == ["success"] and world.set.excluded() == []


def test_a_node_that_stood_still_with_the_loop_is_heard_before_it_is_judged(sets: Sets) -> None:
    """As on a storage that hangs. The limit is over between the loop's stop and its next look."""
    world = sets.make(spares=1, nexp=1, limits={"node_silence_seconds": 130})
    world.fault("the agent of node 2 is stopped for 200 s in run 1 after 40 s")
    world.fault("the loop is stopped for 250 s in run 1 after 153 s")
    assert world.play() == 0
    assert world.set.outcomes(1) == ["success"] and world.set.excluded() == []


def test_used_up_attempts_are_tried_again_by_the_next_job(sets: Sets) -> None:
    world = sets.make(
        lambda me: exits(1, after=400.0) if me.attempt <= 2 else None, nodes=1, nexp=1
    )
    assert world.play() == 1
    assert world.set.outcomes(1) == ["infrastructure", "infrastructure"]
    complete_after(world, [["infrastructure", "infrastructure", "success"]])


# ---- Slurm


def test_a_job_that_slurm_starts_again_goes_on_at_the_first_missing_run(sets: Sets) -> None:
    world = sets.make(nexp=3).start().running(2)
    # a site whose `sbatch` lines ask for that
    world.last_job.amend(requeue=True, no_kill=False)
    one = world.set
    result = (one.root / "runs/1/result_1.txt").read_bytes()
    world.fault("node 1 dies for 10 min")  # the batch host
    assert world.end() == 0
    assert "taking over from job 1 on n1, which has ended" in world.out
    assert [one.outcomes(run) for run in (1, 2, 3)] == [
        ["success"],
        ["interrupted", "success"],
        ["success"],
    ]
    assert (one.root / "runs/1/result_1.txt").read_bytes() == result and one.results() == [1, 2, 3]
    assert [job["state"] for job in one.jobs()] == ["complete"]
    assert [entry.data["restart"] for entry in ledger.read(one.root)[0] if entry.kind == "job"] == [
        0,
        1,
    ]
    assert [str(problem) for problem in verify(one.root).problems] == []
    assert [path.name for path in one.root.glob("events-*")] == ["events-1.tsv"]
    assert len(one.events("begin")) == 2


@pytest.mark.parametrize("ask", ["resume", "cancel"])
def test_a_waiting_job_that_squeue_does_not_list_is_not_gone(sets: Sets, ask: str) -> None:
    """Nobody holds the set while its job waits to start again: only Slurm can tell of it."""
    world = sets.make(nexp=2).start().running(1)
    world.last_job.amend(requeue=True, no_kill=False)
    world.fault("node 1 dies for 30 min")
    world.play_until(lambda: world.last_job.state == "PENDING").wait(600)
    world.fault("Slurm gives 4 empty answers")
    command = world.resume() if ask == "resume" else world.cancel()
    world.play_until(lambda: not command.alive)
    assert "Slurm gives no answer on job 1" in world.done[-1].error
    assert len(world.all_jobs) == 1 and world.last_job.alive
    world.play_until(lambda: not world.last_job.alive)
    assert world.set.results() == [1, 2]
    assert [job["state"] for job in world.set.jobs()] == ["complete"]


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        # TERM at the beginning of the grace time reaches the steps alone.
        ("the job is pre-empted", "paused"),
        ("the job is cancelled", "cancelled"),
    ],
)
@pytest.mark.parametrize("containers_first", [0.0, 1.0])
@pytest.mark.parametrize("late_s", [0.0, 6.0])
def test_what_nodes_do_when_their_job_is_ended_is_nobodys_fault(
    sets: Sets,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    state: str,
    containers_first: float,
    late_s: float,
) -> None:
    """Slurm ends their processes, or only their containers, seconds before the loop hears of it."""
    monkeypatch.setattr(host, "CLIENT_FIRST", containers_first)
    monkeypatch.setattr(host, "AT_ONCE", 0.0)
    monkeypatch.setattr(host, "LATER_S", (late_s, late_s))
    world = sets.make(hangs_in_run_2, nexp=3, spares=1).start().running(2)
    world.fault(fault)
    world.end()
    one = world.set
    assert one.job["state"] == state and ("pre-empted" in one.job["reason"]) == (state == "paused")
    assert (one.outcomes(2), one.excluded()) == (["interrupted"], [])
    assert judge(SetEvidence(one.root), {})[0] == state
    assert len(one.events("ending")) == 1


@pytest.mark.parametrize("moment", [3.0, 6.0, 9.0, 14.0])
def test_a_job_that_is_ended_while_its_nodes_get_ready_sets_none_aside(
    sets: Sets, monkeypatch: pytest.MonkeyPatch, moment: float
) -> None:
    monkeypatch.setattr(host, "AT_ONCE", 0.0)
    monkeypatch.setattr(host, "LATER_S", (6.0, 6.0))
    world = sets.make(nexp=1, spares=1).start().wait(moment)
    world.fault("the job is cancelled")
    world.end()
    assert (world.set.job["state"], world.set.excluded()) == ("cancelled", [])


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, 4))]
)
def test_a_call_of_storage_that_fails_when_a_job_begins_repeats_no_run(
    sets: Sets, part: int
) -> None:
    """What a read that failed would have shown is neither missing nor damaged."""
    for step in range(46 + part, 142, 12):
        world = sets.make(nexp=2).start().running(2)
        world.fault("the job is cancelled")
        world.end()
        world.fault(f"the storage fails for the next loop at its step {step}")
        world.wait(PATIENCE_S).start().end()
        world.finish()
        assert world.set.outcomes(1) == ["success"], step
        assert world.set.outcomes(2) == ["interrupted", "success"], step


def test_a_job_waits_if_a_call_of_storage_fails_while_it_prepares_the_set(sets: Sets) -> None:
    """From the moment that it has the set to its first run."""
    for step in range(15, 96):
        world = sets.make(nexp=1)
        world.fault(f"the storage fails for the next loop at its step {step}")
        assert world.play() == 0, step
        assert world.set.outcomes(1) == ["success"], step
        assert len(world.set.jobs()) == 1, step


@pytest.mark.parametrize(
    "fault", ["", "node 1 speaks for another node at the end of run 1"], ids=["reported", "not"]
)
def test_a_result_counts_though_a_call_of_storage_fails(sets: Sets, fault: str) -> None:
    """Also if no node reports it. Any call of the loop at the end of the run may fail."""
    for step in range(1, 50, 3):
        world = sets.make(nexp=1, spares=1)
        if fault:
            world.fault(fault)
        world.fault(f"the storage fails for the loop in {step} steps at the end of run 1")
        assert (world.play(), world.set.outcomes(1)) == (0, ["success"]), step


def test_a_call_of_storage_that_fails_when_a_command_begins_is_told(sets: Sets) -> None:
    """As an error for people: any other exception would come out here."""
    for step in range(2, 44, 3):
        world = sets.make(nodes=1, nexp=1).start()
        world.play_until(lambda: bool(world.jobs.loops)).fault("the job is cancelled")  # noqa: B023
        world.end()
        command = world.wait(PATIENCE_S).resume()
        world.server.faults.once(command, step)
        world.wait(PATIENCE_S)


def test_a_submission_is_what_the_ledger_says_of_it(sets: Sets) -> None:
    """Its command was killed after it had put that on record, and before it wrote the file; then Slurm forgot the job."""
    world = sets.make(nodes=1, nexp=1).start()
    world.end()
    path = world.set.root / "submissions/1.json"
    before = json.loads(path.read_text())
    path.write_text(json.dumps({**before, "state": "intended", "job_id": "", "ledger": ""}))
    assert world.run_set is not None
    written = record(
        world.run_set.layout,
        replace(submissions(world.run_set.layout)[0], state="refused", error="never"),
    )
    assert (written.state, written.job_id, written.error) == ("submitted", before["job_id"], "")
    assert [str(problem) for problem in verify(world.set.root).problems] == []


def test_a_resume_that_stands_still_at_any_step_while_another_finishes_the_set(sets: Sets) -> None:
    """It writes no submission over that of the other, and leaves none of its own open."""
    stood_still = 0
    for step in range(1, 60, 3):
        world = sets.make(nodes=1, nexp=1).start()
        world.play_until(lambda: bool(world.jobs.loops)).fault("the job is cancelled")  # noqa: B023
        world.end()
        first = world.wait(PATIENCE_S).resume()
        first.stop_at(step, 10 * PATIENCE_S + RUN_S)
        world.wait(PATIENCE_S)
        stood_still += first.alive
        world.resume()
        world.wait(10 * PATIENCE_S + 2 * RUN_S)
        assert not first.alive and world.idle(), step
        assert world.run_set is not None
        records = submissions(world.run_set.layout)
        assert [one.job_id for one in records if one.job_id] == [job.id for job in world.all_jobs]
        assert len(world.all_jobs) == 2, step
        assert {one.state for one in records if not one.job_id} <= {"refused"}, step
        assert list(invariants.open_records(world.set.root)) == [], step
        assert list(invariants.not_complete(world.set.root)) == [], step
    assert stood_still > 13


def test_a_loop_that_stood_still_while_its_nodes_got_ready_blames_none(sets: Sets) -> None:
    world = sets.make(nexp=1, spares=1).start()
    world.play_until(lambda: bool(world.jobs.loops))
    world.fault("the loop is stopped in 125 steps for 10 min")
    assert world.end() == 0
    assert world.engine.now > 1200.0 and world.set.excluded() == []


# ---- a loop that nobody hears any more


def test_a_node_that_is_cut_off_with_a_stopped_loop_lets_go(sets: Sets) -> None:
    """Nothing ends the input of its agent, and Slurm reaches none of its processes."""
    world = sets.make(hangs_in_run_2, nexp=3).start().running(2)
    world.fault("the loop is stopped for 6 h")
    world.fault("the batch host is cut off for 5 h")
    world.wait(900.0)
    world.cluster.cancel(world.last_job)
    assert world.machine(1).containers and world.machine(1).tuned_by
    world.wait(2 * 3600.0)
    machine = world.machine(1)
    assert (world.jobs.agents["n1"], machine.containers, machine.tuned_by) == ([], set(), set())
    world.wait(4 * 3600.0)
    complete_after(world, [["success"], ["interrupted", "success"], ["success"]])


def test_a_loop_that_was_given_up_changes_nothing_any_more(sets: Sets) -> None:
    """Slurm lost its batch host, another job took the set, and then the host came back."""
    world = sets.make(hangs_in_run_2, nexp=2).start().running(2)
    one = world.set
    world.fault("the loop is stopped for 20 min")
    world.wait(60.0)
    (one.root / "loop.lock").write_text("next\n")  # of somebody, and it cannot be read
    before = {
        path: path.read_bytes() for path in one.root.rglob("*") if path.suffix in (".json", ".txt")
    }
    world.signal(signal.SIGTERM)
    assert world.end() == 1
    assert "loop.lock is not this job's any more" in world.out
    assert (one.root / "loop.lock").read_text() == "next\n"
    assert {path: path.read_bytes() for path in before} == before
    (one.root / "loop.lock").unlink()


def test_a_loop_that_is_back_reads_why_its_nodes_have_left(sets: Sets) -> None:
    world = sets.make(hangs_in_run_2, nexp=3).start().running(2)
    world.fault("the loop is stopped for 3 h")
    assert world.end() == 0
    one = world.set
    assert one.outcomes(2) == ["infrastructure", "success"] and one.excluded() == []
    assert {event.detail for event in one.events("left")} == {
        "no word from the loop for 3600 s",
        "",
    }


def test_a_suspended_job_misses_no_beat(sets: Sets) -> None:
    world = sets.make(nexp=2).start().running(1)
    assert world.cluster.suspend(world.last_job)
    world.wait(12 * 3600.0)
    assert world.cluster.unsuspend(world.last_job)
    assert world.end() == 0
    assert [world.set.outcomes(run) for run in (1, 2)] == [["success"], ["success"]]


def test_waiting_for_storage_is_no_silence(sets: Sets) -> None:
    world = (
        sets.make(nexp=2, limits={"storage_wait_minutes": 600}).start().running(1, seconds=590.0)
    )
    world.fault("the storage is full for 9 h")
    assert world.end() == 0
    assert world.set.job["ended_ms"] - world.set.job["started_ms"] > 9 * 3_600_000
    assert {event.detail for event in world.set.events("left")} == {""}


def test_an_internal_error_of_a_group_interrupts_the_runs_of_the_others(
    sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one without a text."""
    ready = Group.make_ready

    def make_ready(group: Group) -> Flow:
        if group.number == 2:
            until = group.job.world.now() + 200
            while group.job.world.now() < until:
                yield until
            raise AssertionError
        return (yield from ready(group))

    monkeypatch.setattr(Group, "make_ready", make_ready)
    world = sets.make(nodes=1, nexp=2, side_by_side=2)
    assert world.play() == 1
    monkeypatch.undo()
    [failure] = world.jobs.failures
    world.jobs.failures.clear()
    assert isinstance(failure, AssertionError) and world.set.outcomes(1) == ["interrupted"]
    assert world.set.attempt(1, 1)["reason"] == "AssertionError"


def test_an_error_before_the_first_run_leaves_the_set_to_the_next_job(
    sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("lib/loop/notify.py")

    monkeypatch.setattr(Notices, "__init__", fail)
    world = sets.make(nexp=1, notify={"command": "true"})
    assert world.play() == 1
    monkeypatch.undo()
    assert [type(failure) for failure in world.jobs.failures] == [KeyError]
    world.jobs.failures.clear()
    assert not (world.set.root / "loop.lock").exists()
    assert world.set.job["state"] == "failed" and "see the job output" in world.set.job["reason"]
    assert world.play() == 0
