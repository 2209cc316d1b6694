"""Failures of several nodes, made in the simulated world, and whether `explain` names the first rank: `python tests/simulation/first_ranks.py`.

Each seed plays a set with the real loop and log files. A rank fails by itself; the others lose it, louder and in their own
time, or hang until the loop stops them. The nodes' clocks are seconds apart, some logs have stamps of these clocks, and in some
sets a log is missing.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

if __name__ == "__main__":
    TOP = Path(__file__).resolve().parents[2]
    sys.path[:0] = [
        str(TOP),
        str(TOP / "tests"),
        str(TOP / "tests/sets"),
        str(Path(__file__).parent),
    ]

from rank_failures import ECHOES, FAILURES
from worlds import Sets, World

from orchestrator.evidence.explain import explain
from orchestrator.evidence.picture import picture
from orchestrator.evidence.progress import Logs
from orchestrator.evidence.sets import SetEvidence
from orchestrator.simulation.engine import NEVER
from orchestrator.simulation.node_run import Part, TrainingRun

LOUD = 40
"""Repetitions of a loud rank's end."""


@dataclass
class Failure:
    """The plan of a set. `skews` are in milliseconds; `lost`: the rank without a log, or None."""

    seed: int
    nodes: int
    first: int
    kind: str
    skews: list[int]
    has_stamps: bool
    late: dict[int, float]
    """Seconds after the first rank, for each other rank that ends by itself; the rest hang."""
    echo: dict[int, str]
    loud: set[int]
    lost: int | None
    at_s: float = 70.0


def failure(seed: int) -> Failure:
    chance = random.Random(seed)
    nodes = chance.randint(2, 8)
    ranks = list(range(nodes))
    first = chance.choice(ranks)
    others = [rank for rank in ranks if rank != first]
    late = {rank: chance.uniform(0.3, 9.0) for rank in others if chance.random() < 0.8}
    lost = chance.choice(others) if seed % 3 == 0 and len(others) > 1 else None
    return Failure(
        seed,
        nodes,
        first,
        kind=sorted(FAILURES)[seed % len(FAILURES)],
        skews=[chance.randint(-15000, 15000) for _ in ranks],
        has_stamps=chance.random() < 0.5,
        late=late,
        echo={rank: chance.choice(ECHOES) for rank in others},
        loud={rank for rank in others if chance.random() < 0.4},
        lost=first if seed % 7 == 6 else lost,
    )


class FailingWorld(World):
    """A world with a failing attempt."""

    failure: Failure

    def _part(self, run: TrainingRun) -> Part:
        usual, plan, rank = super()._part(run), self.failure, run.rank
        # The clocks drift once the run has started: before it, the loop refuses such a node.
        self.machines[run.agent.name].step_clock(plan.skews[rank])
        if rank != plan.first and rank not in plan.late:
            return Part(_before(usual, plan.at_s), NEVER)
        after = plan.at_s + plan.late.get(rank, 0.0)
        text, code = FAILURES[plan.kind] if rank == plan.first else (plan.echo[rank], 1)
        wall_ms = self.engine.wall_ms + int(1000 * after) + self.machines[run.agent.name].clock_ms
        stamp = f"{datetime.fromtimestamp(wall_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S.%f} "
        line = f"{stamp if plan.has_stamps else ''}[rank{rank}]: {text.format(rank=rank)}\n"
        count = LOUD if rank in plan.loud else 1
        last = line.encode() * count if text else b""
        return Part((*_before(usual, after), (after, last)), after, code)


def _before(part: Part, seconds: float) -> tuple[tuple[float, bytes], ...]:
    return tuple(line for line in part.lines if line[0] <= seconds)


def named_first(sets: Sets, plan: Failure) -> tuple[str, str]:
    """Play the set of a failure; return the first node, and the node named by `explain`, or ""."""
    limits = {"attempts": 1}
    world = sets.make(nodes=plan.nodes, nexp=1, seed=plan.seed, limits=limits, world=FailingWorld)
    assert isinstance(world, FailingWorld)
    world.failure = plan
    world.play()
    root = world.set.root
    state = world.set.attempt(1, 1)
    if plan.lost is not None:
        (root / f"runs/1/attempt_1/node_{plan.lost}.log").unlink()
    files = SetEvidence(root)
    found = explain(files, picture(files, {}, Logs()))
    nodes = state["nodes"]
    sets.forget()
    names = [node for node in nodes if re.search(rf"{node}(:| \()", found.sentence)]
    rank = re.search(r"node_(\d+)\.log$", found.evidence[0].file) if found.evidence else None
    if not names and rank:
        names = [nodes[int(rank[1])]]
    return nodes[plan.first], names[0] if len(names) == 1 else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=60)
    args = parser.parse_args()
    right: Counter[str] = Counter()
    number: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        sets = Sets(Path(folder))
        for seed in range(args.seeds):
            plan = failure(seed)
            first, named = named_first(sets, plan)
            number[plan.kind] += 1
            right[plan.kind] += named == first
            if named != first:
                print(f"seed {seed}: {plan.kind} of {first}, named {named or 'none'}; {plan}")
    for kind in sorted(number):
        print(f"{kind:<12} {right[kind]:>3} of {number[kind]}")
    total, found = number.total(), right.total()
    print(f"first rank named: {found} of {total} ({100 * found / total:.1f} %)")
    return 0 if found >= 0.95 * total else 1


if __name__ == "__main__":
    sys.exit(main())
