"""Many rehearsals of one set whose nodes fail at random: how long it takes with so many spare nodes.

A node fails after a time that is drawn from an exponential distribution, and is back after a fixed one. The same trial has
the same trainings and the same failures of the same nodes with any number of spares. A trial in which no node fails before the
set ends is not played: its time is that of its trainings, and as much around them as in sets that were played without failures.
"""

from __future__ import annotations

import heapq
import math
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from multiprocessing import active_children, get_context
from pathlib import Path
from statistics import mean
from typing import TypeVar

from orchestrator.simulation.engine import Stuck
from orchestrator.simulation.faults import Fault, happen
from orchestrator.simulation.play import Rendered
from orchestrator.simulation.rehearsal import LONGEST_S, RehearsalPlan, RehearsedWorld, job_nodes
from orchestrator.simulation.training import Trainings

SAMPLES = 3
"""Sets without failures that are played to learn how long everything around the trainings takes."""
NEAR_LIMIT_S = 300.0
"""A run this close to its time limit is played."""
UNPLAYED_S = 0.005
"""Wall time of a trial that is not played."""
CORES = len(os.sched_getaffinity(0))
T = TypeVar("T")


@dataclass(frozen=True)
class Failures:
    """How nodes fail: the mean time between failures of a node, and how long it is away. Seconds."""

    mtbf_s: float
    repair_s: float


@dataclass(frozen=True)
class Trial:
    """One set. `ended_s`: seconds from the submission until it was complete, or given up."""

    ended_s: float
    complete: bool
    resumes: int
    failures: int
    """Of nodes that a job of the set had."""
    played: bool


@dataclass(frozen=True)
class SparesResult:
    """All trials with one number of spares."""

    spares: int
    nodes: int
    """Of the cluster."""
    trials: tuple[Trial, ...]

    @cached_property
    def times(self) -> list[float]:
        """Seconds until sets were complete, rising; infinite for those that never were."""
        return sorted(trial.ended_s if trial.complete else math.inf for trial in self.trials)

    def quantile(self, share: float) -> float:
        """Return the time in which this share of the sets is complete; infinite if it never is."""
        return self.times[max(0, math.ceil(share * len(self.times)) - 1)]

    def within(self, limit_s: float) -> float:
        """Return the share of the sets that are complete within `limit_s`."""
        return sum(time <= limit_s for time in self.times) / len(self.times)

    @property
    def complete(self) -> float:
        """The share of the sets that are complete in the end."""
        return sum(trial.complete for trial in self.trials) / len(self.trials)

    @property
    def unattended(self) -> float:
        """The share of the sets that are complete without a `resume`."""
        return sum(trial.complete and not trial.resumes for trial in self.trials) / len(self.trials)

    @property
    def played(self) -> int:
        return sum(trial.played for trial in self.trials)


def half_width(share: float, trials: int) -> float:
    """Return by how much a share of so many trials is uncertain: half of its 95 % interval (Wilson 1927)."""
    z2 = 1.96**2
    return 1.96 * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)


# ---- one trial ----


class _FailingWorld(RehearsedWorld):
    """A world whose nodes fail at random."""

    def __init__(
        self,
        plan: RehearsalPlan,
        folder: Path,
        rendered: Rendered,
        failures: Failures,
        chances: list[random.Random],
    ) -> None:
        """`chances` are those of the nodes, in the order of the cluster."""
        super().__init__(plan, folder, rendered)
        self._failures, self.hits = failures, 0
        """`hits`: failures of nodes that a job of the set had."""
        for number, chance in enumerate(chances[: len(plan.nodes)], 1):
            self._fails_later(number, chance, 0.0)

    def _fails_later(self, number: int, chance: random.Random, after_s: float) -> None:
        seconds = after_s + chance.expovariate(1 / self._failures.mtbf_s)
        self.engine.after(seconds, lambda: self._fails(number, chance))

    def _fails(self, number: int, chance: random.Random) -> None:
        self.hits += any(self.plan.nodes[number - 1] in job.nodes for job in self.live())
        happen(
            self, Fault(f"node {number} dies", at_s=self.engine.now, for_s=self._failures.repair_s)
        )
        self._fails_later(number, chance, self._failures.repair_s)


@dataclass(frozen=True)
class Measured:
    """What sets without failures that were played have shown."""

    overhead_s: float
    """What a set takes beyond its trainings."""
    limit_s: float
    """A set that may take longer has to be played; 0: every one."""
    wall_s: float
    """How long it takes to play one."""


@dataclass(frozen=True)
class Case:
    """What is the same in all trials with one number of spares."""

    plan: RehearsalPlan
    rendered: Rendered
    known: Measured = field(default_factory=lambda: Measured(0.0, 0.0, 0.0))

    def played(
        self, folder: Path, failures: Failures, seed: int, chances: list[random.Random]
    ) -> Trial:
        """Play a set from `seed`."""
        world = _FailingWorld(
            replace(self.plan, seed=seed), folder, self.rendered, failures, chances
        )
        with suppress(Stuck), closing(world):
            world.play(LONGEST_S)
        for failure in world.jobs.failures:
            raise failure
        return Trial(world.ended_s, not world.missing(), world.resumes, world.hits, played=True)

    def measured(self, folder: Path) -> Measured:
        """Play sets without failures."""
        overheads, limits, began = [], [math.inf], time.perf_counter()
        for seed in range(1, SAMPLES + 1):
            world = RehearsedWorld(replace(self.plan, seed=seed), folder, self.rendered)
            with suppress(Stuck), closing(world):
                world.play(LONGEST_S)
            lengths = world.lengths
            overheads.append(world.ended_s - scheduled_s(lengths, self._at_once))
            limits += [job.time_limit_s for job in world.all_jobs if job.time_limit_s is not None]
            if (
                self.plan.faults
                or world.missing()
                or world.resumes
                or len(lengths) != self.plan.nexp
            ):
                limits = [0.0]
                break
        return Measured(
            mean(overheads), min(limits), (time.perf_counter() - began) / len(overheads)
        )

    @property
    def _at_once(self) -> int:
        return self.plan.entry.site.side_by_side

    def unplayed_s(self, seed: int) -> float:
        """Return how long a set without failures takes; infinite if it has to be played for that."""
        lengths = [self.length_s(seed, run) for run in range(1, self.plan.nexp + 1)]
        limits = self.plan.entry.site.limits
        timeout_s = 60 * (limits.run_timeout_minutes or self.plan.entry.minutes_per_run)
        whole_s, longest_s = (
            scheduled_s(lengths, self._at_once) + self.known.overhead_s,
            max(lengths),
        )
        fits = whole_s + longest_s < self.known.limit_s and longest_s + NEAR_LIMIT_S < timeout_s
        return whole_s if fits else math.inf

    def expected_s(self, failures: Failures) -> float:
        """Return the wall time that a trial takes on average."""
        whole_s = self.unplayed_s(0)
        played = 1 - math.exp(-job_nodes(self.plan.entry) * whole_s / failures.mtbf_s)
        return self.known.wall_s * played + UNPLAYED_S

    def length_s(self, seed: int, run: int) -> float:
        """Return the seconds that a training takes."""
        script = self.trainings.script(seed=run, start_ms=0, chance=random.Random(f"{seed}/{run}"))
        return script.seconds

    @cached_property
    def trainings(self) -> Trainings:
        return Trainings(self.rendered.facts, run_seconds=self.plan.run_s)


def scheduled_s(lengths: Sequence[float], at_once: int) -> float:
    """Return when the last of these runs ends: so many go on at once, and the next one starts when one has ended."""
    ends = [0.0] * at_once
    for length in lengths:
        heapq.heapreplace(ends, ends[0] + length)
    return max(ends)


class _Trials:
    """All trials of a command: one case for each number of spares."""

    def __init__(self, cases: list[Case], failures: Failures, seed: int, folder: Path) -> None:
        self.cases, self.failures, self.seed, self.folder = cases, failures, seed, folder

    def trial(self, number: int) -> list[Trial]:
        """Return what becomes of one trial with each number of spares."""
        seed = int.from_bytes(sha256(f"{self.seed}/{number}".encode()).digest()[:6], "big")
        unplayed_s = [case.unplayed_s(seed) for case in self.cases]
        return [
            self._one(case, seed, ended_s)
            for case, ended_s in zip(self.cases, unplayed_s, strict=True)
        ]

    def measure(self, index: int) -> Measured:
        """Return what sets without failures of one case show."""
        return self.cases[index].measured(self.folder / str(os.getpid()))

    def _one(self, case: Case, seed: int, unplayed_s: float) -> Trial:
        held = _chances(case, seed)[
            : job_nodes(case.plan.entry)
        ]  # a job gets the first nodes of an idle cluster
        first_s = min(chance.expovariate(1 / self.failures.mtbf_s) for chance in held)
        if first_s > unplayed_s:
            return Trial(unplayed_s, complete=True, resumes=0, failures=0, played=False)
        return case.played(
            self.folder / str(os.getpid()), self.failures, seed, _chances(case, seed)
        )


def _chances(case: Case, seed: int) -> list[random.Random]:
    """Return the chance by which each node fails: the same in a trial with any number of spares."""
    return [random.Random(f"{seed}/node {number}") for number in range(len(case.plan.nodes))]


# ---- all trials ----

ENDING = (signal.SIGINT, signal.SIGTERM)

_here: list[_Trials] = []
"""In a process that plays some of the trials: what it plays."""


def _begin(trials: _Trials) -> None:
    """Start a process that plays some of the trials. Ctrl-C is left to the one that waits for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    _here[:] = [trials]


def _trial(number: int) -> list[Trial]:
    return _here[0].trial(number)


def _measure(index: int) -> Measured:
    return _here[0].measure(index)


def run_trials(
    plans: Sequence[RehearsalPlan],
    failures: Failures,
    trials: int,
    folder: Path,
    expect: Callable[[float], object] = lambda seconds: None,
) -> list[SparesResult]:
    """Play `trials` sets of each plan, side by side on all cores, in `folder`, which is their own.

    The plans differ in their spares alone; their seed is that of all trials. `expect` is called with the seconds that this
    takes about, once they are known.
    """
    cases = [Case(plan, Rendered(plan.entry, plan.nexp)) for plan in plans]
    all_trials = _Trials(cases, failures, plans[0].seed, folder)
    known = _spread(all_trials, _measure, range(len(cases)))
    all_trials.cases = [replace(case, known=one) for case, one in zip(cases, known, strict=True)]
    expect(trials * sum(case.expected_s(failures) for case in all_trials.cases) / CORES)
    found = _spread(all_trials, _trial, range(1, trials + 1))
    return [
        SparesResult(plan.entry.site.spares, len(plan.nodes), tuple(row[index] for row in found))
        for index, plan in enumerate(plans)
    ]


def _spread(trials: _Trials, work: Callable[[int], T], numbers: range) -> list[T]:
    """Return what `work` gives for each number, in order, done by as many processes as there are cores.

    Signals wait while these start: an exception that a handler raises inside `os.fork` is lost.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    pool = ProcessPoolExecutor(
        min(CORES, len(numbers)), get_context("fork"), initializer=_begin, initargs=(trials,)
    )
    try:
        results = pool.map(work, numbers, chunksize=max(1, min(8, len(numbers) // (4 * CORES))))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        return list(results)
    except BaseException:
        for worker in active_children():
            worker.terminate()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        pool.shutdown(cancel_futures=True)
