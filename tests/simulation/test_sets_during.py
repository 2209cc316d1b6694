"""While a run goes on: it hangs, the storage is full or away for a while, the time limit comes."""

from __future__ import annotations

import errno
import hashlib
import re
import signal

import pytest
from run_sets import Set
from worlds import Ends, Me, Sets, World, hangs

from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.silence import read_silences, recorded
from orchestrator.evidence.starts import attempt_starts, differences
from orchestrator.onnode.loop.job import _time
from orchestrator.simulation.engine import NEVER
from orchestrator.simulation.node_run import Part


def hangs_once(me: Me) -> Ends | None:
    """The first attempt of run 1 hangs on every node."""
    return hangs() if me[:2] == (1, 1) else None


def hashes(one: Set) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in one.root.glob("runs/*/result_*.txt")
    }


def mllog(key: str) -> bytes:
    return (
        b':::MLLOG {"namespace": "", "event_type": "POINT_IN_TIME", "value": null, "time_ms": 1, "key": "%s"'
        b', "metadata": {"status": "success"}}\n' % key.encode()
    )


# ---- hangs


def test_a_run_that_hangs_is_ended_with_evidence_and_the_set_goes_on(sets: Sets) -> None:
    world = sets.make(hangs_once)
    assert world.play() == 0
    one = world.set
    assert [one.outcomes(run) for run in (1, 2)] == [["infrastructure", "success"], ["success"]]
    reason = one.attempt(1, 1)["reason"]
    assert reason.startswith("hung: no output of any node for ")
    assert "; evidence in runs/1/attempt_1/hang/NODE.txt" in reason
    assert "asking the nodes what they do" in world.out
    for node in ("n1", "n2"):
        assert (one.root / f"runs/1/attempt_1/hang/{node}.txt").read_text()
    assert [event.data()["reason"] for event in one.events("hung")] == [
        reason.partition("; evidence")[0]
    ]
    pulses = [
        pulse for event in one.events("pulse") if (pulse := recorded(event)) and pulse[0] == "1.1"
    ]
    assert reason.startswith(pulses[-1][1].verdict)


def test_before_run_start_another_limit_counts(sets: Sets) -> None:
    limits = {"hang_start_seconds": 1800}
    world = sets.make(
        lambda me: hangs(after=0.0) if me.attempt == 1 else None, nexp=1, limits=limits
    )
    assert world.play() == 0
    assert "(limit 1800 s: before run_start)" in world.set.attempt(1, 1)["reason"]


def prints(*lines: tuple[float, str]) -> Part:
    """A part that prints MLLOG keys and words at these seconds, and ends well after the last."""
    return Part(
        tuple(
            (at, mllog(word) if word.startswith(("run_", "eval_")) else word.encode() + b"\n")
            for at, word in lines
        ),
        lines[-1][0] + 1,
    )


def test_a_run_that_evaluates_slowly_goes_on(sets: Sets) -> None:
    """Its own rhythm counts: pauses longer than what counts without it, and shorter than the multiple of its interval."""
    slowly = prints(
        (1, "run_start"), (3000, "eval_accuracy"), (7500, "eval_accuracy"), (12000, "run_stop")
    )
    world = sets.make(lambda me: slowly, nexp=1, nodes=1, limits={"run_timeout_minutes": 600})
    assert world.play() == 0
    assert world.set.outcomes(1) == ["success"]


def test_a_line_of_one_node_is_a_sign_of_life(sets: Sets) -> None:
    silent = prints((1, "run_start"), (8000, "run_stop"))
    busy = prints(*((at, "step") for at in range(0, 8001, 500)))
    world = sets.make(
        lambda me: busy if me.rank else silent, nexp=1, limits={"run_timeout_minutes": 600}
    )
    assert world.play() == 0
    assert world.set.outcomes(1) == ["success"]


def test_a_hang_after_run_stop_costs_no_result(sets: Sets) -> None:
    world = sets.make(lambda me: hangs(after=NEVER), nexp=1)
    assert world.play() == 0
    assert world.set.outcomes(1) == ["success"]
    reason = world.set.attempt(1, 1)["reason"]
    assert "hung: no output of any node" in reason and "after run_stop" in reason


def test_the_watchdog_can_be_switched_off(sets: Sets) -> None:
    world = sets.make(hangs_once, nexp=1, limits={"hang_multiple": 0})
    assert world.play() == 0
    assert "no run_stop within 3600 s (run time-out)" in world.set.attempt(1, 1)["reason"]
    assert world.set.events("hung") == []


def test_a_node_whose_processes_are_stopped_stands_out(sets: Sets) -> None:
    world = sets.make(hangs_once, spares=1).start().running(1)
    [run] = [run for run in world.jobs.runs() if run.rank == 1]
    run.doing = "stopped: a process does not run (state T)"
    assert world.end() == 0
    reason = world.set.attempt(1, 1)["reason"]
    assert "node n2 (rank 1) stands out: stopped: a process does not run (state T)" in reason
    assert world.set.excluded() == [("n2", 1)]


def watchdog(me: Me) -> Part | None:
    """The first attempt falls silent, and the program's own watchdog ends it before the loop does."""
    lines = tuple((float(at), b"step\n") for at in range(0, 60, 10))
    return Part(((1.0, mllog("run_start")), *lines), 500.0, 134) if me[:2] == (1, 1) else None


def test_evidence_of_a_silent_run_is_there_before_it_ends_by_itself(sets: Sets) -> None:
    world = sets.make(watchdog, spares=1, nexp=1, limits={"hang_seconds": 400}).start().running(1)
    [run] = [run for run in world.jobs.runs() if run.rank == 1]
    run.doing = "stopped: rank 9 does not run (state T)"
    world.wait(420)
    silences = read_silences(SetEvidence(world.set.root))
    assert silences[1, 1].odd == f"node n2 (rank 1): {run.doing}"
    assert world.end() == 0
    assert world.set.events("hung") == [] and len(world.set.events("look")) == 1
    reason = world.set.attempt(1, 1)["reason"]
    assert (
        reason
        == f"node n2 (rank 1) stands out: {run.doing}; both nodes exited 134 (killed by signal 6)"
    )
    assert world.set.excluded() == [("n2", 1)]


def test_output_makes_the_evidence_of_a_silence_void(sets: Sets) -> None:
    pause = prints(
        (1, "run_start"), (10, "step"), (500, "step"), *((at, "step") for at in range(510, 900, 10))
    )
    dies = Part(pause.lines, 900.0, 9)
    world = sets.make(
        lambda me: dies if me[:2] == (1, 1) else None, nexp=1, limits={"hang_seconds": 400}
    )
    world.start().running(1)
    for run in world.jobs.runs():
        run.doing = f"rank {run.rank}: checkpoint"
    assert world.end() == 0
    assert len(world.set.events("look")) == 1
    assert world.set.attempt(1, 1)["reason"] == "both nodes exited 9"


def test_a_suspended_job_has_not_hung(sets: Sets) -> None:
    """The time in which nobody could run is not the run's silence."""
    world = sets.make(nexp=1).start().running(1)
    assert world.cluster.suspend(world.last_job)
    world.wait(86400.0)
    assert world.cluster.unsuspend(world.last_job)
    assert world.end() == 0
    assert world.set.outcomes(1) == ["success"]


# ---- storage


def stops(world: World, run: int) -> World:
    """Play until a run has logged its end; its program tidies up for some seconds more."""
    logs = f"runs/{run}/attempt_*/node_0.log"
    return world.play_until(
        lambda: any(b"run_stop" in path.read_bytes() for path in world.log_dir.glob(f"*/{logs}"))
    )


@pytest.mark.parametrize("moment", ["in a run", "after run_stop"])
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("the storage is full", "No space left on device"),
        ("the storage is over quota", "Disk quota exceeded"),
        ("the storage is read-only", "Read-only file system"),
        ("the storage is away", "Input/output error"),
    ],
)
def test_the_loop_waits_for_storage(sets: Sets, fault: str, says: str, moment: str) -> None:
    """No result is lost or changed, and a run that had ended well is not repeated."""
    world = sets.make(nexp=3).start()
    world.running(2) if moment == "in a run" else stops(world, 2)
    before = hashes(world.set)
    world.fault(f"{fault} for 50 min")
    assert world.end() == 0
    one = world.set
    assert any(says in text for text in one.job["warnings"]), one.job["warnings"]
    assert f"{says}: gone after" in world.out and "waiting for storage: " in world.out
    assert one.results() == [1, 2, 3]
    assert {name: hashes(one)[name] for name in before} == before and len(before) == 1
    assert [one.outcomes(run)[-1] for run in (1, 2, 3)] == ["success"] * 3
    assert len(one.attempts(2)) == 1 or moment == "in a run"
    assert (one.job["state"], one.job["reason"]) == ("complete", "")


@pytest.mark.parametrize(
    "fault", ["the storage is full", "the storage is away", "the storage is not mounted"]
)
def test_the_last_state_of_a_complete_set_is_waited_for(sets: Sets, fault: str) -> None:
    """No next job writes it: readers would wait for a job that is gone."""
    world = sets.make(nexp=2).start()
    world.play_until(lambda: world.run_set is not None and world.missing() == [])
    world.fault(f"{fault} for 10 min")
    assert world.end() == 0
    assert (world.set.job["state"], world.set.job["reason"]) == ("complete", "")
    assert world.out.count("cannot write") <= 1


def test_a_signal_ends_the_wait_for_the_last_state(sets: Sets) -> None:
    world = sets.make(nexp=1).start()
    world.play_until(lambda: world.run_set is not None and world.missing() == [])
    world.fault("the storage is read-only for 50 min")
    world.wait(120.0).signal(signal.SIGTERM)
    world.end()
    assert world.engine.now < 1800.0, "before there is room again"
    assert world.set.job["state"] != "complete"
    sets.forget()


def test_the_loop_waits_for_a_log_folder_that_is_not_mounted(sets: Sets) -> None:
    world = sets.make(nexp=3).start()
    stops(world, 2).server.faults.away(True, errno.ENOENT)
    world.wait(1800.0).server.faults.none()  # many beats of the lease later
    assert world.end() == 0
    assert world.set.results() == [1, 2, 3] and world.set.outcomes(2) == ["success"]


@pytest.mark.parametrize("minutes", [0, 5])
def test_the_wait_for_storage_is_bounded(sets: Sets, minutes: int) -> None:
    world = sets.make(nexp=4, limits={"storage_wait_minutes": minutes}).start()
    stops(world, 3).fault("the storage is full for 1 d")
    assert world.end() == 1
    assert world.engine.now < 3600.0, "long before there is room again"
    one = world.set
    assert world.missing() == [3, 4] and one.results() == [1, 2]
    assert [path for path in one.root.rglob("*.json") if not path.read_bytes()] == []
    world.server.faults.none()
    assert world.play() == 0
    assert one.results() == [1, 2, 3, 4]
    assert one.outcomes(1) == one.outcomes(2) == ["success"] and one.outcomes(3)[-1] == "success"


def test_a_signal_ends_the_wait_for_storage(sets: Sets) -> None:
    world = sets.make().start()
    stops(world, 1).fault("the storage is away for 50 min")
    world.wait(600.0).signal(signal.SIGTERM)
    assert world.end() == 1
    assert world.engine.now < 2400.0, "before the storage is back"
    world.server.faults.none()
    assert world.play() == 0
    # It was a finished run: it is published, not repeated.
    assert [world.set.outcomes(run) for run in (1, 2)] == [["success"], ["success"]]


@pytest.mark.parametrize(("first", "every"), [(10, 34), pytest.param(1, 1, marks=pytest.mark.long)])
def test_a_call_of_storage_that_fails_costs_nothing(sets: Sets, first: int, every: int) -> None:
    """Whichever call of the loop it is, from the first run on."""
    for step in range(first, 700, every):
        world = sets.make(nexp=2, spares=1, container={"engine": "docker"}).start().running(1)
        world.fault(f"the storage fails for the loop in {step} steps")
        world.end()
        assert [world.set.outcomes(run) for run in (1, 2)] == [["success"], ["success"]], step
        assert world.set.job["state"] == "complete", step


# ---- deaths that nobody announces


@pytest.mark.parametrize("moment", ["launch", "checks", "container", "prepare"])
def test_an_agent_that_is_killed_is_noticed_at_once(sets: Sets, moment: str) -> None:
    """There a node may take minutes to answer."""
    world = sets.make(nexp=1, limits={"container_start_seconds": 600})
    agents = world.jobs.agents["n2"]
    reached = {
        "launch": lambda: bool(agents),
        "checks": lambda: any(agent.looked for agent in agents),
        "container": lambda: any(agent.used and agent.looked and agent.checked for agent in agents),
        "prepare": lambda: any(agent.ready for agent in agents),
    }
    world.start().play_until(reached[moment])
    killed_at = world.engine.now
    world.fault("the agent of node 2 is killed")
    world.play_until(
        lambda: (
            "silent\tn2"
            in "".join(path.read_text() for path in world.set.root.glob("events-*.tsv"))
        )
    )
    assert world.engine.now - killed_at < 30.0
    world.end()
    one = world.set
    assert "n2" in (one.job["reason"] or one.attempt(1, 1)["reason"])


# ---- the time limit


def test_no_run_begins_that_cannot_end_before_the_time_limit(sets: Sets) -> None:
    world = sets.make(nexp=3)
    world.start().running(1, seconds=300.0)
    world.cluster.shorten(world.last_job, 900.0)
    assert world.end() == 1
    one = world.set
    assert one.results() == [1]
    assert one.job["state"] == "time_limit"
    assert re.fullmatch(
        r"2 of 3 runs left; a run takes 10 min at least, and the job's time limit leaves \d+ min; "
        rf"`orchestrator resume {one.root.name}` does them in another job",
        one.job["reason"],
    ), one.job["reason"]
    assert one.attempts(2) == []
    assert len(one.events("late")) == 1
    assert world.play() == 0
    assert one.results() == [1, 2, 3]


def test_a_time_below_a_minute_is_in_seconds() -> None:
    assert [_time(seconds) for seconds in (3.4, 59.0, 61.0)] == ["3 s", "59 s", "1 min"]


# ---- what the nodes report


@pytest.mark.parametrize(
    ("guilty", "rdma"), [(0, "required"), (1, "required"), (None, "required"), (0, "preferred")]
)
def test_where_rdma_is_required_an_attempt_over_sockets_ends_at_once(
    sets: Sets, guilty: int | None, rdma: str
) -> None:
    """RCCL falls back to sockets on one rank of one node: any node counts, not only the one that logs."""

    def plan(me: Me) -> Part | None:
        way = "Socket" if me.rank == guilty else "IB"
        said = prints(
            (1, f"x:1:1 [0] NCCL INFO Using network {way}"), (2, "run_start"), (900, "run_stop")
        )
        return said if me.attempt == 1 else None

    world = sets.make(plan, nexp=1, network={"rdma": rdma})
    assert world.play() == 0
    one = world.set
    first = one.attempt(1, 1)
    if guilty is None or rdma != "required":
        assert (first["outcome"], first["reason"]) == ("success", "")
        return
    assert one.outcomes(1) == ["infrastructure", "success"]
    assert first["reason"] == (
        "RCCL does not use RDMA although the site says network.rdma: required "
        f"(n{guilty + 1}, 1 of 1 process: Using network Socket)"
    )
    assert b"run_start" in one.log(1) and b"run_stop" not in one.log(1), "long before its end"


def test_settings_that_are_not_put_back_are_a_warning_of_the_job(sets: Sets) -> None:
    world = sets.make(nexp=1, tunables="apply")
    for number in (1, 2):
        world.machine(number).change(unreverted="k wanted 1, found 2")
    assert world.play() == 0
    one = world.set
    warning = (
        "both nodes: host settings were not reverted: k wanted 1, found 2; "
        "to revert them: orchestrator tune revert --nodes 'n[1-2]' --sudo"
    )
    assert one.results() == [1] and warning in one.job["warnings"]
    assert sorted(event.node for event in one.events("revert-failed")) == ["n1", "n2"]
    for machine in world.machines.values():  # as their watchdogs do when that is possible
        machine.change(unreverted="")
        machine.tuned_by.clear()


@pytest.mark.parametrize("allow", [False, True])
def test_nodes_that_differ(sets: Sets, allow: bool) -> None:
    world = sets.make(nexp=1, tuning={"allow_differences": allow})
    world.machine(2).change(facts={**world.machine(2).condition.facts, "bios": "1.5"})
    world.machine(1).change(facts={**world.machine(1).condition.facts, "bios": "1.4"})
    text = "the nodes differ: node n2 (rank 1): bios is 1.5, elsewhere 1.4"
    code, one = world.play(), world.set
    if not allow:
        assert (
            code == 1 and one.job["state"] in ("failed", "paused") and text in one.job["reason"]
        ), one.job
        world.machine(2).change(facts=world.machine(1).condition.facts)
        return
    assert code == 0 and text in world.out
    [found] = differences(attempt_starts(SetEvidence(one.root)))
    assert (found.field, found.node, found.run, found.value, found.usual) == (
        "bios",
        "n2",
        1,
        "1.5",
        "1.4",
    )


def test_a_run_that_ends_while_the_storage_hangs_is_not_lost(sets: Sets) -> None:
    """Its nodes cannot write what it prints, so it looks hung and is ended; what the storage has in the end counts."""
    world = sets.make(nexp=1, spares=1)
    world.machine(1).change(
        failing={"gpu_count": "7 of 8"}
    )  # the batch host has no part in the run
    world.fault("the storage hangs for 25 min in run 1")
    world.fault("the storage is cut off on node 1 for 25 min in run 1")
    assert world.play() == 0
    assert world.set.outcomes(1) == ["success"] and "hung" in world.set.attempt(1, 1)["reason"]


def test_nodes_are_not_blamed_if_the_batch_host_cannot_read_what_they_write(sets: Sets) -> None:
    world = sets.make(nexp=1, spares=1)
    world.fault("the storage is cut off on node 1 for 3 min at 3 s")  # after the loop's marker
    assert world.play() == 0
    assert world.set.events("unseen") == [] and world.set.outcomes(1) == ["success"]
