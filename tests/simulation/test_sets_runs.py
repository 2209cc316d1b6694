"""Runs and attempts: what counts, what is repeated, what is kept, and who is notified of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from worlds import Ends, Me, Sets, exits, hangs

from orchestrator.simulation.engine import NEVER
from orchestrator.simulation.host import SimHost

LONG = {"run_timeout_minutes": 1000}
"""A run that misses its target takes long."""
AT_ONCE = 0.01
"""Before run_start, in seconds."""


def test_ten_runs(sets: Sets) -> None:
    world = sets.make(nexp=10)
    assert world.play() == 0
    one = world.set
    assert one.results() == list(range(1, 11))
    for run in range(1, 11):
        state = one.run(run)
        assert (state["state"], state["outcome"], state["reason"], state["attempt"]) == (
            "success",
            "success",
            "",
            1,
        )
        assert state == one.attempt(run, 1)
        assert state["exit_codes"] == {"n1": 0, "n2": 0}
        assert state["start_ms"] <= state["end_ms"]
        # A result is a link that also holds when the set is moved or mounted elsewhere.
        assert (
            os.readlink(one.root / f"results/result_{run}.txt") == f"../runs/{run}/result_{run}.txt"
        )
    assert (one.job["state"], one.job["run"], one.job["nodes"], one.job["reason"]) == (
        "complete",
        10,
        ["n1", "n2"],
        "",
    )


def test_a_port_that_another_job_uses_is_passed_over(
    sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every port is derived from ids; of two jobs on one node both may derive the same."""
    world = sets.make(nexp=2)
    assert world.play() == 0
    derived = [world.set.run(run)["master_port"] for run in (1, 2)]
    monkeypatch.setattr(SimHost, "is_free", lambda self, port: port != derived[0])
    world = sets.make(nexp=2)
    assert world.play() == 0
    assert [world.set.run(run)["master_port"] for run in (1, 2)] == [derived[0] + 1, derived[1]]


def test_a_node_dies(sets: Sets) -> None:
    def plan(me: Me) -> Ends | None:
        return (exits(9) if me.rank else hangs()) if me[:2] == (2, 1) else None

    world = sets.make(plan, nexp=3)
    assert world.play() == 0
    one = world.set
    assert [one.outcomes(run) for run in (1, 2, 3)] == [
        ["success"],
        ["infrastructure", "success"],
        ["success"],
    ]
    died = one.attempt(2, 1)
    # The other node was ended with it.
    assert died["exit_codes"] == {"n1": 143, "n2": 9}
    assert died["reason"] == "node n2 (rank 1) exited 9, the other was stopped"
    assert b"run_start" in one.log(2, 1)
    assert "run 2 attempt 1 failed: node n2 (rank 1) exited 9" in world.out
    assert one.results() == [1, 2, 3] and one.run(2)["attempt"] == 2


def test_the_others_get_a_while_when_a_node_has_ended(sets: Sets) -> None:
    world = sets.make(lambda me: hangs() if me.rank == 1 else None, nexp=1)
    assert world.play() == 0
    state = world.set.run(1)
    assert (state["outcome"], state["exit_codes"]) == ("success", {"n1": 0, "n2": 143})
    assert state["reason"] == "after run_stop: node n2 (rank 1) exited 143"


def test_a_node_that_does_not_answer_is_not_waited_for(sets: Sets) -> None:
    world = sets.make(lambda me: hangs() if me.attempt == 1 else None, spares=1, nexp=1)
    world.fault("the agent of node 2 is stopped for 2 h in run 1 after 60 s")
    assert world.play() == 0
    one = world.set
    assert one.outcomes(1) == ["infrastructure", "success"]
    assert one.attempt(1, 1)["exit_codes"] == {"n1": 143, "n2": -1}


def test_attempts_used_up(sets: Sets) -> None:
    world = sets.make(lambda me: exits(7, after=300.0) if me.run == 2 else None, nodes=1, nexp=3)
    assert world.play() == 1
    one = world.set
    assert [one.outcomes(run) for run in (1, 2, 3)] == [
        ["success"],
        ["infrastructure"] * 2,
        ["success"],
    ]
    state = one.run(2)
    assert (state["state"], state["outcome"], state["attempt"]) == ("failed", "infrastructure", 2)
    assert one.results() == [1, 3] and one.job["state"] == "complete"
    told = world.out.splitlines()[-2]  # behind it only the head of the ledger
    assert (
        f"1 of 3 runs without a result; `orchestrator resume {one.root.name}` tries them again"
        in told
    )


def test_what_dies_alike_again_and_again_pauses_the_set(sets: Sets) -> None:
    """Nine more runs would only say the same."""
    world = sets.make(
        lambda me: exits(1, "ModuleNotFoundError: No module named 'x'", after=1.0), nexp=10
    )
    assert world.play() == 1
    one = world.set
    assert (one.job["state"], one.attempts(1), one.attempts(2)) == ("paused", [1, 2], [])
    assert one.run(1)["reason"].endswith("ModuleNotFoundError: No module named 'x'")
    assert (
        one.job["reason"]
        == f"2 attempts died alike, soon after their start: {one.run(1)['reason']}"
    )
    assert [one.run(run)["state"] for run in (1, 2, 10)] == ["failed", "queued", "queued"]
    world.plan = lambda me: None
    assert world.play() == 0
    assert one.results() == list(range(1, 11))


def test_refused_settings_pause_the_set_after_one_attempt(sets: Sets) -> None:
    """Two more attempts would only be refused alike, and so would those of a resume."""
    refusal = "train.py: node {0.rank}: STEPS='abc': expected a whole number"
    world = sets.make(lambda me: exits(2, refusal.format(me), after=AT_ONCE), nexp=3)
    for attempts in ([1], [1, 2]):
        assert world.play() == 1
        one = world.set
        assert (one.job["state"], one.attempts(1), one.attempts(2)) == ("paused", attempts, [])
        assert one.job["reason"] == f"settings refused at the start: {one.run(1)['reason']}"
    world.plan = lambda me: None
    assert world.play() == 0 and one.results() == [1, 2, 3]


@pytest.mark.parametrize(
    "plan",
    [
        # The node may be at fault.
        lambda me: exits(2, after=AT_ONCE) if me.rank else hangs(),
        lambda me: exits(2, after=1.0),
        lambda me: exits(2, f"error: {'x' * me.rank}", after=AT_ONCE),
        # Its settings were good enough before.
        lambda me: exits(2, after=AT_ONCE) if me.attempt > 1 else exits(3, after=AT_ONCE),
        lambda me: exits(2, after=AT_ONCE) if me.run > 1 else None,
    ],
)
def test_an_exit_code_of_two_that_is_no_refusal(
    sets: Sets, plan: Callable[[Me], Ends | None]
) -> None:
    world = sets.make(plan, nexp=2)
    assert world.play() == 1
    one = world.set
    last = 2 if one.attempts(2) else 1
    assert one.attempts(last) == [1, 2] and "refused" not in one.job["reason"]


@pytest.mark.parametrize("after_a_result", [True, False])
def test_what_dies_otherwise_or_after_a_result_does_not(sets: Sets, after_a_result: bool) -> None:
    def plan(me: Me) -> Ends | None:
        if after_a_result:
            return None if me.run == 1 else exits(3, after=1.0)
        return exits(2 + me.attempt, after=1.0)

    world = sets.make(plan, nodes=1, nexp=3)
    assert world.play() == 1
    assert world.set.job["state"] == "complete" and world.set.attempts(3) == [1, 2]


@pytest.mark.parametrize("code", [0, 3])
def test_a_run_that_missed_its_target_is_a_result(sets: Sets, code: int) -> None:
    world = sets.make(
        lambda me: exits(code, after=NEVER) if me.run == 1 else None, nodes=1, limits=LONG
    )
    world.trainings.vary(misses=frozenset({1}))
    assert world.play() == 0
    one = world.set
    assert [one.outcomes(run) for run in (1, 2)] == [["not_converged"], ["success"]]
    assert one.run(1)["state"] == "failed" and one.run(1)["reason"].startswith(
        "run_stop says aborted"
    )
    assert one.results() == [1, 2]


def test_a_good_run_that_stumbles_afterwards(sets: Sets) -> None:
    world = sets.make(lambda me: exits(5, after=NEVER) if me.run == 1 else None, nodes=1)
    assert world.play() == 0
    first = world.set.run(1)
    assert (first["state"], first["outcome"], first["attempt"]) == ("success", "success", 1)
    assert first["reason"].startswith("after run_stop: node ") and first["reason"].endswith(
        "exited 5"
    )
    assert world.set.results() == [1, 2]


def test_an_exit_code_of_zero_proves_nothing(sets: Sets) -> None:
    world = sets.make(lambda me: exits(0) if me.attempt == 1 else None, nodes=1, nexp=1)
    assert world.play() == 0
    assert world.set.outcomes(1) == ["infrastructure", "success"]
    assert world.set.attempt(1, 1)["reason"] == "no run_stop"


@pytest.mark.parametrize("back", [True, False])
def test_a_clock_that_is_set_ends_no_run(sets: Sets, back: bool) -> None:
    world = sets.make().start().running(1)
    for number in (1, 2):
        world.machine(number).step_clock(-86_400_000 if back else 86_400_000)
    loop = world.jobs.loops[world.last_job.id]
    assert loop.process.alive
    assert world.end() == 0
    assert [world.set.outcomes(run) for run in (1, 2)] == [["success"], ["success"]]


# ---- notifications


def test_a_set_notifies_of_its_score_and_its_end_once(sets: Sets) -> None:
    """The score as soon as there is one; the end of every job."""
    notify = {"command": ["/usr/bin/tell"], "events": ["score", "complete", "paused", "failed"]}
    world = sets.make(
        lambda me: exits(1, after=300.0) if me.run == 5 else None,
        nodes=1,
        nexp=5,
        notify=notify,
        limits=LONG,
    )
    world.trainings.vary(misses=frozenset({1}))
    assert world.play() == 1
    told = world.notices
    assert (
        told[-1]["event"] == "complete" and told[-1]["converged"] == 3 and told[-1]["missed"] == 1
    )
    assert "1 without reaching the target" in told[-1]["text"]
    before = [one["event"] for one in told]
    world.plan = lambda me: None
    assert world.play() == 0
    now = [one["event"] for one in world.notices]
    assert now[: len(before)] == before and now.count("score") <= 1 and now[-1] == "complete"


def test_a_time_limit_is_notified(sets: Sets) -> None:
    notify = {"command": ["/usr/bin/tell"], "events": ["paused"]}
    world = sets.make(lambda me: hangs(), nodes=1, notify=notify).start().running(1)
    world.signal(signal.SIGUSR1)
    world.end()
    [told] = world.notices
    assert (told["event"], told["state"]) == ("paused", "time_limit")


def test_an_address_that_the_job_lacks_is_logged_and_costs_nothing(sets: Sets) -> None:
    world = sets.make(nodes=1, nexp=1, notify={"webhook": "HOOK", "events": ["complete"]})
    assert world.play() == 0 and world.set.job["state"] == "complete"
    assert "HOOK is not set in the job's environment" in world.out and world.notices == []
