"""Nodes of a real job fail one after the other: the reason of each attempt, and `explain`'s rules, name the first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from run_sets import Set
from test_set import WORKLOAD, Bench, bench_at

from orchestrator.causes.first import Ended, first_cause
from orchestrator.causes.reading import symptoms
from orchestrator.evidence.sets import SetEvidence

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab

SYSTEM = "MI300X_04x08x32"
FIRST = {1: ("die", 2), 2: ("kill", 0), 3: ("kill", 3), 4: ("die", 0)}
"""Attempt of run 1 -> how the node ends in it, and its rank; the others lose it, each in its own time."""


@pytest.fixture
def bench(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from bench_at(lab, request.node.name)


@pytest.mark.long
def test_the_node_that_failed_first_is_named_in_every_attempt(bench: Bench) -> None:
    faults = ",".join(
        f"{kind}:run=1:attempt={number}:node={rank}" for number, (kind, rank) in FIRST.items()
    )
    given = ("--nexp", "1", "--env", f"BUILTIN_FAULT={faults}")
    bench.add_to_site(f"limits: {{attempts: {len(FIRST) + 1}}}\n")
    answer = bench.orchestrator("submit", SYSTEM, WORKLOAD, *given)
    assert answer.returncode == 0, answer.stderr
    watched = bench.orchestrator("watch", bench.only_set())
    assert watched.returncode == 0, watched.stderr
    run_set = Set(bench.only_set())
    files = SetEvidence(run_set.root)
    assert run_set.outcomes(1) == [*["infrastructure"] * len(FIRST), "success"]
    for attempt, (_, rank) in FIRST.items():
        state = run_set.attempt(1, attempt)
        nodes = state["nodes"]
        named = (f"node {nodes[rank]} (rank {rank}) ", f"{nodes[rank]}: ")
        assert state["reason"].startswith(named), state["reason"]
        records = files.ends(1, attempt)
        ends = {
            node: Ended(
                state["exit_codes"].get(node),
                records[k].end_ms - records[k].start_ms if k in records else None,
            )
            for k, node in enumerate(nodes)
        }
        logs = {
            node: symptoms((run_set.root / f"runs/1/attempt_{attempt}/node_{k}.log").read_bytes())
            for k, node in enumerate(nodes)
        }
        cause = first_cause(logs, ends)
        assert cause is not None and cause[0] == nodes[rank], (attempt, cause, ends)
