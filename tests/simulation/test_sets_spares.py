"""Two ranks on three or four nodes: who takes over, what is on record, and when the set has to stop."""

from __future__ import annotations

import signal

import pytest
from worlds import Ends, Me, Sets, World, exits, hangs

from orchestrator.onnode.loop.step import MAX_SAID, SAID_AGAIN
from orchestrator.simulation.deep import MeasuringAgent

ERROR = "RuntimeError: HIP error: no device"


def only(*parts: tuple[int, int, int], ends: Ends | None = None) -> object:
    """Return a plan: the given parts (run, attempt, rank) exit with 3, and the others of their attempts hang."""
    attempts = {part[:2] for part in parts}

    def plan(me: Me) -> Ends | None:
        if me[:3] in parts:
            return ends or exits(3)
        return hangs() if me[:2] in attempts else None

    return plan


def test_a_spare_waits_and_is_on_record(sets: Sets) -> None:
    world = sets.make(spares=1)
    assert world.play() == 0
    one = world.set
    assert (one.job["nodes"], one.job["spares"], one.job["set_aside"]) == (["n1", "n2"], ["n3"], [])
    assert one.results() == [1, 2]
    assert [one.run(run)["nodes"] for run in (1, 2)] == [["n1", "n2"]] * 2


@pytest.mark.parametrize("rank", [0, 1])
def test_a_node_on_which_a_run_dies_is_replaced(sets: Sets, rank: int) -> None:
    world = sets.make(only((2, 1, rank)), spares=1, nexp=3, limits={"attempts": 1})
    assert world.play() == 0
    one = world.set
    assert one.results() == [1, 2, 3]
    assert one.outcomes(2) == ["infrastructure", "success"], (
        "the attempt that the node cost is not the run's"
    )
    assert one.excluded() == [(f"n{rank + 1}", 2)]
    assert "run 2 died there" in one.job["set_aside"][0]["reason"]
    now = {0: ["n2", "n3"], 1: ["n1", "n3"]}[rank]
    assert one.attempt(2, 1)["nodes"] == ["n1", "n2"]
    assert one.run(2)["nodes"] == one.run(3)["nodes"] == one.job["nodes"] == now


def test_a_node_that_ends_early_with_0_is_blamed_after_the_grace(sets: Sets) -> None:
    """The image of flux1 exits with 0 whatever happened, and the other nodes wait for it."""
    world = sets.make(only((1, 1, 1), ends=exits(0, ERROR)), spares=1, nexp=1)
    assert world.play() == 0
    one = world.set
    assert one.outcomes(1) == ["infrastructure", "success"]
    assert (
        one.attempt(1, 1)["reason"]
        == f"node n2 (rank 1) ended without a result, the other was stopped; n2: {ERROR}"
    )
    assert one.excluded() == [("n2", 1)]
    assert "ended there first, without run_stop: RuntimeError" in one.job["set_aside"][0]["reason"]
    assert one.run(1)["nodes"] == ["n1", "n3"]


def test_ranks_follow_the_host_names_also_after_a_spare_took_over(sets: Sets) -> None:
    """torchrun numbers nodes by their full host names, as texts, whatever ranks they are given."""
    world = sets.make(only((1, 1, 0)), spares=1, nexp=1)
    assert world.play() == 0
    one = world.set
    assert one.attempt(1, 1)["nodes"] == ["n1", "n2"]
    assert one.run(1)["nodes"] == one.job["nodes"] == ["n2", "n3"], (
        "n3 comes in place of n1, as the last"
    )
    assert sorted((me.node, me.rank) for _, me in world.ran if me.attempt == 2) == [
        ("n2", 0),
        ("n3", 1),
    ]
    assert [
        event.detail.split("\x1f")[0] for event in one.events("host") if event.node == "n3"
    ] == ["n3.cluster"]
    assert len(one.events("ordered")) == 2


def test_a_program_that_fails_everywhere_is_nobodys_fault(sets: Sets) -> None:
    world = sets.make(lambda me: exits(3) if me.attempt == 1 else None, spares=1, nexp=1)
    assert world.play() == 0
    assert world.set.excluded() in ([], [("n1", 1)], [("n2", 1)])
    assert world.set.outcomes(1) == ["infrastructure", "success"]


@pytest.mark.parametrize(
    "fault",
    ["the agent of node 2 is killed", "node 2 dies", "the agent of node 2 is stopped for 1 h"],
)
def test_a_node_that_went_silent_is_replaced(sets: Sets, fault: str) -> None:
    world = sets.make(spares=1, nexp=1)
    world.fault(f"{fault} in run 1")
    assert world.play() == 0
    one = world.set
    assert one.outcomes(1) == ["infrastructure", "success"]
    assert one.excluded() == [("n2", 1)]
    assert "went silent" in one.job["set_aside"][0]["reason"]
    assert one.run(1)["nodes"] == ["n1", "n3"]


@pytest.mark.parametrize(
    ("when", "seed"),
    [
        ("at the end of run 2", 1),
        ("at the end of run 2", 3),
        ("at the end of run 2", 5),
        ("before run 3", 1),
        ("in run 2", 1),
        ("for 1 day at the end of run 2", 1),
    ],
)
def test_a_node_that_slurm_sets_down_is_replaced(sets: Sets, when: str, seed: int) -> None:
    """Slurm takes it out of the job for good, even if the node is soon idle again."""
    world = sets.make(spares=1, nexp=3, seed=seed)
    world.fault(f"Slurm sets node 2 down {when}")
    assert world.play() == 0
    one = world.set
    assert one.results() == [1, 2, 3] and one.job["state"] == "complete"
    assert one.run(3)["nodes"] == ["n1", "n3"]
    assert "n2" not in world.last_job.nodes


def test_a_step_that_slurm_refuses_without_a_spare_names_the_lost_node(sets: Sets) -> None:
    world = sets.make(nexp=3)
    world.fault("Slurm sets node 2 down at the end of run 2")
    assert world.play() == 1
    assert world.set.job["state"] == "paused"
    assert "Slurm has lost it (removed from the job)" in world.set.job["reason"]


def test_a_node_that_sends_too_much_is_replaced(sets: Sets) -> None:
    world = sets.make(spares=1, nexp=2)
    world.fault("node 2 sends too much for 10 h in run 1")
    assert world.play() == 0
    one = world.set
    assert one.outcomes(1) == ["infrastructure", "success"] and one.outcomes(2) == ["success"]
    assert one.excluded() == [("n2", 1)]
    assert "node n2 (rank 1) was given up: it sends too much" in one.attempt(1, 1)["reason"]
    assert "in run 1 it sends too much" in one.job["set_aside"][0]["reason"]
    assert one.run(1)["nodes"] == one.run(2)["nodes"] == ["n1", "n3"]


def test_without_a_spare_a_node_that_sends_too_much_is_used_again_and_fills_no_disk(
    sets: Sets,
) -> None:
    world = sets.make(nexp=2, limits={"attempts": 4})
    for attempt in range(3):
        world.fault(f"node 2 sends too much at {100 + 200 * attempt} s")
    assert world.play() == 0
    one = world.set
    *died, last = (one.attempt(1, attempt)["reason"] for attempt in one.attempts(1))
    assert len(died) == 3 and all("it sends too much" in reason for reason in died) and last == ""
    assert [path.name for path in one.root.glob("events-*")] == ["events-1.tsv"]
    assert (one.root / "events-1.tsv").stat().st_size < 2 * (MAX_SAID + 2 * SAID_AGAIN)


@pytest.mark.parametrize("lasts", ["", " for 10 h"])
def test_a_node_that_speaks_for_another_one_is_replaced(sets: Sets, lasts: str) -> None:
    """n2 says that n3 has left. With a line of its own it would end another node's part, and that one would be blamed."""
    world = sets.make(nodes=3, spares=1, nexp=2)
    world.fault(f"node 2 speaks for another node{lasts} in run 1")
    assert world.play() == 0
    one = world.set
    assert one.outcomes(1) == ["infrastructure", "success"] and one.outcomes(2) == ["success"]
    assert one.excluded() == [("n2", 1)]
    why = "it sends lines in the name of node n3"
    assert f"node n2 (rank 1) was given up: {why}" in one.attempt(1, 1)["reason"]
    assert one.job["set_aside"][0]["reason"] == f"in run 1 {why}"
    assert [(event.node, event.detail) for event in one.events("forged")] == [("n2", "left n3 ")]


def test_spares_that_took_over_are_heard_under_their_own_names(sets: Sets) -> None:
    """The order of the tasks is Slurm's; that of the candidates, those with a rank first, is another one then."""
    world = sets.make(only((1, 1, 0)), nodes=3, spares=1, nexp=2)
    assert world.play() == 0
    assert world.set.excluded() == [("n1", 1)] and world.set.events("forged") == []


def test_tasks_that_slurm_orders_otherwise_than_the_names_are_known_all_the_same(
    sets: Sets,
) -> None:
    """As at a site whose slurm.conf names its nodes in no order."""
    world = sets.make(only((1, 1, 0)), nodes=3, spares=1, nexp=2)
    machines = dict(world.machines)
    world.machines.clear()
    world.machines.update((name, machines[name]) for name in ("n3", "n1", "n4", "n2"))
    assert world.play() == 0
    assert world.set.excluded() == [("n1", 1)] and world.set.events("forged") == []


def test_without_a_spare_a_node_that_never_stops_sending_pauses_the_set(sets: Sets) -> None:
    world = sets.make(nexp=2)
    world.fault("node 2 sends too much for 1 day in run 1")
    assert world.play() == 1
    assert world.set.outcomes(1) == ["infrastructure"]
    assert "node n2 (rank 1): it sends too much" in world.set.job["reason"]


def test_without_a_spare_left_blamed_nodes_are_asked_again(sets: Sets) -> None:
    world = sets.make(only((1, 1, 1), (1, 2, 1)), spares=1, nexp=1)
    assert world.play() == 0
    assert world.set.outcomes(1) == ["infrastructure", "infrastructure", "success"]
    assert world.set.excluded() == [("n2", 1), ("n3", 1)]
    assert "node n2 is used only if too few others are left: run 1 died there" in world.out
    assert "is excluded" not in world.out


def test_a_program_that_fails_on_one_node_after_the_other_comes_to_an_end(sets: Sets) -> None:
    world = sets.make(lambda me: exits(3) if me.rank == 1 else hangs(), nexp=1, spares=2)
    assert world.play() == 1
    # Two of its own, and one for each spare node.
    assert world.set.outcomes(1) == ["infrastructure"] * 4
    assert world.set.job["state"] == "complete"


def test_the_node_that_was_blamed_longest_ago_is_asked_first(sets: Sets) -> None:
    """Ranks follow the names, so the first rank is not always that of the node that came last."""
    blamed = ["n1", "n2", "n3", "n1"]

    def plan(me: Me) -> Ends | None:
        if me.attempt > len(blamed):
            return None
        return exits(3) if me.node == blamed[me.attempt - 1] else hangs()

    world = sets.make(plan, nexp=1, spares=1, limits={"attempts": 5})
    assert world.play() == 0
    held = [world.set.attempt(1, attempt)["nodes"] for attempt in world.set.attempts(1)]
    assert held == [["n1", "n2"], ["n2", "n3"], ["n1", "n3"], ["n1", "n2"], ["n2", "n3"]]


def test_nodes_are_not_asked_for_again_when_every_run_is_done(sets: Sets) -> None:
    world = sets.make(lambda me: exits(3, after=1e9) if me[:3] == (2, 1, 1) else None)
    assert world.play() == 0
    assert world.set.results() == [1, 2]
    assert "renewed" not in world.out and world.set.job["state"] == "complete"


# ---- before the first run


def unfit(world: World, number: int, how: str) -> None:
    machine = world.machine(number)
    if how == "check":
        machine.change(failing={"gpu_errors": "GPU 3 has 2 uncorrectable errors"})
    elif how == "container":
        machine.change(broken_container="no space left on device")
    elif how == "image":
        machine.change(image="sha256:" + "7" * 64)
    elif how == "settings":
        machine.change(untunable="k wanted 1, found 0")
    elif how == "kernel":
        machine.change(facts={**machine.condition.facts, "kernel": "5.9"})
    else:
        machine.change(refuses="k wanted 1")


@pytest.mark.parametrize(
    ("how", "run", "reason"),
    [
        ("check", 0, "check gpu_errors: GPU 3 has 2 uncorrectable errors"),
        ("container", 0, "no space left on device"),
        ("image", 0, "image is sha256:7777"),
        ("kernel", 0, "kernel is 5.9"),
        ("settings", 0, "tunables: k wanted 1, found 0"),
        ("gate", 1, "before run 1: k wanted 1"),
    ],
)
def test_a_node_that_is_not_fit_costs_only_its_place(
    sets: Sets, how: str, run: int, reason: str
) -> None:
    world = sets.make(spares=2, tunables="apply")
    unfit(world, 1, how)
    assert world.play() == 0
    one = world.set
    assert one.excluded() == [("n1", run)]
    assert reason in one.job["set_aside"][0]["reason"]
    assert sorted(one.job["nodes"]) == ["n2", "n3"] and one.job["spares"] == ["n4"]
    assert one.results() == [1, 2]
    if how == "settings":
        assert "n1\ttunables\tfail" in (one.root / f"preflight/{one.job['job_id']}.tsv").read_text()


def test_a_second_hold_does_not_measure_the_bandwidth_again(sets: Sets) -> None:
    world = sets.make(only((1, 1, 1), (1, 2, 1)), spares=1, nexp=1, preflight={"deep": True})
    assert world.play() == 0
    assert world.out.count("orchestrator: deep: ") == 1 and len(world.set.events("hold")) > 1


def test_a_node_with_slow_links_gets_no_rank(sets: Sets) -> None:
    world = sets.make(spares=1, nexp=1, preflight={"deep": True, "deep_gbps": 100})
    world.machine(1).slow_down(4.0)
    assert world.play() == 0
    one = world.set
    assert "n1" not in one.job["nodes"] and "; slow or silent: n1" in world.out
    assert "n1\tdeep\tfail" in (one.root / f"preflight/{one.job['job_id']}.tsv").read_text()


def test_a_node_that_dies_while_the_bandwidth_is_measured_gets_no_rank(sets: Sets) -> None:
    world = sets.make(spares=1, nexp=1, preflight={"deep": True}).start()
    world.play_until(
        lambda: any(isinstance(agent, MeasuringAgent) for agent in world.jobs.agents["n2"])
    )
    world.jobs.power_off("n2")
    assert world.end() == 0
    assert "n2" not in world.set.job["nodes"] and "; slow or silent: n2" in world.out


def test_too_few_fit_nodes_pause_the_set(sets: Sets) -> None:
    world = sets.make(spares=1)
    for number in (1, 2, 3):
        unfit(world, number, "container")
    assert world.play() == 1
    assert world.set.job["state"] in ("paused", "failed")
    assert " of 3 nodes fit, 2 needed; " in world.set.job["reason"]
    for machine in world.machines.values():
        machine.change(broken_container="")
    assert world.play() == 0
    assert world.set.results() == [1, 2]


@pytest.mark.parametrize("spares", [0, 1])
def test_a_signal_during_the_checks(sets: Sets, spares: int) -> None:
    world = sets.make(nexp=1, spares=spares).start()
    agents = world.jobs.agents["n1"]
    world.play_until(lambda: bool(agents) and agents[0].looked and not agents[0].checked)
    world.signal(signal.SIGTERM)
    assert world.end() == 1
    one = world.set
    assert one.job["state"] == "cancelled"
    assert one.attempts(1) == [] and one.run(1)["state"] == "queued"
    assert list((one.root / "preflight").glob(".*")) == []
