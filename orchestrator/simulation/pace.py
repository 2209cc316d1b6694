"""Durations and samples of trainings, from published results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from orchestrator.mllog.rcp import Point, table
from orchestrator.published import PublishedResult, find
from orchestrator.published.startup import PublishedStartup
from orchestrator.published.startup import load as all_startups
from orchestrator.simulation.training_facts import Behaviour, TrainingFacts

SCALING = 0.7
"""Power of the GPUs by which minutes fall: llama2_70b_lora on 1, 2, 4 nodes of MI300X, MI325X (5.0,
5.1)."""
SHARE_OF_LIMIT = 0.5
"""Of `minutes_per_run`, assumed for a run. Published: 0.08 to 0.72."""
COLD_S = 220.0
"""Extra start-up in a new container: median of the eleven published sets that log it."""
SHUTDOWN_S = 21.0
"""From run_stop to the end: median of the same sets."""
LONGEST_INIT_S = 1700.0
"""The compliance checker refuses 30 minutes from init_start to init_stop."""
REFERENCE_SPREAD = 1.2
"""A set's largest spread relative to the reference's: flux1 at batch 2048, llama31_8b at 32."""
LIMIT_SHARE = 0.8
"""Of `minutes_per_run`, the largest estimate: whoever chose that limit knew the system."""
FEWEST_EVALS = 20
"""If the interval is unknown."""


@dataclass(frozen=True)
class Samples:
    """Samples at evaluations (`first`, then `every`; whole batches) and at the end."""

    every: int
    first: int
    mean: float
    deviation: float
    """Of the samples at which the target is met, between evaluations too."""
    most: int

    @property
    def usual(self) -> float:
        """Return the evaluations of a run that needs the mean."""
        return max(1.0, (self.mean - self.first) / self.every + 1)

    def stop(self, crossing: float) -> int:
        """Return the last evaluation; `crossing`: samples at which the target is met."""
        return min(
            self.last,
            self.first + max(0, math.ceil((crossing - self.first) / self.every)) * self.every,
        )

    @property
    def last(self) -> int:
        """Return the last evaluation without meeting the target."""
        return self.first + max(0, (self.most - self.first) // self.every) * self.every


@dataclass(frozen=True)
class Seconds:
    """A usual run. `startup`: until run_start; `init`: its part from init_start on."""

    run: float
    startup: float
    cold: float
    """`startup` in a new container."""
    init: float
    shutdown: float
    source: str


def samples_of(facts: TrainingFacts, behaviour: Behaviour) -> Samples:
    batch = facts.global_batch
    mean, spread = _mean(facts, behaviour)
    interval = behaviour.number("eval_every") or mean / FEWEST_EVALS
    every = max(1, math.ceil(interval / batch)) * batch
    first = every * (1 + int(behaviour.number("skipped")))
    # Runs end at evaluations: that alone spreads samples like a uniform distribution.
    deviation = math.sqrt(max(spread**2 - every**2 / 12, (spread / 3) ** 2))
    return Samples(
        every, first, mean, deviation, max(first, int(_most(facts, behaviour, mean, every)))
    )


def _most(facts: TrainingFacts, behaviour: Behaviour, mean: float, every: int) -> float:
    if samples := behaviour.number("most_samples"):
        return math.ceil(samples / every) * every
    steps = behaviour.number("most_steps")
    return min(2 * mean, steps * facts.global_batch if steps > 0 else math.inf)


def _mean(facts: TrainingFacts, behaviour: Behaviour) -> tuple[float, float]:
    """Return mean and standard deviation of the samples needed."""
    spread, needs = behaviour.number("spread"), behaviour.number("needs", 1.0)
    reference = table(facts.ruleset, facts.benchmark)
    if reference is None:
        mean = _mean_of_steps(facts, behaviour)
        return mean, spread * mean
    point, _ = reference.point(facts.global_batch)
    if point is None:
        mean = needs * _beyond(reference.pruned, facts.global_batch)
        return mean, spread * mean
    return needs * point.mean, min(spread * point.mean, REFERENCE_SPREAD * point.stdev)


def _mean_of_steps(facts: TrainingFacts, behaviour: Behaviour) -> float:
    """Return the mean from known steps, else from 1,000 steps."""
    known = behaviour.convergence
    if known is None:
        return 1000.0 * facts.global_batch
    target = behaviour.number("target", known["target"])
    rate = behaviour.keys().get("opt_base_learning_rate")
    slower = known["learning_rate"] / rate if isinstance(rate, (int, float)) and rate > 0 else 1.0
    harder = (known["target"] / target) ** known["power"] if target > 0 else math.inf
    _, steps = min(known["steps"], key=lambda point: abs(math.log(point[0] / facts.global_batch)))
    return float(min(steps * slower * harder * facts.global_batch, 1e15))


def _beyond(points: list[Point], batch: int) -> float:
    """Return the mean on the line through the last two points."""
    if len(points) < 2:
        return points[0].mean
    low, high = points[-2:]
    slope = (high.mean - low.mean) / (high.batch_size - low.batch_size)
    return high.mean + slope * (batch - high.batch_size)


def seconds_of(
    facts: TrainingFacts, behaviour: Behaviour, samples: Samples, run_seconds: float | None
) -> Seconds:
    run, source = (
        (run_seconds, "given") if run_seconds is not None else _run(facts, behaviour, samples)
    )
    startup, init, shutdown = _startup(facts, behaviour)
    rows = _rows(facts)
    exact = [second for row in rows if row.system == facts.system for second in row.cold_s]
    cold = sum(exact) / len(exact) if exact else startup + (COLD_S if startup > 1 else 0.0)
    return Seconds(
        run, startup, max(cold, startup), min(init, startup, LONGEST_INIT_S), shutdown, source
    )


def _run(facts: TrainingFacts, behaviour: Behaviour, samples: Samples) -> tuple[float, str]:
    if rate := behaviour.number("samples_per_second"):
        return samples.mean / rate, "measured on two cores"
    results = [result for result in find(benchmark=facts.benchmark) if result.minutes]
    same = [result for result in results if result.system == facts.system]
    if same:
        best = min(same, key=lambda result: (result.round != facts.round, -float(result.round)))
        return _raw(best, behaviour) * 60, f"published: {_label(best)}"
    if results:
        near = min(results, key=lambda result: _distance(facts, result))
        speed = _speed(facts.accelerator) / _speed(near.accelerator)
        minutes = _raw(near, behaviour) * (near.gpus / facts.gpus) ** SCALING / speed
        return _limited(minutes, facts, f"estimated from {_label(near)}")
    return (
        facts.minutes_per_run * 60 * SHARE_OF_LIMIT,
        f"assumed: half of minutes_per_run ({facts.minutes_per_run})",
    )


def _limited(minutes: float, facts: TrainingFacts, source: str) -> tuple[float, str]:
    most = LIMIT_SHARE * facts.minutes_per_run
    if minutes <= most:
        return minutes * 60, source
    return (
        most * 60,
        f"{source}, shortened from {minutes:.0f} min to {LIMIT_SHARE} x minutes_per_run",
    )


def _raw(result: PublishedResult, behaviour: Behaviour) -> float:
    """Return a set's unnormalised mean: scores with few samples are raised."""
    return result.minutes * min(1.0, behaviour.number("needs", 1.0))


def _label(result: PublishedResult) -> str:
    name = result.system or result.name
    run = f"round {result.round}, {result.gpus} GPUs, {result.minutes:.2f} min"
    return f"{result.submitter} {name}, {run}"


def _distance(facts: TrainingFacts, result: PublishedResult) -> tuple[float, float]:
    """Another accelerator counts as 2.7 times as many GPUs."""
    scale = abs(math.log(result.gpus / facts.gpus))
    return scale + (result.accelerator != facts.accelerator) + 0.25 * (
        result.round != facts.round
    ), result.minutes


def _speed(accelerator: str) -> float:
    """Return the speed in llama2_70b_lora 5.1 on a node: it has all accelerators."""
    results = find(benchmark="llama2_70b_lora", round="5.1")
    minutes = [
        result.minutes
        for result in results
        if result.accelerator == accelerator and result.nodes == 1
    ]
    return 1 / median(minutes or [result.minutes for result in results])


def _rows(facts: TrainingFacts) -> list[PublishedStartup]:
    """Return the nearest start-ups: of the system, else the round, else the benchmark."""
    rows = [row for row in all_startups() if row.benchmark == facts.benchmark and _before_run(row)]
    for near in (
        [row for row in rows if (row.system, row.round) == (facts.system, facts.round)],
        [row for row in rows if row.round == facts.round],
        rows,
    ):
        if near:
            return near
    return []


def _startup(facts: TrainingFacts, behaviour: Behaviour) -> tuple[float, float, float]:
    """Return seconds until run_start, of these from init_start on, and after run_stop."""
    rows = _rows(facts)
    startup = (
        median([_before_run(row) for row in rows]) if rows else behaviour.number("startup_s", 60.0)
    )
    inits = [row.init_s for row in rows if row.init_s]
    inits = inits if 2 * len(inits) >= len(rows) else []
    usual = (
        behaviour.number("init_s", startup / 2) * startup / behaviour.number("startup_s", startup)
    )
    shutdowns = [row.shutdown_s for row in rows if row.shutdown_s]
    shutdown = median(shutdowns) if shutdowns else behaviour.number("shutdown_s", SHUTDOWN_S)
    return startup, median(inits) if inits else usual, shutdown


def _before_run(row: PublishedStartup) -> float:
    """Return seconds until run_start, 0 if the logs lack them."""
    around = min(filter(None, (row.script_s, row.between_s)), default=0.0)
    return row.warm_s or max(row.init_s or 0.0, around - (row.shutdown_s or SHUTDOWN_S))
