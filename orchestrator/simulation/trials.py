"""Many rehearsals of a set whose nodes fail at random: its duration by the number of spares.

Times between failures are exponentially distributed; a repair takes a fixed time. A trial has the
same trainings and failures with any number of spares. Without a failure before its end a set is
computed, not played: its trainings, plus the overhead of played sets.
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
from orchestrator.simulation.rehearsal import LONGEST_S, RehearsalPlan, RehearsedWorld, job_nodes
from orchestrator.simulation.rendered import Rendered
from orchestrator.simulation.training import Trainings

SAMPLES = 3
"""Sets played to measure the time around trainings."""
NEAR_LIMIT_S = 300.0
"""Nearer to its time limit a run is played."""
UNPLAYED_S = 0.005
"""Wall time of a computed trial."""
CORES = len(os.sched_getaffinity(0))
T = TypeVar("T")


@dataclass(frozen=True)
class Failures:
    """Of a node."""

    mtbf_s: float
    repair_s: float


@dataclass(frozen=True)
class Trial:
    """A set, complete or given up after `ended_s`."""

    ended_s: float
    complete: bool
    resumes: int
    failures: int
    """Of nodes in its jobs."""
    played: bool
    node_hours: float
    """Of its jobs."""


@dataclass(frozen=True)
class SparesResult:
    spares: int
    nodes: int
    """Of the cluster."""
    trials: tuple[Trial, ...]

    @cached_property
    def times(self) -> list[float]:
        """Return times in ascending order; infinite for incomplete sets."""
        return sorted(trial.ended_s if trial.complete else math.inf for trial in self.trials)

    def quantile(self, share: float) -> float:
        """Return when this share is complete, or infinite."""
        return self.times[max(0, math.ceil(share * len(self.times)) - 1)]

    def within(self, limit_s: float) -> float:
        """Return the share complete within `limit_s`."""
        return sum(time <= limit_s for time in self.times) / len(self.times)

    @property
    def complete(self) -> float:
        """Return the share."""
        return sum(trial.complete for trial in self.trials) / len(self.trials)

    @property
    def unattended(self) -> float:
        """Return the share without a `resume`."""
        return sum(trial.complete and not trial.resumes for trial in self.trials) / len(self.trials)

    @property
    def node_hours(self) -> float:
        return mean(trial.node_hours for trial in self.trials)

    @property
    def played(self) -> int:
        return sum(trial.played for trial in self.trials)


def half_width(share: float, trials: int) -> float:
    """Return half of the 95 % interval of a share (Wilson 1927)."""
    z2 = 1.96**2
    return 1.96 * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)


class _FailingWorld(RehearsedWorld):
    def __init__(
        self,
        plan: RehearsalPlan,
        folder: Path,
        rendered: Rendered,
        failures: Failures,
        chances: list[random.Random],
    ) -> None:
        """`chances`: of the nodes, in cluster order."""
        super().__init__(plan, folder, rendered)
        self.hits = 0
        """Failures of nodes in its jobs."""
        for number, chance in enumerate(chances[: len(plan.nodes)], 1):
            _FailingNode(self, number, failures, chance).fail_later(0.0)


class _FailingNode:
    """A node that fails, is repaired and fails again."""

    def __init__(
        self, world: _FailingWorld, number: int, failures: Failures, chance: random.Random
    ) -> None:
        self._world, self._number = world, number
        self._failures, self._chance = failures, chance

    def fail_later(self, after_s: float) -> None:
        seconds = after_s + self._chance.expovariate(1 / self._failures.mtbf_s)
        self._world.engine.after(seconds, self._fail)

    def _fail(self) -> None:
        world, repair_s = self._world, self._failures.repair_s
        name = world.plan.nodes[self._number - 1]
        world.hits += any(name in job.nodes for job in world.live())
        fault = Fault(f"node {self._number} dies", at_s=world.engine.now, for_s=repair_s)
        happen(world, fault)
        self.fail_later(repair_s)


@dataclass(frozen=True)
class Measured:
    """Means of played sets without failures."""

    overhead_s: float
    """Of a set beyond its trainings."""
    limit_s: float
    """Longer sets have to be played; 0: all."""
    wall_s: float
    """To play a set."""


@dataclass(frozen=True)
class Case:
    """The constants of trials with a number of spares."""

    plan: RehearsalPlan
    rendered: Rendered
    known: Measured = field(default_factory=lambda: Measured(0.0, 0.0, 0.0))

    def played(
        self, folder: Path, failures: Failures, seed: int, chances: list[random.Random]
    ) -> Trial:
        world = _FailingWorld(
            replace(self.plan, seed=seed), folder, self.rendered, failures, chances
        )
        with suppress(Stuck), closing(world):
            world.play(LONGEST_S)
        for failure in world.jobs.failures:
            raise failure
        times = [job.times for job in world.all_jobs]
        held_ms = sum(of.end_ms - of.start_ms for of in times if of.end_ms)
        return Trial(
            world.ended_s,
            not world.missing(),
            world.resumes,
            world.hits,
            played=True,
            node_hours=job_nodes(self.plan.entry) * held_ms / 3_600_000,
        )

    def measured(self, folder: Path) -> Measured:
        """Play sets without failures."""
        overheads, limits, began = [], [math.inf], time.perf_counter()
        for seed in range(1, SAMPLES + 1):
            world = RehearsedWorld(replace(self.plan, seed=seed), folder, self.rendered)
            with suppress(Stuck), closing(world):
                world.play(LONGEST_S)
            lengths = world.lengths
            overheads.append(world.ended_s - scheduled_s(lengths, self._at_once))
            limits += [limit_s for limit_s in world.time_limits_s if limit_s is not None]
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
        """Return the duration, or infinite if it has to be played."""
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
        whole_s = self.unplayed_s(0)
        played = 1 - math.exp(-job_nodes(self.plan.entry) * whole_s / failures.mtbf_s)
        return self.known.wall_s * played + UNPLAYED_S

    def length_s(self, seed: int, run: int) -> float:
        script = self.trainings.script(seed=run, start_ms=0, chance=random.Random(f"{seed}/{run}"))
        return script.seconds

    @cached_property
    def trainings(self) -> Trainings:
        return Trainings(self.rendered.facts, run_seconds=self.plan.run_s)


def scheduled_s(lengths: Sequence[float], at_once: int) -> float:
    """Return the end of the last run."""
    ends = [0.0] * at_once
    for length in lengths:
        heapq.heapreplace(ends, ends[0] + length)
    return max(ends)


class _Trials:
    """A case for each number of spares."""

    def __init__(self, cases: list[Case], failures: Failures, seed: int, folder: Path) -> None:
        self.cases, self.failures, self.seed, self.folder = cases, failures, seed, folder

    def trial(self, number: int) -> list[Trial]:
        seed = int.from_bytes(sha256(f"{self.seed}/{number}".encode()).digest()[:6], "big")
        unplayed_s = [case.unplayed_s(seed) for case in self.cases]
        return [
            self._one(case, seed, ended_s)
            for case, ended_s in zip(self.cases, unplayed_s, strict=True)
        ]

    def measure(self, index: int) -> Measured:
        return self.cases[index].measured(self.folder / str(os.getpid()))

    def _one(self, case: Case, seed: int, unplayed_s: float) -> Trial:
        held = _chances(case, seed)[
            : job_nodes(case.plan.entry)
        ]  # a job gets the first nodes of an idle cluster
        first_s = min(chance.expovariate(1 / self.failures.mtbf_s) for chance in held)
        if first_s > unplayed_s:
            hours = job_nodes(case.plan.entry) * unplayed_s / 3600
            return Trial(unplayed_s, True, resumes=0, failures=0, played=False, node_hours=hours)
        return case.played(
            self.folder / str(os.getpid()), self.failures, seed, _chances(case, seed)
        )


def _chances(case: Case, seed: int) -> list[random.Random]:
    """Return the nodes' sources of failures."""
    return [random.Random(f"{seed}/node {number}") for number in range(len(case.plan.nodes))]


ENDING = (signal.SIGINT, signal.SIGTERM)

_here: list[_Trials] = []


def _begin(trials: _Trials) -> None:
    """Set up a worker; its parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    # Its parent removes the files.
    os.environ["TMPDIR"] = str(trials.folder)
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
    """Play `trials` sets of each plan on all cores, in a `folder` of their own.

    The plans differ in spares; the first plan's seed counts. `expect` gets the expected seconds.
    """
    cases = [Case(plan, Rendered(plan.entry, plan.nexp)) for plan in plans]
    all_trials = _Trials(cases, failures, plans[0].seed, folder)
    known = _spread(all_trials, _measure, range(len(cases)))
    all_trials.cases = [
        replace(case, known=measured) for case, measured in zip(cases, known, strict=True)
    ]
    expect(trials * sum(case.expected_s(failures) for case in all_trials.cases) / CORES)
    rows = _spread(all_trials, _trial, range(1, trials + 1))
    return [
        SparesResult(plan.entry.site.spares, len(plan.nodes), tuple(row[index] for row in rows))
        for index, plan in enumerate(plans)
    ]


def _spread(trials: _Trials, work: Callable[[int], T], numbers: range) -> list[T]:
    """Compute on all cores; return the results in order.

    Signals are blocked while processes start: a handler's exception inside `os.fork` is lost.
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
