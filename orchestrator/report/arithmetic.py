"""The arithmetic of a score, step by step, to follow by hand.

Every step repeats a step of `orchestrator.mllog`. Rules: docs/report.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from orchestrator.mllog.numbers import finite
from orchestrator.views.parts import Step
from orchestrator.words import train_time

if TYPE_CHECKING:
    from orchestrator.mllog.rcp import Point, RcpResult
    from orchestrator.mllog.result import RunScore, Score


def steps(score: Score, labels: dict[str, str]) -> tuple[Step, ...]:
    """Return the steps from logs to score that the set allows."""
    runs = [run for run in score.runs if run.use != "outside"]
    if not any(run.minutes is not None for run in runs):
        return ()
    listed = [_times(runs, labels), *_order(score, runs, labels)]
    if score.olympic_mean is not None:
        listed.append(_mean(score, runs))
        listed += _convergence(score, labels)
        listed += _final(score)
    return tuple(listed)


def exact(value: float) -> str:
    """Return a number without its last, noisy digits."""
    return f"{value:.10g}"


def _whole(value: float | None) -> str:
    return "?" if value is None or not math.isfinite(value) else f"{value:.0f}"


def _times(runs: list[RunScore], labels: dict[str, str]) -> Step:
    lines = [
        f"run {labels[run.file]}: ({_whole(run.stop)} − {_whole(run.start)}) / 60000 = "
        f"{exact(run.minutes)} min"
        for run in runs
        if run.minutes is not None
    ]
    lines += [
        f"run {labels[run.file]}: no time (run_start or run_stop is missing)"
        for run in runs
        if run.minutes is None
    ]
    return Step(
        "Time to train of each run: run_stop − run_start, milliseconds to minutes", tuple(lines)
    )


def _order(score: Score, runs: list[RunScore], labels: dict[str, str]) -> list[Step]:
    good = sorted(
        (run for run in runs if run.use != "bad" and run.minutes is not None),
        key=lambda run: run.minutes or 0.0,
    )
    if not good:
        return []
    mark = {"fastest": " (fastest: dropped)", "slowest": " (slowest: dropped)"}
    lines = [
        "; ".join(
            f"{exact(run.minutes or 0.0)} [run {labels[run.file]}]{mark.get(run.use, '')}"
            for run in good
        )
    ]
    bad = [labels[run.file] for run in runs if run.use == "bad"]
    if bad:
        lines.append(
            f"bad: run {', '.join(bad)}; {score.dropped} allowed, in the place of the slowest"
        )
    return [
        Step(
            f"Sort the minutes; drop the {score.dropped} fastest and the {score.dropped} slowest",
            tuple(lines),
        )
    ]


def _mean(score: Score, runs: list[RunScore]) -> Step:
    times = sorted(run.minutes for run in runs if run.use == "counted" and run.minutes is not None)
    total = sum(times)
    lines = (
        f"{' + '.join(map(exact, times))} = {exact(total)} min",
        f"{exact(total)} / {len(times)} = {exact(score.olympic_mean or 0.0)} min",
    )
    return Step(
        "Olympic mean: add up the rest and divide by their number",
        lines,
        score.olympic_mean,
        "minutes",
    )


def _convergence(score: Score, labels: dict[str, str]) -> list[Step]:
    result = score.rcp
    if result is None:
        return []
    if result.point is None or result.submission_mean is None:
        return [
            Step(
                "Samples to converge against the reference convergence points (RCP)",
                (result.message,),
            )
        ]
    return [
        _samples(score, labels, result),
        _reference(score, result.point, result),
        _factor(result.point, result),
    ]


def _samples(score: Score, labels: dict[str, str], result: RcpResult) -> Step:
    shown = "; ".join(
        f"{'not converged' if (samples := finite(run.samples)) is None else exact(samples)} "
        f"[run {labels[run.file]}]"
        for run in score.by_samples
    )
    kept = [finite(run.samples) for run in score.sampled]
    counted = [samples for samples in kept if samples is not None]
    total, mean = sum(counted), result.submission_mean or 0.0
    if len(counted) < len(kept):
        return Step("Mean of the samples to converge", (shown,), mean, "samples")
    return Step(
        f"Samples to converge: sort, drop the {score.dropped} smallest and {score.dropped} "
        "largest, average",
        (
            shown,
            f"{' + '.join(map(exact, counted))} = {exact(total)}",
            f"{exact(total)} / {len(counted)} = {exact(mean)}",
        ),
        mean,
        "samples",
    )


def _reference(score: Score, point: Point, result: RcpResult) -> Step:
    from orchestrator.mllog.rcp import RELAXED

    title = (
        f"Reference at batch size {exact(point.batch_size)} ({result.message}): smallest "
        "acceptable mean"
    )
    lines = [
        (
            f"reference mean {exact(point.mean)}, standard deviation {exact(point.stdev)} (round "
            f"{score.ruleset})"
        )
    ]
    formula = _limit_formula(score, point)
    if formula:
        lines.append(formula)
    if relaxed := RELAXED.get(str(score.benchmark)):
        lines.append(
            f"of that, {relaxed} samples are taken off for {score.benchmark}: {exact(point.limit)}"
        )
    word = "≥" if result.passed else "<"
    lines.append(
        f"{exact(result.submission_mean or 0.0)} {word} {exact(point.limit)}: the test is "
        f"{'passed' if result.passed else 'not passed'}"
    )
    return Step(title, tuple(lines), point.limit, "samples")


def _limit_formula(score: Score, point: Point) -> str:
    """Return mean − t × std × sqrt(1/n1 + 1/n2) in numbers; "" for a point without spread."""
    from orchestrator.mllog.rcp import table

    points = table(score.ruleset, str(score.benchmark))
    if points is None or point.stdev == 0:
        return ""
    tabulated = next(
        (point_at for point_at in points.points if point_at.batch_size == point.batch_size), None
    )
    count = (
        reference_runs(score.ruleset, str(score.benchmark), point.batch_size)
        if tabulated
        else points.runs * 2
    )
    mine = points.runs - 2
    t95 = _t95(score.ruleset).get(str(count + mine - 2))
    if t95 is None:
        return ""
    limit = point.mean - t95 * point.stdev * math.sqrt(1 / count + 1 / mine)
    return (
        f"{exact(point.mean)} − {exact(t95)} × {exact(point.stdev)} × √(1/{count} + 1/{mine}) = "
        f"{exact(limit)}"
        f" (t at 95 % with {count + mine - 2} degrees of freedom; the referee bisects to 0.0001)"
    )


def reference_runs(ruleset: str, benchmark: str, batch_size: float) -> int:
    """Return the runs behind a tabulated point, without its smallest and largest."""
    from orchestrator.mllog.olympic import dropped_per_side

    raw = _rcp_data(ruleset)["tables"][benchmark]
    runs = next(len(samples) for size, samples in raw if size == batch_size)
    return runs - 2 * dropped_per_side(benchmark)


def _t95(ruleset: str) -> dict[str, float]:
    quantiles: dict[str, float] = _rcp_data(ruleset)["t95"]
    return quantiles


def _rcp_data(ruleset: str) -> dict[str, Any]:
    from orchestrator.mllog.rules import data

    return data("rcp", ruleset)


def _factor(point: Point, result: RcpResult) -> Step:
    mean = result.submission_mean or 0.0
    ratio = f"{exact(point.mean)} / {exact(mean)}"
    line = f"max(1, {ratio}) = {exact(result.factor)}" if mean else f"factor {exact(result.factor)}"
    return Step(
        "Normalisation: a set that converges faster than the reference is slowed down to it",
        (line,),
        result.factor,
        "",
    )


def _final(score: Score) -> list[Step]:
    if score.minutes is None or score.olympic_mean is None:
        return []
    factor = score.factor if score.factor is not None else 1.0
    rounded = f"rounded at the very end: {train_time(score.minutes)}"
    if score.own:
        title = "Score by the workload's own rules: the olympic mean"
        return [Step(title, (rounded,), score.minutes, "minutes")]
    product = f"{exact(score.olympic_mean)} × {exact(factor)} = {exact(score.minutes)} min"
    title = "Score: olympic mean × normalisation factor"
    return [Step(title, (product, rounded), score.minutes, "minutes")]
