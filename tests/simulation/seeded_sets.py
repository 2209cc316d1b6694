"""Play whole sets with random faults, one per seed, and check every invariant after each: `make sim SEEDS=1000`.

A seed chooses faults and their moments, plays a set from `submit` to its score, and checks it. A failing seed is
shrunk to the fewest faults with which it still fails, and the command that plays just these is printed.
With --record results are kept in a file, and their seeds not played again.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import pairwise
from multiprocessing.util import Finalize
from pathlib import Path
from unittest.mock import patch

import set_invariants as invariants

from orchestrator.cli.signals import exit_on
from orchestrator.evidence.sets import SetEvidence
from orchestrator.model import Site, load_entry
from orchestrator.onnode.kernel import program
from orchestrator.onnode.kernel.beat import LOOK_S, SILENCE_S
from orchestrator.onnode.loop.step import ARRIVE_S, MAX_SAID, SAID_AGAIN
from orchestrator.onnode.loop.storage import WAITS
from orchestrator.onnode.policy.lease import STALE_S
from orchestrator.onnode.set.folder import NO_ROOM
from orchestrator.onnode.set.lease import BEAT_S
from orchestrator.scheduler.kinds import APPEARS_WITHIN_S
from orchestrator.simulation import faults, host
from orchestrator.simulation.desk import User
from orchestrator.simulation.engine import NEVER, Stuck
from orchestrator.simulation.faults import Fault
from orchestrator.simulation.play import Simulation
from orchestrator.simulation.rendered import Rendered
from orchestrator.simulation.storage_crash import cut

RUN_S = 300.0
SHORT_LIMIT = "0:15:00"
"""Ends a job in its third run."""
STORAGE_WAIT_S = 1800
"""Some faults last longer: then a job gives up its storage, and a node its loop."""
LIMIT_S = 40 * 86400.0
"""The longest set, in virtual time."""
END_S = 120.0
"""Of a job after its last run."""
STEPS = 80
"""Of a command: about 50, and 80 if it makes the set."""
LOOP_STEPS = 150
"""Of a loop until it starts its nodes: 110, and 135 if a run is done."""
SOON_S = (3.0, 60.0, 2000.0)
"""Spans for a fault without a run: while the job starts, while its nodes get ready, at any time."""
MOMENTS = (
    *(("in", None), ("in", (0.0, 300.0))),
    *(("at the end of", (0.0, 0.0)), ("at the end of", (0.0, 3.0)), ("before", (0.0, 3.0))),
)
"""Moments of a run, and seconds after them (None: in its middle)."""
SYSTEM = """kind: system
name: nodes_%d
accelerator: cpu
nodes: %d
gpus_per_node: 1
workloads:
  builtin: {"1.0": {micro_batch: 8, global_batch: %d}}
"""


@dataclass(frozen=True)
class Shape:
    """A kind of set: `nodes` for each of its `runs`, `at_once` side by side; `spares`, and `idle` nodes outside of its jobs:
    the next job can start while a node of the last job is away.

    `limit`: of its jobs. `hang_start_s`: the site's limit for a silence before run_start; 0: the usual limit.
    """

    nodes: int = 3
    spares: int = 1
    runs: int = 3
    at_once: int = 1
    limit: str = "1-00:00:00"
    idle: int = 0
    hang_start_s: int = 0

    @property
    def hosts(self) -> int:
        return self.nodes * self.at_once + self.spares + self.idle


SHAPES = (
    Shape(idle=1),
    Shape(),
    Shape(idle=1, limit=SHORT_LIMIT),
    Shape(spares=0, hang_start_s=400),
    Shape(nodes=2, runs=4, at_once=2),
)
"""A seed draws one of them."""


def own_place() -> Path:
    """Return the folder of this process for sets."""
    return place_of(os.getpid())


def place_of(pid: int) -> Path:
    """Return the folder of a process for sets, in memory if possible. Its name has a constant length: the bytes that fit
    on a full storage depend on it."""
    memory = Path("/dev/shm")
    folder = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    return folder / f"orchestrator-sim-{pid:07}"


@cache
def bundle(place: Path, shape: Shape) -> Rendered:
    """Return the bundle of all sets of a shape below `place`."""
    name, nodes = f"nodes_{shape.nodes}", shape.nodes
    (place / "systems").mkdir(parents=True, exist_ok=True)
    (place / f"systems/{name}.yaml").write_text(SYSTEM % (nodes, nodes, 8 * nodes))
    limits = {
        "attempts": 3,
        "run_timeout_minutes": 120,
        "storage_wait_minutes": STORAGE_WAIT_S // 60,
    }
    if shape.hang_start_s:
        limits["hang_start_seconds"] = shape.hang_start_s
    site = Site(
        scheduler="slurm",
        partition="batch",
        log_dir=str(place / "sets"),
        container={"engine": "docker"},
        spares=shape.spares,
        side_by_side=shape.at_once,
        time_limit=shape.limit,
        limits=limits,
    )
    return Rendered(
        load_entry(name, "builtin", site=site, systems_dirs=[place / "systems"]),
        shape.runs,
        programs=False,
    )


def _packed(files: Mapping[str, bytes]) -> bytes:
    return _packed_once(tuple(sorted(files.items())))


@lru_cache(maxsize=4)
def _packed_once(files: tuple[tuple[str, bytes], ...], pack: Callable = program.pack) -> bytes:
    return pack(dict(files))


_unpacked = lru_cache(maxsize=4)(host.unpack)


@dataclass
class Trial:
    """One seed. `found` are its violations; `turns` its events, `virtual_s` its time."""

    seed: int
    planned: list[Fault]
    shape: Shape
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


def planned(seed: int) -> tuple[Shape, list[Fault]]:
    """Return the set and the faults of a seed, which draws the chance of each kind, too."""
    dice = random.Random(seed)
    shape = dice.choice(SHAPES)
    share = dice.choice((0.02, 0.05, 0.1, 0.2))
    events = [name for name in faults.EVENTS if dice.random() < share]
    if seed % 3 == 0:  # the cost of a single fault is known best
        events = [dice.choice(list(faults.EVENTS))]
    found = []
    for name in events:
        run = dice.choice((0, 0, *range(1, shape.runs + 1)))
        when, span = dice.choice(MOMENTS) if run else ("in", (0.0, dice.choice(SOON_S)))
        most = LOOP_STEPS if "next loop" in name else STEPS if "its step" in name else shape.hosts
        most = dice.choice((20, 60, 100)) if "in (" in name else most
        event = name.replace(r"(\d+)", str(dice.randint(1, most)))
        lasts = dice.choice((0.0, 0.0, 20.0, 200.0, 2000.0))
        found.append(Fault(event, run, dice.uniform(*span) if span else -1.0, lasts, when))
    dice.shuffle(found)
    found = found[:8]
    if seed % 4 == 1:
        found += _sequences(dice, shape)
    return shape, found


def _sequences(dice: random.Random, shape: Shape) -> list[Fault]:
    """Draw calls that fail within a few steps of a loop, its end before it can repeat them, and often the same for the
    loop that follows. Drawn one by one they hardly meet."""
    run, (when, span) = dice.randint(0, shape.runs), dice.choice(MOMENTS)
    if not run:
        when, span = "in", (0.0, SOON_S[0])
    at_s = dice.uniform(*span) if span else -1.0
    texts = [*_sequence(dice, "loop", "in %d steps", STEPS)] if run else []
    if not run or dice.random() < 0.6:
        texts += _sequence(dice, "next loop", "at its step %d", LOOP_STEPS)
    return [Fault(text, run, at_s, 0.0, when) for text in texts]


def _sequence(dice: random.Random, loop: str, at: str, most: int) -> Iterator[str]:
    step, mean = dice.randint(1, most), dice.choice((3, 10, 30))
    for _ in range(dice.randint(0, 3)):
        event = dice.choice(("fails for", "fails for", "loses a reply to"))
        yield f"the storage {event} the {loop} {at % step}"
        step += 1 + int(dice.expovariate(1 / mean))
    yield f"the {loop} is killed {at % step}"


ENDS_AT_ONCE_S = 0.01, 0.1
"""Of trainings that do not handle TERM."""
COMES_LATE_S = 1200.0, 7200.0


def surroundings(world: Simulation, shape: Shape, seed: int) -> None:
    """Draw clocks, caches and delays of storage, the ways trainings log and end, and the owner's return."""
    dice = random.Random(f"{seed}/surroundings")
    world.server.step_clock(dice.choice((0.0, 0.0, 0.0, 3600.0, -3600.0)))
    logs_on = dice.choice((0, 0, 0, 1, 2))
    misses = (
        set()
        if shape.limit == SHORT_LIMIT
        else {run for run in range(1, world.bundle.nexp + 1) if dice.random() < 0.1}
    )
    world.trainings.vary(misses=frozenset(misses), logs_on=logs_on)
    if dice.random() < 0.1:
        world.server.cache(dice.choice((5.0, 60.0)))
    if dice.random() < 0.2:
        world.server.delay_contents(dice.choice((1.0, 30.0)), close_sends=True)
    if dice.random() < 0.5:
        world.jobs.pace = replace(world.jobs.pace, stop=ENDS_AT_ONCE_S)
    if dice.random() < 0.2:
        world.user.waits = COMES_LATE_S
    world.user.cancels = dice.random() < 0.2
    world.user.colleague = dice.random() < 0.5


def play(seed: int, only: tuple[int, ...] | None = None, place: Path | None = None) -> Trial:
    """Play one seed, with all of its faults or some of them."""
    with cheaply():
        return _play(seed, only, place)


@contextmanager
def cheaply() -> Iterator[None]:
    """Pack and unpack equal programs once, and collect no garbage: a set has few objects."""
    gc.disable()
    try:
        with patch.object(program, "pack", _packed), patch.object(host, "unpack", _unpacked):
            yield
    finally:
        gc.enable()


def _play(seed: int, only: tuple[int, ...] | None, place: Path | None) -> Trial:
    place = place or own_place()
    shape, plan = planned(seed)
    trial = Trial(seed, plan, shape, only)
    world = Simulation(
        bundle(place, shape),
        place,
        seed,
        [f"n{k}" for k in range(1, shape.hosts + 1)],
        user=User(resumes=30, allows_changes=True),
        run_seconds=RUN_S,
    )
    surroundings(world, shape, seed)
    for fault in trial.faults:
        faults.plant(world, fault)
    try:
        world.play(LIMIT_S)
        # The nodes of a loop that stands still leave in the end, or when their host is back.
        world.settle(600.0 + (SILENCE_S + LOOK_S if stands_still(world) else 0.0))
        world.engine.run(world.idle, LIMIT_S)
        loop_ended = not loop_killed_last(world) and not storage_failed_last(world)
        if loop_ended:
            trial.found += badly_closed(world)
        if not loop_ended or killed_lately(world) or commands_left_files(world):
            world.settle(max(0.0, storage_is_back_at(world) - world.engine.now))
            resume_complete_set(world)
        trial.found += [*violations(world), *unfair(world, shape)]
        trial.found += lose_a_file(world, seed)
    except Stuck as stuck:
        trial.found.append(f"liveness: {stuck}")
    except Exception:
        trial.found.append(traceback.format_exc(limit=-6))
    finally:
        world.close()
    trial.turns, trial.virtual_s = world.engine.turns, world.engine.now
    trial.happened = [str(fault) for _, fault in world.happened]
    return trial


def stands_still(world: Simulation) -> bool:
    """Return whether a process is stopped, or a loop waits in a call. After the last job its host is one that Slurm has
    given up."""
    if any(process.alive and process.stopped for process in world.engine.processes):
        return True
    return any(loop.process.alive and loop.process.busy for loop in world.jobs.every_loop)


def was_unheard(world: Simulation, node: str, ms: int) -> bool:
    """Return whether a node was stopped at `ms`, with its loop at work for long enough to hear it."""
    now = (ms - world.engine.start_ms) / 1000
    if any(at <= now <= at + ARRIVE_S for at in wakes_of(world, world.jobs.every_loop)):
        return False
    stop = f"the agent of node {node.removeprefix('n')} is stopped"
    return any(at <= now <= at + fault.for_s for at, fault in world.happened if stop in str(fault))


def wakes_of(world: Simulation, loops: Sequence[host.Loop]) -> list[float]:
    """Return when loops that stood still came back (virtual seconds)."""
    processes = [loop.process for loop in loops]
    return [at for process, at in world.engine.wakes if process in processes]


def badly_closed(world: Simulation) -> Iterator[str]:
    """Yield open records of the last loop, which was not killed, in a complete set."""
    if world.run_set is None or world.missing():
        return
    root = world.run_set.layout.root
    yield from (text for text in invariants.open_records(root) if text.startswith("jobs/"))
    # A loop that stood still may end the set under a signal, or with its successor in the queue.
    if not any(re.search("stopped in|freezes", str(fault)) for _, fault in world.happened):
        yield from invariants.not_complete(root)


def violations(world: Simulation) -> Iterator[str]:
    """Yield everything wrong with a set after its end."""
    for failure in world.jobs.failures:
        yield "the loop failed: " + "".join(traceback.format_exception(failure)[-6:])
    if world.run_set is None:
        yield "there is no set"
        return
    root = world.run_set.layout.root
    if missing := world.missing():
        yield f"liveness: runs {missing} have no result after {world.user.resumes} resumes: {world.done[-1]}"
    yield from invariants.record_violations(root, world.bundle.nexp, complete=not missing)
    yield from invariants.leftover_files(root)
    yield from invariants.replay_violations(root)
    yield from invariants.hold_violations(root, lambda node, ms: was_unheard(world, node, ms))
    yield from invariants.ledger_violations(root)
    yield from invariants.image_violations(root)
    if not missing:
        yield from invariants.score_violations(root)
    yield from world.trainings.overlaps
    for machine in world.machines.values():
        if machine.containers:
            yield f"containers are left on {machine.name}: {machine.containers}"
        if machine.tuned_by:
            yield f"settings are not put back on {machine.name}: {machine.tuned_by}"
        if any(agent.process.alive for agent in world.jobs.agents[machine.name]):
            yield f"an agent is left on {machine.name}"


def loop_killed_last(world: Simulation) -> bool:
    """Return whether the last loop was killed or lost its storage, and left remains."""
    loop = world.jobs.every_loop[-1] if world.jobs.every_loop else None
    away = any("storage" in str(fault) for _, fault in world.happened)
    return loop is not None and (loop.killed or (loop.failed and away))


def killed_lately(world: Simulation) -> bool:
    """Return whether a loop was killed so shortly before the end of the last one that its files were too young to be
    removed."""
    ends = [(loop.ended_at, loop.killed) for loop in world.jobs.every_loop if loop.ended_at < NEVER]
    last = max((at for at, _ in ends), default=0.0)
    return any(killed and last - at <= STALE_S + BEAT_S for at, killed in ends)


def commands_left_files(world: Simulation) -> bool:
    """Return whether a command may have left files: it was killed, or the storage failed meanwhile."""
    times = outages(world)
    return any(
        done.killed or any(at <= done.ended_at and done.at <= back for at, back in times)
        for done in world.done
    )


def resume_complete_set(world: Simulation) -> None:
    """Resume until the set is settled, each time when old traces are stale. Raises Stuck."""
    for _ in range(world.user.resumes):
        if world.missing():
            return
        world.act_after(STALE_S + BEAT_S, world.resume, LIMIT_S)
        # With a clock set back a file of a killed command can look young: the next one removes it.
        if is_settled(world) and not any(invariants.leftover_files(world.run_set.layout.root)):
            return


RESTORED = (
    "set.json",
    "runs/*/state.json",
    "runs/*/attempt_*/state.json",
    "jobs/*.json",
    "submissions/*.json",
    "results/*",
)
"""Files that a complete set can lose."""


def lose_a_file(world: Simulation, seed: int) -> Iterator[str]:
    """Lose or empty a file of every fourth complete set. Yield what `resume` does not restore."""
    dice = random.Random(f"{seed}/afterwards")
    if world.run_set is None or world.missing() or dice.random() > 0.25:
        return
    root = world.run_set.layout.root
    files = sorted(root.glob(dice.choice(RESTORED)))
    if not files:
        return
    path = dice.choice(files)
    if path.is_symlink() or dice.random() < 0.5:
        path.unlink()
    else:
        cut(path, 0)
    world.server.stamp(path.parent)
    for _ in range(world.user.resumes):  # a job that makes a lost state again can meet faults, too
        world.act_after(STALE_S + BEAT_S, world.resume, LIMIT_S)
        if world.engine.now < storage_is_back_at(world):
            continue  # `resume` notes what it cannot restore, and the user asks again
        if NOTHING_LEFT in world.done[-1].error and not world.run_set.layout.loop_lock.exists():
            break
    for text in (
        *invariants.not_complete(root),
        *invariants.record_violations(root, world.bundle.nexp, complete=True),
        *invariants.score_violations(root),
    ):
        yield f"{path.relative_to(root)} was lost: {text}"


NOTHING_LEFT = "nothing is left to run"


def is_settled(world: Simulation) -> bool:
    """Return whether the last command called the set complete, and a job closed it."""
    if world.run_set is None or NOTHING_LEFT not in world.done[-1].error:
        return False
    layout, job = world.run_set.layout, SetEvidence(world.run_set.layout.root).job
    return job is not None and job.state == "complete" and not layout.loop_lock.exists()


def storage_failed_last(world: Simulation) -> bool:
    """Return whether the storage failed until the end, or until the last loop, which stood still, came back: only a
    later command can repair the last job's files."""
    # Not the job's end: Slurm learns of an end on an unreachable node hours later.
    ends = (loop.ended_at for loop in world.jobs.every_loop if loop.ended_at < NEVER)
    back_at, pauses = storage_is_back_at(world), wakes_of(world, world.jobs.every_loop[-1:])
    return back_at > max(ends, default=0.0) or any(0.0 < back_at <= at for at in pauses)


def storage_is_back_at(world: Simulation) -> float:
    """Return when the last fault of the storage is over (virtual seconds)."""
    return max((back for _, back in outages(world)), default=0.0)


def outages(world: Simulation) -> list[tuple[float, float]]:
    """Return when each fault of the storage happened, and when it is over (virtual seconds)."""
    return [
        (at, at + (fault.for_s or END_S) + END_S * ("now and then" in str(fault)))
        for at, fault in world.happened
        if "storage" in str(fault)
    ]


OF_NO_NODE = re.compile(
    r"the (training hangs|loop is|job|reservation|set is)|Slurm (does|loses|gives|forgets)|a (file|resume|cancel)|the storage is slow"
)
"""Events for which no node is to blame."""
OF_A_NODE = re.compile(
    r"node \d+ (dies|refuses|fails|has|sends)|(agent|container|crashes|early|cut off|start) o[fn] node"
    r"|Slurm sets node"
)
"""Events for which only their node is to blame. Slow nodes end after the others, and all others differ from the batch host's clock."""
WITHIN_A_JOB = re.compile(
    r"the storage is (full|over quota|read-only|slow|not mounted)|Slurm (loses|gives|forgets)|node \d+ is slow"
    r"|the training (hangs|crashes|exits)|the agent of|the container of|the set is (submitted|resumed)"
)
"""Events that a job survives if nothing else happens."""


def unfair(world: Simulation, shape: Shape) -> Iterator[str]:
    """Yield decisions that the faults of a set do not explain."""
    if world.run_set is None or world.missing():
        return
    root, happened = world.run_set.layout.root, [str(fault) for _, fault in world.happened]
    if not any(
        "clock of the storage" in text for text in happened
    ):  # the times of the files decide
        yield from invariants.thrown_away(root)
    yield from invariants.open_records(root)
    yield from invariants.not_complete(root)
    named = {f"n{number}" for text in happened for number in re.findall(r"node (\d+)", text)}
    if all(OF_A_NODE.search(text) or OF_NO_NODE.match(text) for text in happened):
        for node, reason in invariants.blamed_nodes(root):
            # Nodes get a job's end before its loop, and miss a loop that stood still.
            if node not in named and not re.search("its agent ended|no word from the loop", reason):
                yield f"{node} is blamed for what others did: {reason}"
    yield from _unexplained_reasons(root, happened)
    # Without answers of Slurm and beats on the storage a job is invisible.
    unseen = all(
        any(re.search(words, text) for text in happened) for words in ("empty answers", "storage")
    )
    if not unseen:
        yield from _two_jobs(world)
    yield from _late_ends(root, happened)
    yield from _vain_cancels(world)
    yield from _needless_ends(world)
    yield from _refused_results(world)
    yield from _locked_out(world)
    yield from _failed_by_their_end(root, happened)
    yield from _begun_in_vain(world, happened)
    ends = "cancel|reservation|requeue|time limit"
    if not world.user.cancels and not any(re.search(ends, text) for text in happened):
        for path in root.glob("jobs/*.json"):
            if (invariants.read_json(path) or {}).get("state") == "cancelled":
                yield f"{path.name} says cancelled, and nobody cancelled it: {happened}"
    if (
        any("too much" in text for text in happened)
        and invariants.bytes_of_nodes(root) > MAX_SAID + 2 * SAID_AGAIN
    ):
        yield f"a node has sent {invariants.bytes_of_nodes(root)} bytes"
    in_time = shape.limit != SHORT_LIMIT  # else the limit of the job costs an attempt
    if len(happened) == 1 and (guilty := GUILTY.match(happened[0])) and shape.spares and in_time:
        lost = len(list(root.glob("runs/*/attempt_*"))) > shape.runs
        if lost and f"n{guilty[1]}" not in dict(invariants.blamed_nodes(root)):
            yield f"an attempt was lost by {happened[0]}, and nobody is blamed"
    harmless = not happened or (
        len(happened) == 1 and WITHIN_A_JOB.match(happened[0]) and shape.spares
    )
    # An attempt waits for storage before it and at its end: nodes that cannot write as they get ready are given up.
    late = any("storage" in str(fault) and not fault.run for _, fault in world.happened)
    harmless = (
        harmless
        and not late
        and not any(fault.for_s >= STORAGE_WAIT_S for _, fault in world.happened)
    )
    if harmless and len(world.all_jobs) > 1 and in_time:
        yield f"{world.resumed} resumes for {happened or 'no fault'}: {[(job.id, job.state) for job in world.all_jobs]}"
    late_s = (world.all_jobs[-1].times.end_ms - invariants.last_end_ms(root)) / 1000
    waits_s = sum(fault.for_s or END_S for _, fault in world.happened if "storage" in str(fault))
    if harmless and late_s > END_S + waits_s:
        yield f"the last job ended {late_s:.0f} s after the last run: {happened}"
    if not happened and in_time and len(list(root.glob("runs/*/attempt_*"))) != shape.runs:
        yield "an attempt was lost without a fault"


SETTLED_MS = 60_000
"""From a job's start until it has settled the remains of others."""
REASONS = {
    "hung": re.compile(r"hangs|stopped|dies|cut off|storage|exits|crashes|ends|sets node"),
    "(run time-out)": re.compile(r"slow|stopped|dies|cut off|storage|sets node"),
    "not every node answered": re.compile(r"slow|stopped|dies|cut off|storage|Slurm"),
}
"""Part of an attempt's reason -> events that explain it."""
GUILTY = re.compile(r"the training (?:crashes|exits early) on node (\d+)")


def _unexplained_reasons(root: Path, happened: list[str]) -> Iterator[str]:
    for attempt, reason in invariants.reasons(root):
        for words, events in REASONS.items():
            if words in reason and not any(events.search(text) for text in happened):
                yield f"{attempt}: {reason}: after {happened}"


def _late_ends(root: Path, happened: list[str]) -> Iterator[str]:
    """Yield jobs that ended, by their records, after the next job had begun: it closes the record."""
    # A wrong clock makes times meaningless; a failed storage call leaves the record to a later job.
    if any(re.search("clock|storage fails", text) for text in happened):
        return
    records = [invariants.read_json(path) or {} for path in root.glob("jobs/*.json")]
    for first, second in pairwise(sorted(records, key=lambda one: one.get("started_ms", 0))):
        said = [second.get("reason", ""), *second.get("warnings", [])]
        # It closes the record when the storage is back.
        waited = any(NO_ROOM in text or WAITS in text for text in said)
        if first.get("ended_ms", 0) > second.get("started_ms", 0) + SETTLED_MS and not waited:
            yield f"job {first.get('job_id')} has ended after job {second.get('job_id')} had begun: {first.get('reason')}"


def _needless_ends(world: Simulation) -> Iterator[str]:
    """Yield loops that gave up their set although nobody had taken it over: a job that began after
    them, or a `resume` that settled the complete set."""
    begun, settled = list[str](), [one.at for one in world.done if NOTHING_LEFT in one.error]
    for at, job, text in world.jobs.log:
        begun += [job] if text.startswith("starts on") else []
        lost = "is not this job's any more" in text and not any(when < at for when in settled)
        if lost and begun[-1] == job and begun.count(job) == 1:
            yield f"job {job} gave up its set, and there was no later one: {text}"


def _refused_results(world: Simulation) -> Iterator[str]:
    """Yield refused results: a loop never tries to publish a second."""
    for _, job, text in world.jobs.log:
        if "is there already; a published" in text:
            yield f"job {job}: {text}"


def _locked_out(world: Simulation) -> Iterator[str]:
    """Yield loops that waited for a lease of their own."""
    own = {(loop.job.id, str(loop.process.pid)) for loop in world.jobs.every_loop}
    for _, job, text in world.jobs.log:
        held = re.search(r"the ledger is held: .*process (\d+) on", text)
        if held and (job, held[1]) in own:
            yield f"job {job} waited for itself: {text}"


ONLY_ENDED = re.compile(
    r"the job (is cancelled|is pre-empted|is requeued|reaches|gets)|the reservation|the set is"
)
"""Events that end jobs, and do nothing else."""


def _failed_by_their_end(root: Path, happened: list[str]) -> Iterator[str]:
    """Yield attempts that count as failures of the nodes although only their jobs were ended."""
    if all(ONLY_ENDED.match(text) for text in happened):
        for attempt, reason in invariants.reasons(root, "infrastructure"):
            yield f"{attempt} counts as a failure of its nodes: {reason}: after {happened}"


TAKES_TIME = re.compile(
    r"clock|time limit|reservation|stopped|freezes|cut off|storage|slow|Slurm|suspend"
)
"""Events after which a loop does not know its job's remaining time, or has none."""


def _begun_in_vain(world: Simulation, happened: list[str]) -> Iterator[str]:
    """Yield attempts begun, after others of their job, although the shortest run did not fit into its limit."""
    if world.run_set is None or any(TAKES_TIME.search(text) for text in happened):
        return
    states = [
        invariants.read_json(path) or {}
        for path in world.run_set.layout.runs.glob("*/attempt_*/state.json")
    ]
    for job in world.all_jobs:
        own = [one for one in states if one["job_id"] == job.id]
        for one in own:
            done = [
                other
                for other in states
                if other["outcome"] == "success" and other["end_ms"] <= one["start_ms"]
            ]
            took = [other["end_ms"] - other["start_ms"] for other in done]
            left = (
                job.times.start_ms + 1000 * (job.request.time_limit_s or math.inf) - one["start_ms"]
            )
            if (
                any(other["start_ms"] < one["start_ms"] for other in own)
                and took
                and left < min(took) - 1000
            ):
                yield f"run {one['run']} attempt {one['attempt']} was begun, and its job had {left / 1000:.0f} s left"


def _vain_cancels(world: Simulation) -> Iterator[str]:
    """Yield cancels that waited for the job of too old a submission."""
    asked = (
        [one.requested_ms / 1000 for one in SetEvidence(world.run_set.layout.root).submissions]
        if world.run_set
        else []
    )
    for done in world.done:
        at = world.engine.start_ms / 1000 + done.at
        if "one may still appear" in done.error and not any(
            at - APPEARS_WITHIN_S - 60 < ms <= at + 60 for ms in asked
        ):
            yield f"{done.name}: {done.error}"


def _two_jobs(world: Simulation) -> Iterator[str]:
    jobs = sorted(world.all_jobs, key=lambda job: job.times.submit_ms)
    for first, second in pairwise(jobs):
        if not first.times.end_ms or second.times.submit_ms < first.times.end_ms:
            yield f"job {second.id} was submitted while job {first.id} was alive"


def shrink(trial: Trial, place: Path | None = None) -> Trial:
    """Return the failing trial with the fewest faults."""
    best, keep = trial, list(range(len(trial.planned)))
    for k in list(keep):
        fewer = tuple(one for one in keep if one != k)
        again = play(trial.seed, fewer, place)
        if again.found:
            best, keep = again, list(fewer)
    return best


BLOCK = 200
"""Seeds between two records."""


@dataclass
class Tally:
    """The results of seeds up to `last`, played in `seconds`."""

    sets: int = 0
    events: int = 0
    virtual_s: float = 0.0
    seconds: float = 0.0
    last: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Tally:
        """Return the sum of all records."""
        total = cls()
        for line in path.read_text().splitlines() if path.exists() else ():
            total.add(cls(**json.loads(line)))
        return total

    def write(self, path: Path) -> None:
        with path.open("a") as file:
            file.write(json.dumps(vars(self)) + "\n")

    def count(self, trial: Trial) -> None:
        kinds = dict(Counter(map(faults_kind, trial.happened)))
        failed = [trial.seed] if trial.found else []
        self.add(Tally(1, trial.turns, trial.virtual_s, 0.0, trial.seed, kinds, failed))

    def add(self, other: Tally) -> None:
        self.sets, self.events = self.sets + other.sets, self.events + other.events
        self.virtual_s, self.seconds = (
            self.virtual_s + other.virtual_s,
            self.seconds + other.seconds,
        )
        self.kinds = dict(Counter(self.kinds) + Counter(other.kinds))
        self.last, self.failed = max(self.last, other.last), self.failed + other.failed

    @property
    def text(self) -> str:
        pace = f"{self.sets / self.seconds:.1f} sets/s; {self.virtual_s / self.seconds:.0f} virtual seconds a second"
        what = f"{self.sets} sets, {sum(self.kinds.values())} faults of {len(self.kinds)} kinds, {self.events} events"
        failed = f": {self.failed[:20]}" if self.failed else ""
        return f"{what}: {len(self.failed)} failed{failed}\n{self.seconds:.1f} s: {pace}"


def _one(seed: int) -> Trial:
    return play(seed)


def main(argv: Sequence[str] | None = None) -> int:
    """Play seeds; the exit status is 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, metavar="N")
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--seed", type=int, help="play only this one, and print what happens")
    parser.add_argument(
        "--only", default=None, help="with --seed: numbers of its faults, such as 0,3; '' for none"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="add results to FILE, and continue after its last seed",
    )
    args = parser.parse_args(argv)
    if args.seed is not None:
        return _show(args.seed, args.only)
    done = Tally.read(args.record) if args.record else Tally()
    last = args.first + args.seeds
    first = max(args.first, done.last + 1)
    with (
        exit_on(signal.SIGTERM),  # workers do not notice that their parent is gone
        _workers(args.jobs) as pool,
    ):
        for block in range(first, last, BLOCK):
            played, began = Tally(), time.perf_counter()
            seeds = range(block, min(block + BLOCK, last))
            for trial in pool.map(_one, seeds, chunksize=8):
                played.count(trial)
                if trial.found and len(done.failed) + len(played.failed) <= 5:
                    _report(shrink(trial))
            played.seconds, played.last = time.perf_counter() - began, seeds[-1]
            done.add(played)
            if args.record:
                played.write(args.record)
    print(done.text)
    return 1 if done.failed else 0


def faults_kind(text: str) -> str:
    """Return the event of a fault without its numbers."""
    return re.sub(
        r"\d+", "N", re.split(r" (?:for|(?:in|before|at the end of) run|at|after) [0-9]", text)[0]
    )


@contextmanager
def _workers(number: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with the block, after the seeds that they are playing.

    With them go the sets of this process, which shrinks seeds.
    """
    pool = ProcessPoolExecutor(number, initializer=_begin)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        remove(own_place())


def _begin() -> None:
    """Let this worker ignore signals, and remove its sets at its end.

    A signal's exception while it takes the queue's lock would leave that locked for the others.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    Finalize(None, remove, (own_place(),), exitpriority=0)


def remove(place: Path) -> None:
    """Remove played sets."""
    shutil.rmtree(place, ignore_errors=True)


def _report(trial: Trial) -> None:
    print(
        f"seed {trial.seed} fails with {len(trial.faults)} faults: {'; '.join(map(str, trial.faults))}"
    )
    for text in trial.found[:6]:
        print(f"  {text}")
    only = ",".join(map(str, trial.only if trial.only is not None else range(len(trial.planned))))
    print(
        f"  again: python tests/simulation/seeded_sets.py --seed {trial.seed} --only '{only}'",
        flush=True,
    )


def _show(seed: int, only: str | None) -> int:
    numbers = None if only is None else tuple(int(one) for one in only.split(",") if one)
    place = own_place()
    trial = play(seed, numbers, place)
    for fault in trial.faults:
        print(f"fault: {fault}")
    print(
        f"{trial.turns} events in {trial.virtual_s:.0f} virtual seconds; the set is in {place / 'sets'}"
    )
    for text in trial.found:
        print(f"VIOLATION: {text}")
    return 1 if trial.found else 0


if __name__ == "__main__":
    sys.exit(main())
