"""Several runs of a set at once, each on nodes of its own: who runs what, what a dead node costs, and when the set has to stop."""

from __future__ import annotations

import signal
from collections import Counter

import pytest
from worlds import Ends, Me, Sets, World, exits, hangs

from orchestrator.onnode.loop.set_job import MEET_DIVISOR


def loses_power(world: World, *who: tuple[str, int]) -> None:
    """Have nodes die under the first run from a number on that they get: pairs of node and number."""
    left = dict(who)

    def plan(me: Me) -> Ends | None:
        if left.get(me.node, 1000) <= me.run:
            del left[me.node]
            world.engine.after(100.0, lambda: world.fault(f"node {me.node[1:]} dies for 30 d"))
        return None

    world.plan = plan


def breaks(world: World, node: str) -> None:
    """Have the agent of a node be killed under its first run, and no container start there any more."""

    def happens() -> None:
        world.fault(f"the agent of node {node[1:]} is killed")
        world.machines[node].change(broken_container="no space left on device")

    def plan(me: Me) -> Ends | None:
        if me.node == node:
            world.engine.after(100.0, happens)
        return None

    world.plan = plan


def groups_running(world: World, count: int) -> World:
    return world.play_until(lambda: len({me.run for _, me in world.ran}) == count).wait(20.0)


@pytest.mark.parametrize("power", [True, False])
def test_ten_runs_on_three_nodes_and_a_spare_one(sets: Sets, power: bool) -> None:
    world = sets.make(nodes=1, nexp=10, side_by_side=3, spares=1)
    loses_power(world, ("n2", 1)) if power else breaks(world, "n2")
    assert world.play() == 0
    one = world.set
    assert one.results() == list(range(1, 11))
    states = [one.run(run) for run in range(1, 11)]
    assert {state["state"] for state in states} == {"success"}
    assert (
        len({state["seed"] for state in states})
        == len({state["master_port"] for state in states})
        == 10
    )
    assert {node for state in states for node in state["nodes"]} == {"n1", "n3", "n4"}
    [lost] = [run for run in range(1, 11) if one.attempts(run) != [1]]
    assert one.outcomes(lost) == ["infrastructure", "success"]
    if power:  # Slurm says that it is down, or it cannot be reached before: nobody has to blame it
        assert [
            event.node for word in ("lost", "aside") for event in one.events(word, group=2)
        ] == ["n2"]
    else:
        assert one.excluded() == [("n2", lost)]
    most = world.most_at_once()
    assert most.pop("all") == 3 and set(most.values()) == {1}, most
    assert max(Counter(state["nodes"][0] for state in states).values()) <= 4, (
        "as even as 10 runs on 3 nodes can be"
    )
    assert [event.node for event in one.events("joined", group=2)] == ["n4"]
    assert one.job["spares"] == [] and "groups" not in one.job
    assert "10 runs on 1 node, 3 side by side, 1 to spare" in world.out


@pytest.mark.parametrize("spares", [0, 1])
def test_a_node_unlike_those_of_the_other_groups_runs_nothing(sets: Sets, spares: int) -> None:
    world = sets.make(nodes=1, nexp=4, side_by_side=3, spares=spares)
    world.machine(1).change(facts={"kernel": "5.9", "driver": "6.12.12"})
    assert world.play() == 0
    one = world.set
    assert one.results() == [1, 2, 3, 4] and all(one.attempts(run) == [1] for run in range(1, 5))
    assert "n1" not in {node for run in range(1, 5) for node in one.run(run)["nodes"]}
    if spares:
        assert [(entry["node"], entry["kind"]) for entry in one.job["set_aside"]] == [
            ("n1", "versions")
        ]
        assert [text for text in one.job["warnings"] if "no more runs" in text] == []
    else:
        assert any(
            "no more runs on n1: node n1: kernel is 5.9" in text for text in one.job["warnings"]
        )


def test_groups_wait_a_while_for_one_another_and_who_comes_later_has_to_be_like_them(
    sets: Sets,
) -> None:
    world = sets.make(nodes=1, nexp=3, side_by_side=3, limits={"container_start_seconds": 300})
    for number in (2, 3):
        machine = world.machine(number)
        machine.change(facts={"kernel": "5.9", "driver": "6.12.12"})
        machine.slow_down(20.0)
    assert world.play() == 0
    one = world.set
    assert {node for run in range(1, 4) for node in one.run(run)["nodes"]} == {"n1"}, (
        "not most, but the first"
    )
    refused = [text for text in one.job["warnings"] if "no more runs" in text]
    assert len(refused) == 2 and all("kernel is" in text for text in refused), refused


def test_a_group_waits_once_for_another_that_is_not_ready(sets: Sets) -> None:
    limit_s = 300
    world = sets.make(
        lambda me: exits(3, after=1.0) if me[:2] == (1, 1) else None,
        nodes=1, nexp=2, side_by_side=2, limits={"container_start_seconds": limit_s},
    )  # fmt: skip
    world.machine(2).slow_down(20.0)
    world.start().running(2)
    world.machine(2).slow_down(1.0)
    one = world.set
    ready, attempts = one.events("ready"), one.events("attempt")
    assert one.events("ready", group=2) == [] and len(attempts) == 2
    waits_s = [(to.ms - since.ms) / 1000 for since, to in zip(ready, attempts, strict=True)]
    assert waits_s[0] >= limit_s / MEET_DIVISOR > 5 > waits_s[1], waits_s
    assert world.end() == 0


def test_every_run_that_is_going_on_is_on_record(sets: Sets) -> None:
    world = sets.make(nodes=1, nexp=3, side_by_side=2).start()
    groups_running(world, 2)
    job = world.set.job
    assert sorted((one["run"], one["attempt"]) for one in job["groups"]) == [(1, 1), (2, 1)]
    assert [one["nodes"] for one in job["groups"]] == [["n1"], ["n2"]] and job["nodes"] == [
        "n1",
        "n2",
    ]
    assert job["run"] in (1, 2)
    world.play_until(lambda: {one["run"] for one in world.set.job.get("groups", [])} == {0, 3})
    assert world.end() == 0
    assert world.set.results() == [1, 2, 3] and world.set.job["state"] == "complete"


def test_a_group_without_a_spare_ends_alone_and_another_number_goes_on(sets: Sets) -> None:
    world = sets.make(nodes=2, nexp=6, side_by_side=2)
    loses_power(world, ("n2", 1), ("n4", 3), ("n3", 5))
    assert world.play() == 1
    one = world.set
    assert one.job["state"] == "paused", one.job
    assert [entry["node"] for entry in one.job["set_aside"] if entry["kind"] != "silent"] == []
    assert {node for node, _ in one.excluded()} == {"n2", "n3", "n4"}
    [told] = [text for text in one.job["warnings"] if text.startswith("no more runs on ")]
    assert " nodes fit, 2 needed; " in told
    assert " nodes fit, 2 needed; " in one.job["reason"]
    assert [event.node for group in (1, 2) for event in one.events("joined", group=group)] in (
        ["n1"],
        ["n3"],
        ["n1", "n3"],
    )
    done = one.results()
    assert {1, 2} <= set(done) and not {5, 6} & set(done)
    for number in (2, 3, 4):
        world.jobs.power_on(f"n{number}")
        world.cluster.node_up(f"n{number}", rebooted=True)
    assert world.play() == 0
    assert one.results() == [1, 2, 3, 4, 5, 6]


def test_a_node_on_which_every_run_dies_takes_few_of_them(sets: Sets) -> None:
    world = sets.make(
        lambda me: exits(3) if me.node == "n1" else None, nodes=1, nexp=8, side_by_side=3
    )
    assert world.play() == 0
    one = world.set
    assert one.results() == list(range(1, 9))
    dead = [run for run in range(1, 9) if one.attempts(run) != [1]]
    assert 1 <= len(dead) <= 3, "its runs go to the others, and after three it gets no more"
    assert {node for run in range(1, 9) for node in one.run(run)["nodes"]} == {"n2", "n3"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_ends_all_of_them(sets: Sets, number: int) -> None:
    world = sets.make(lambda me: hangs(), nodes=1, nexp=5, side_by_side=3, spares=1).start()
    groups_running(world, 3).signal(number)
    assert world.end() == 1
    one = world.set
    assert one.job["state"] == ("cancelled" if number == signal.SIGTERM else "time_limit")
    assert [one.outcomes(run) for run in range(1, 6)] == [["interrupted"]] * 3 + [[]] * 2


def test_a_job_that_was_killed_with_several_runs_goes_on(sets: Sets) -> None:
    world = sets.make(nodes=1, nexp=4, side_by_side=3).start()
    groups_running(world, 3).kill_job()
    assert world.play() == 0
    one = world.set
    assert one.results() == [1, 2, 3, 4]
    assert [one.outcomes(run) for run in range(1, 5)] == [["interrupted", "success"]] * 3 + [
        ["success"]
    ]


def test_a_set_that_is_anothers_closes_all_runs(sets: Sets) -> None:
    world = sets.make(nodes=1, nexp=3, side_by_side=3).start()
    (groups_running(world, 3).set.root / "loop.lock").unlink()
    assert world.end() == 1
    assert "is not this job's any more" in world.out


@pytest.mark.parametrize("node", [1, 2])
def test_of_two_nodes_that_differ_the_other_groups_tell_which_is_wrong(
    sets: Sets, node: int
) -> None:
    world = sets.make(nodes=2, nexp=2, side_by_side=2, spares=1)
    world.machine(node).change(image="sha256:" + "7" * 64)
    assert world.play() == 0
    assert (world.set.excluded(), len(world.set.jobs())) == ([(f"n{node}", 0)], 1)


def test_a_slow_node_slows_the_whole_run_and_costs_none(sets: Sets) -> None:
    world = sets.make(nodes=2, nexp=1, limits={"run_timeout_minutes": 240})
    world.fault("node 1 is slow for 10 h")
    assert world.play() == 0
    assert (world.set.outcomes(1), world.set.excluded()) == (["success"], [])
