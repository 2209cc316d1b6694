"""Charts of convergence, a curve per run, and of throughput, the runs' median."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence

from orchestrator.mllog.olympic import median
from orchestrator.report.chart import (
    WIDE,
    Chart,
    Point,
    both,
    legend,
    series_swatch,
    stroke,
    widened,
)
from orchestrator.report.model import Report, Run
from orchestrator.report.reading import extremes, thinned
from orchestrator.views.figures import plain, unit_of_span
from orchestrator.views.markup import Safe, join
from orchestrator.words import count

MOST_CURVES = 40
"""A set has ten runs; more curves are unreadable."""
MOST_ROWS = 48
"""Rows of the table next to curves."""
NARROW_POINTS = 80
"""Points of a curve on a narrow screen."""
MEDIAN_POINTS = 100
"""Points of the median of several curves."""


def convergence(report: Report) -> Safe:
    """Return evaluations over samples, and their last stretch enlarged."""
    runs = drawn([run for run in report.runs if run.evaluations])
    if not runs:
        return Safe("")
    curves = [[(point.samples, point.value) for point in run.evaluations] for run in runs]
    ends = [curve[-max(3, len(curve) // 3) :] for curve in curves]
    title = f"{report.metric.capitalize()} over samples"
    charts = [both(_evaluations(report, runs, curves, "convergence", title, report.metric))]
    if _height(report, curves) > 3 * _height(report, ends) > 0:
        label = f"{report.metric}, the last third"
        charts.append(
            both(
                _evaluations(
                    report, runs, ends, "convergence-end", "The last third of each curve", label
                )
            )
        )
    target = [] if report.target is None else [(stroke("target"), f"target {report.target:g}")]
    return join(*charts, series_legend(runs, len(report.runs), target))


def _range(report: Report, curves: Sequence[Sequence[Point]]) -> Point:
    values = [value for curve in curves for _, value in curve]
    return widened(values + ([] if report.target is None else [report.target]))


def _height(report: Report, curves: Sequence[Sequence[Point]]) -> float:
    low, high = _range(report, curves)
    return high - low


def _evaluations(
    report: Report, runs: list[Run], curves: list[list[Point]], name: str, title: str, label: str
) -> Callable[[int], Chart]:
    better = "smaller" if report.smaller_is_better else "larger"
    aim = "" if report.target is None else f" The target is {report.target:g}; {better} is better."
    counts = [samples for curve in curves for samples, _ in curve]

    def draw(width: int) -> Chart:
        description = f"One curve per run, {count(len(runs), 'run')}.{aim}"
        chart = Chart(
            name,
            title,
            description,
            widened(counts, 0.02),
            _range(report, curves),
            width=width,
            plot=280,
            left=_left(width),
        )
        chart.x_axis("samples")
        chart.y_axis(label)
        if report.target is not None:
            chart.level(report.target, "target")
        for index, (run, curve) in enumerate(zip(runs, curves, strict=True)):
            samples, last = curve[-1]
            points = count(len(run.evaluations), "evaluation")
            says = (
                f"run {run.label}{report.place(run)}: {points}, last {last:.6g} at "
                f"{plain(samples)} samples"
            )
            chart.line(thinned(curve, NARROW_POINTS) if chart.narrow else curve, index, says)
        return chart

    return draw


def _left(width: int) -> int:
    return 70 if width == WIDE else 52


def throughput(report: Report) -> Safe:
    """Return samples per second over each run's minutes."""
    runs = drawn([run for run in report.runs if run.throughput])
    if not runs:
        return Safe("")
    xs = [at for run in runs for at, _ in run.throughput]
    ys = [rate for run in runs for _, rate in run.throughput]
    unit = unit_of_span(max(xs))
    description = (
        f"Samples per second of {count(len(runs), 'run')}, from {plain(min(ys))} to "
        f"{plain(max(ys))}; "
        f"{throughput_note(report)}."
    )

    def draw(width: int) -> Chart:
        span = widened([unit.of(x) for x in xs], 0.02)
        chart = Chart(
            "throughput",
            "Throughput over time",
            description,
            span,
            widened(ys),
            width=width,
            plot=260,
            left=_left(width),
        )
        chart.x_axis(f"{unit.name} since run_start")
        chart.y_axis("samples per second")
        for run in runs:
            rates = sorted(rate for _, rate in run.throughput)
            says = (
                f"run {run.label}{report.place(run)}: median {plain(rates[len(rates) // 2])} "
                "samples "
                f"per second, {plain(rates[0])} to {plain(rates[-1])}, {run.file}"
            )
            points = (
                extremes(list(run.throughput), NARROW_POINTS) if chart.narrow else run.throughput
            )
            chart.curve([(unit.of(at), rate) for at, rate in points], "quiet", says)
        if middle:
            typical = sorted(rate for _, rate in middle)[len(middle) // 2]
            says = f"median of {count(len(runs), 'run')}: {plain(typical)} samples per second"
            chart.curve([(unit.of(at), rate) for at, rate in middle], "median", says)
        return chart

    middle = median_curve([run.throughput for run in runs])
    key: list[tuple[Safe | str, str]] = []
    if middle:
        key.append((stroke("line median"), f"median of {count(len(runs), 'run')}"))
    key.append((stroke("line quiet"), "one run each: point at it for its name and nodes"))
    if len(runs) < len(report.runs):
        key.append(("", f"{count(len(report.runs) - len(runs), 'more run')} not drawn"))
    return join(both(draw), legend(*key))


def median_curve(curves: Sequence[Sequence[Point]]) -> list[Point]:
    """Return the median of three or more curves, as far as half of them reach."""
    if len(curves) < 3:
        return []
    ends = sorted((curve[-1][0] for curve in curves), reverse=True)
    begin = max(curve[0][0] for curve in curves)
    end = ends[len(curves) // 2]
    if end <= begin:
        return []
    step = (end - begin) / (MEDIAN_POINTS - 1)
    places = [begin + index * step for index in range(MEDIAN_POINTS)]
    return [
        (at, median([_height_at(curve, at) for curve in curves if curve[-1][0] >= at - step / 2]))
        for at in places
    ]


def _height_at(curve: Sequence[Point], at: float) -> float:
    """Interpolate a curve at x = `at`."""
    index = min(max(bisect_left(curve, (at, -math.inf)), 1), len(curve) - 1)
    (x1, y1), (x2, y2) = curve[max(index - 1, 0)], curve[index]
    share = 0.0 if x2 <= x1 else min(max((at - x1) / (x2 - x1), 0.0), 1.0)
    return y1 + (y2 - y1) * share


def throughput_note(report: Report) -> str:
    derived = [
        run.label for run in report.runs if run.throughput and run.throughput_from == "evaluations"
    ]
    if not derived:
        return "as the runs logged it"
    return (
        "from the evaluations, because the logs give no throughput: the time of evaluations is "
        "in it"
    )


def drawn(runs: list[Run]) -> list[Run]:
    """Return at most MOST_CURVES runs in order, preferring counted runs."""
    if len(runs) <= MOST_CURVES:
        return runs
    kept = {
        run.file
        for run in sorted(runs, key=lambda run: run.use in ("outside", "bad"))[:MOST_CURVES]
    }
    return [run for run in runs if run.file in kept]


def series_legend(
    runs: Sequence[Run], total: int, lines: Sequence[tuple[Safe | str, str]] = ()
) -> Safe:
    """Return the legend, with the number of missing runs."""
    entries = [(series_swatch(index), f"run {run.label}") for index, run in enumerate(runs)]
    rest = [("", f"{count(total - len(runs), 'more run')} not drawn")] if len(runs) < total else []
    return legend(*entries, *lines, *rest, series=len(runs))
