"""The comparison of the lab with the simulation (reality.py; 30 sets of each: `make reality`)."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
import reality
from reality import CALM, SCRIPT, Pace, compare, outcomes, simulated

from orchestrator.simulation.machine import NodePace, Span

Records = list[dict[str, Any]]
SETS = 6


@cache
def played(container: Span = (4.0, 15.0)) -> Records:
    """The training ends at once on TERM; steps end at once, as on the lab."""
    nodes = NodePace(
        container=container, stop=(0.1, 0.3), release=(1.0, 1.5), task_end=0.0, step_end=0.0
    )
    paces = [Pace(nodes, (0.1, 0.3), (0.1, 0.3))]
    return simulated([*range(1, SETS + 1), *range(CALM, CALM + 4)], paces)


def changed(path: tuple[Any, ...], value: Any) -> Records:
    """Return the records with another value in all sets with faults."""
    records = copy.deepcopy(played())
    for entry in records[:SETS]:
        place: Any = entry
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value(place[path[-1]]) if callable(value) else value
    return records


def test_each_kind_of_fault_has_its_effect() -> None:
    stops, cost, ends = ["success"], ["infrastructure", "success"], ["interrupted", "success"]
    jobs = ["failed", "cancelled", "time_limit", "complete"]
    for entry in played()[:SETS]:
        runs = [stops, cost, cost, cost, cost, cost, cost, stops, ends, stops, ends, ends]
        assert [row["outcomes"] for row in entry["runs"]] == runs
        assert entry["jobs"] == jobs
        assert entry["blamed"] == [
            ["exit", "2"],
            ["exit", "3"],
            ["container", "6"],
            ["silent", "7"],
        ]
        assert len(entry["faults"]) == len(SCRIPT) >= 10


def test_a_world_agrees_with_itself() -> None:
    text, agree = compare(played(), played())
    assert agree
    assert text.endswith("agree")


def test_how_long_a_container_takes_to_start_is_no_difference() -> None:
    slower = played((40.0, 50.0))
    assert reality.overhead(slower).start > 2 * reality.overhead(played()).start
    assert compare(played(), slower)[1]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("runs", 3, "outcomes"), ["hardware", "success"]),
        (("jobs",), ["failed", "cancelled", "complete"]),
        (("blamed",), []),
        (("steps",), [3]),
        (("set", "seconds"), lambda seconds: seconds + 60),  # more than six sets differ by
    ],
)
def test_another_outcome_or_longer_sets_are_a_difference(path: tuple[Any, ...], value: Any) -> None:
    text, agree = compare(played(), changed(path, value))
    assert not agree
    assert text.endswith("DIFFER")


def test_the_simulation_takes_its_pace_from_sets_without_faults() -> None:
    """Played with the pace that was measured in them, sets without faults take what they took."""
    calm = played()[SETS:]
    paces = [reality.measured(entry) for entry in calm]
    again = simulated(range(CALM, CALM + 4), paces)
    first, second = reality.overhead(calm), reality.overhead(again)
    assert all(pace.nodes.container != NodePace().container for pace in paces)
    assert abs(first.start - second.start) < 0.25 * first.start
    assert abs(first.job - second.job) < 0.25 * first.job
    assert abs(first.attempt - second.attempt) < 0.25 * first.attempt


@pytest.mark.long
@pytest.mark.lab
def test_a_set_on_the_lab_ends_as_in_the_simulation() -> None:
    lab = reality.on_lab(1, None)
    assert outcomes(lab) == outcomes(played()[0])
