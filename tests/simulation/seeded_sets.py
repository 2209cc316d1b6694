"""Play whole sets with random faults, one per seed, and check every invariant after each: `make sim SEEDS=1000`.

A seed chooses kinds of faults and their moments, plays a set from `submit` to its score, and checks it. A seed that
fails is shrunk to the fewest faults with which it still fails, and the command that plays just that is printed.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from orchestrator.model import Site, load_entry
from orchestrator.simulation import faults, invariants
from orchestrator.simulation.engine import Stuck
from orchestrator.simulation.faults import Fault
from orchestrator.simulation.play import Rendered, Simulation, User

NODES, SPARES, RUNS = 3, 1, 3
RUN_S = 600.0
LIMIT_S = 40 * 86400.0
"""No set may take longer in virtual time once its faults are over."""
SYSTEM = """kind: system
name: three_nodes
accelerator: cpu
nodes: 3
gpus_per_node: 1
workloads:
  builtin:
    "1.0": {micro_batch: 8, global_batch: 24}
"""


def memory() -> Path:
    """Return a folder in memory, if the machine has one."""
    place = Path("/dev/shm")
    return place if os.access(place, os.W_OK) else Path(tempfile.gettempdir())


@cache
def bundle(place: Path) -> Rendered:
    """Return the bundle of all sets that are played below `place`."""
    (place / "systems").mkdir(parents=True, exist_ok=True)
    (place / "systems/three_nodes.yaml").write_text(SYSTEM)
    site = Site(
        scheduler="slurm",
        partition="batch",
        log_dir=str(place / "sets"),
        container={"engine": "docker"},
        spares=SPARES,
        limits={"attempts": 3, "run_timeout_minutes": 40, "storage_wait_minutes": 30},
    )
    return Rendered(load_entry("three_nodes", "builtin", site=site, systems_dirs=[place / "systems"]), RUNS)


@dataclass
class Trial:
    """One seed. `found` are its violations; `turns` its events, `virtual_s` its time."""

    seed: int
    planned: list[Fault]
    only: tuple[int, ...] | None = None
    found: list[str] = field(default_factory=list)
    turns: int = 0
    virtual_s: float = 0.0
    happened: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[Fault]:
        if self.only is None:
            return self.planned
        return [self.planned[k] for k in self.only]


def planned(seed: int) -> list[Fault]:
    """Return the faults of a seed: each kind is on with a chance that the seed draws, too."""
    dice = random.Random(seed)
    share = dice.choice((0.02, 0.05, 0.1, 0.2))
    events = [name for name in faults.EVENTS if dice.random() < share]
    found = []
    for name in events:
        event = name.replace(r"(\d+)", str(dice.randint(1, 40 if "step" in name else NODES + SPARES)))
        run = dice.choice((0, 0, 1, 2, 3))
        at = dice.uniform(0.0, 2000.0) if run == 0 or dice.random() < 0.5 else -1.0
        lasts = dice.choice((0.0, 0.0, 20.0, 200.0, 2000.0))
        found.append(Fault(event, run, at if run == 0 else min(at, 300.0), lasts))
    dice.shuffle(found)
    return found[:8]


def play(seed: int, only: tuple[int, ...] | None = None, place: Path | None = None) -> Trial:
    """Play one seed, with all of its faults or some of them."""
    place = place or memory() / f"orchestrator-sim-{os.getpid()}"
    trial = Trial(seed, planned(seed), only)
    world = Simulation(
        bundle(place),
        place,
        seed,
        [f"n{k}" for k in range(1, NODES + SPARES + 1)],
        user=User(resumes=30),
        run_seconds=RUN_S,
    )
    for fault in trial.faults:
        faults.plant(world, fault)
    gc.disable()  # what a set makes is small, and looked through again and again
    try:
        world.play(LIMIT_S)
        world.settle()
        trial.found += violations(world)
    except Stuck as stuck:
        trial.found.append(f"liveness: {stuck}")
    except Exception:
        trial.found.append(traceback.format_exc(limit=-6))
    finally:
        gc.enable()
    trial.turns, trial.virtual_s = world.engine.turns, world.engine.now
    trial.happened = [str(fault) for _, fault in world.happened]
    return trial


def violations(world: Simulation) -> Iterator[str]:
    """Yield everything that should not be so after a set was played to its end."""
    for failure in world.jobs.failures:
        yield "the loop failed: " + "".join(traceback.format_exception(failure)[-6:])
    if world.run_set is None:
        yield "there is no set"
        return
    root = world.run_set.layout.root
    if world.missing():
        yield f"liveness: runs {world.missing()} have no result after {world.user.resumes} resumes: {world.done[-1]}"
    yield from invariants.record_violations(root, world.bundle.nexp, complete=not world.missing())
    if not world.killed_last():
        yield from invariants.leftover_files(root)
    yield from invariants.replay_violations(root)
    yield from invariants.ledger_violations(root)
    if not world.missing():
        yield from invariants.score_violations(root)
    yield from world.overlaps
    for machine in world.machines.values():
        if machine.containers:
            yield f"containers are left on {machine.name}: {machine.containers}"
        if machine.tuned_by:
            yield f"settings are not put back on {machine.name}: {machine.tuned_by}"
        if any(agent.process.alive for agent in machine.agents):
            yield f"an agent is left on {machine.name}"


def shrink(trial: Trial) -> Trial:
    """Return the failing trial with the fewest faults, leaving out one after the other."""
    best, keep = trial, list(range(len(trial.planned)))
    for k in list(keep):
        fewer = tuple(one for one in keep if one != k)
        again = play(trial.seed, fewer)
        if again.found:
            best, keep = again, list(fewer)
    return best


def _one(seed: int) -> Trial:
    return play(seed)


def main(argv: Sequence[str] | None = None) -> int:
    """Play seeds; the exit status is 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, metavar="N")
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--seed", type=int, help="play only this one, and print what happens")
    parser.add_argument("--only", default=None, help="with --seed: numbers of its faults, such as 0,3; '' for none")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args(argv)
    if args.seed is not None:
        return _show(args.seed, args.only)
    began, failed, kinds, virtual, turns = time.perf_counter(), [], Counter[str](), 0.0, 0
    seeds = range(args.first, args.first + args.seeds)
    with ProcessPoolExecutor(args.jobs) as pool:
        for trial in pool.map(_one, seeds, chunksize=8):
            virtual, turns = virtual + trial.virtual_s, turns + trial.turns
            kinds.update(faults_kind(text) for text in trial.happened)
            if trial.found:
                failed.append(trial.seed)
                if len(failed) <= 5:
                    _report(shrink(trial))
        for _ in pool.map(_clean, range(4 * args.jobs)):
            pass
    took = time.perf_counter() - began
    print(
        f"{args.seeds} sets, {sum(kinds.values())} faults of {len(kinds)} kinds, {turns} events: {len(failed)} failed"
    )
    print(f"{took:.1f} s: {args.seeds / took:.1f} sets/s; {virtual / took:.0f} virtual seconds a second")
    _clean(0)
    return 1 if failed else 0


def faults_kind(text: str) -> str:
    """Return the event of a fault without its numbers."""
    import re

    return re.sub(r"\d+", "N", re.split(r" (?:for|in run|at|after) [0-9]", text)[0])


def _clean(_: int) -> None:
    remove(memory() / f"orchestrator-sim-{os.getpid()}")


def remove(place: Path) -> None:
    """Remove the folder of sets that were played."""
    shutil.rmtree(place, ignore_errors=True)


def _report(trial: Trial) -> None:
    print(f"seed {trial.seed} fails with {len(trial.faults)} faults: {'; '.join(map(str, trial.faults))}")
    for text in trial.found[:6]:
        print(f"  {text}")
    only = ",".join(map(str, trial.only if trial.only is not None else range(len(trial.planned))))
    print(f"  again: python tests/simulation/seeded_sets.py --seed {trial.seed} --only '{only}'", flush=True)


def _show(seed: int, only: str | None) -> int:
    numbers = None if only is None else tuple(int(one) for one in only.split(",") if one)
    place = memory() / f"orchestrator-sim-{os.getpid()}"
    trial = play(seed, numbers, place)
    for fault in trial.faults:
        print(f"fault: {fault}")
    print(f"{trial.turns} events in {trial.virtual_s:.0f} virtual seconds; the set is in {place / 'sets'}")
    for text in trial.found:
        print(f"VIOLATION: {text}")
    return 1 if trial.found else 0


if __name__ == "__main__":
    sys.exit(main())
