"""Charts with a row per run: time to train, samples to converge, start and end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from orchestrator.evidence.attempts import RunAttempt
from orchestrator.mllog.olympic import LOST
from orchestrator.report.chart import (
    Chart,
    both,
    fixed,
    legend,
    patch,
    room_for,
    stroke,
    swatch,
    widened,
    zoomed,
)
from orchestrator.report.curves import MOST_CURVES, drawn
from orchestrator.report.model import Report, Run
from orchestrator.views.figures import moment, plain, unit_of_span
from orchestrator.views.markup import Safe, join, tag, void

ROW = 22
CROSSED, HATCHED = "url(#cross)", "url(#hatch)"


def patterns() -> Safe:
    """Return the fills of initialisation and lost attempts, once per page."""

    def pattern(name: str, path: str) -> Safe:
        inner = (
            void("rect", class_="patternback", width=8, height=8),
            void("path", class_="patternline", d=Safe(path)),
        )
        return tag("pattern", *inner, id=name, width=8, height=8, patternUnits="userSpaceOnUse")

    up, down = "M0 8L8 0M-2 2L2 -2M6 10L10 6", "M0 0L8 8M-2 6L2 10M6 -2L10 2"
    # Not display: none, which would hide the patterns in the charts.
    both_ways = tag("defs", pattern("hatch", up), pattern("cross", up + down))
    return tag("svg", both_ways, width=0, height=0, aria_hidden="true", class_="defs")


# ---- time to train ----


def times(report: Report) -> Safe:
    """Return a dot per run, with mean, interval and published value."""
    runs, scale, unit = drawn(list(report.runs)), report.scale, report.unit
    timed = [
        (run, run.minutes * scale) for run in runs if run.minutes is not None and run.minutes > 0
    ]
    values = [value for run, value in timed if run.use != "bad"] or [value for _, value in timed]
    if not values:
        return Safe("")
    mean = report.mean.mean if report.mean else report.score.olympic_mean
    ends = report.mean.around() if report.mean and report.mean.mean > 0 else ()
    published = report.published[0] if report.published else None
    shown = [*values, *([mean] if mean is not None else [])]
    low, high = zoomed(shown, ends)
    near = published is not None and low - (high - low) <= published.minutes <= high + (high - low)
    if published and near:
        low, high = widened([low, high, published.minutes], 0.02)
    what = unit.name if scale == 1 else f"{unit.name} × normalisation factor {scale:.6f}"
    description = f"One dot per run, {_uses_text(report)}."
    description += "" if mean is None else f" The mean is {unit.full(mean)}."
    description += "" if published is None else f" Published are {published.minutes:.2f} minutes."

    def draw(width: int) -> Chart:
        chart = Chart(
            "times",
            "Time to train of each run",
            description,
            (unit.of(low), unit.of(high)),
            (-0.6, len(runs) - 0.4),
            width=width,
            plot=20 + ROW * len(runs),
            left=room_for([run.label for run in runs], width),
            right=76,
        )
        if ends:
            chart.band(unit.of(ends[0]), unit.of(ends[1]))
        chart.x_axis(what)
        chart.rows("run", [run.label for run in runs])
        if published and near:
            chart.upright(unit.of(published.minutes), "published")
        if mean is not None:
            chart.upright(unit.of(mean), "mean")
        chart.column_head(unit.name if scale == 1 else "× factor")
        for index, run in enumerate(runs):
            _time(chart, report, run, len(runs) - 1 - index)
        return chart

    key: list[tuple[Safe | str, str]] = [
        (_use_swatch(use), text) for use, text in _uses(runs).items()
    ]
    if mean is not None:
        key.append(
            (stroke("mean"), f"{'score' if report.score.valid else 'mean'} {unit.full(mean)}")
        )
    if ends:
        key.append((patch("band"), f"95 % interval, {unit.text(ends[0])} to {unit.full(ends[1])}"))
    if published:
        away = "" if near else ": too far away to be drawn"
        said = (
            f"published {unit.full(published.minutes, 2)}, {published.submitter}, round "
            f"{published.round}"
        )
        key.append((stroke("published"), said + away))
    return join(both(draw), legend(*key))


def _uses_text(report: Report) -> str:
    if any(not run.use for run in report.runs):
        return "too few runs for a mean"
    marked = [
        f"run {run.label} {run.use_text}"
        for run in report.runs
        if run.use not in ("counted", "outside")
    ]
    return ", ".join(marked[:6]) or "all runs count"


def _time(chart: Chart, report: Report, run: Run, row: int) -> None:
    unit, value = report.unit, run.minutes
    if value is None or value <= 0:
        chart.column(row, "no time")
        return
    at = unit.of(value * report.scale)
    samples = "" if run.samples is None else f", {plain(run.samples)} samples"
    says = f"run {run.label}{report.place(run)}: {unit.full(value)}{samples}, {run.use_text}"
    chart.column(
        row, unit.text(value * report.scale), "value" if run.use == "counted" else "value soft"
    )
    if chart.x_range[0] <= at <= chart.x_range[1]:
        chart.mark(says, *_row_dot(chart, at, row, run.use))


def _row_dot(chart: Chart, at: float, row: int, use: str) -> tuple[Safe, Safe]:
    x, y = chart.x(at), chart.y(row)
    return void(
        "line", class_="grid", x1=chart.box[0], x2=fixed(x), y1=fixed(y), y2=fixed(y)
    ), _use_mark(use, x, y)


def _use_mark(use: str, x: float, y: float) -> Safe:
    """Return a run's mark: a dot counts, an arrow was dropped on that side, a cross is bad."""
    if use in ("counted", "outside", ""):
        return void(
            "circle",
            class_=f"dot {'c0' if use == 'counted' else 'hollow'}",
            cx=fixed(x),
            cy=fixed(y),
            r=5.5,
        )
    if use == "bad":
        crossed = Safe(f"M{fixed(x - 5)} {fixed(y - 5)}l10 10m0 -10l-10 10")
        return void("path", class_="dot crossed", d=crossed)
    side = -1 if use == "fastest" else 1
    corners = ((side * 7, 0), (-side * 5, -6), (-side * 5, 6))
    points = Safe(" ".join(f"{fixed(x + dx)},{fixed(y + dy)}" for dx, dy in corners))
    return void("polygon", class_="dot hollow", points=points)


def _uses(runs: Sequence[Run]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for run in runs:
        texts.setdefault(run.use, run.use_text)
    return texts


def _use_swatch(use: str) -> Safe:
    return swatch(_use_mark(use, 9, 8), width=18, height=16)


# ---- samples against the reference ----


def samples(report: Report) -> Safe:
    """Return samples to converge, the reference's band and limit."""
    result = report.score.rcp
    runs = [run for run in report.runs if run.use != "outside" and run.samples is not None][
        :MOST_CURVES
    ]
    if not runs or result is None or result.point is None or result.submission_mean is None:
        return Safe("")
    point, mine = result.point, result.shown_mean
    low, high = point.mean - point.stdev, point.mean + point.stdev
    values = [
        *(run.samples or 0.0 for run in runs),
        low,
        high,
        point.limit,
        *([] if mine is None else [mine]),
    ]
    counted = {run.file for run in report.score.sampled}
    description = (
        f"The set's mean is {plain(mine)}, the reference's {plain(point.mean)}; at least "
        f"{plain(point.limit)} is "
        f"needed: {'passed' if result.passed else 'not passed'}."
    )

    def draw(width: int) -> Chart:
        chart = Chart(
            "samples",
            "Samples to converge against the reference",
            description,
            widened(values, 0.05),
            (-0.6, len(runs) - 0.4),
            width=width,
            plot=20 + ROW * len(runs),
            left=room_for([run.label for run in runs], width),
            right=24,
        )
        chart.band(low, high)
        chart.x_axis("samples to converge")
        chart.rows("run", [run.label for run in runs])
        chart.upright(point.limit, "limit")
        chart.upright(point.mean, "reference")
        if mine is not None:
            chart.upright(mine, "mean")
        for index, run in enumerate(runs):
            hollow = run.file not in counted
            says = f"run {run.label}{report.place(run)}: {plain(run.samples)} samples" + (
                ", left out of the mean" if hollow else ""
            )
            use = "outside" if hollow else "counted"
            chart.mark(says, *_row_dot(chart, run.samples or 0.0, len(runs) - 1 - index, use))
        return chart

    return join(
        both(draw),
        legend(
            (_use_swatch("counted"), "counts for the mean of samples"),
            (_use_swatch("outside"), "smallest or largest: left out of it"),
            *([] if mine is None else [(stroke("mean"), f"mean of this set {plain(mine)}")]),
            (stroke("reference"), f"reference mean {plain(point.mean)}"),
            (patch("band"), "± one standard deviation"),
            (stroke("limit"), f"smallest acceptable mean {plain(point.limit)}"),
        ),
    )


# ---- timeline ----


def timeline(report: Report) -> Safe:
    """Return initialisations, runs and pauses over time; failed attempts are crossed."""
    runs = sorted(
        (run for run in report.runs if run.start_ms is not None),
        key=lambda run: run.start_ms or 0.0,
    )
    runs = runs[:MOST_CURVES]
    lost = [
        attempt
        for attempt in report.attempts
        if attempt.outcome in LOST and 0 < attempt.start_ms <= attempt.end_ms
    ][:MOST_CURVES]
    if not runs:
        return Safe("")
    begins = [min(run.init_ms or math.inf, run.start_ms or 0.0) for run in runs] + [
        float(attempt.start_ms) for attempt in lost
    ]
    ends = [run.stop_ms or run.start_ms or 0.0 for run in runs] + [
        float(attempt.end_ms) for attempt in lost
    ]
    origin, span = min(begins), (max(ends) - min(begins)) / 60000
    unit = unit_of_span(span)
    rows: list[tuple[float, Run | RunAttempt]] = sorted(
        [
            *((run.start_ms or 0.0, run) for run in runs),
            *((float(attempt.start_ms), attempt) for attempt in lost),
        ],
        key=lambda row: row[0],
    )
    names = [row.label if isinstance(row, Run) else f"{row.run}.{row.attempt} ✗" for _, row in rows]

    def draw(width: int) -> Chart:
        chart = Chart(
            "timeline",
            "When the runs ran",
            f"From {moment(origin)} to {moment(max(ends))}",
            (0, unit.of(span) or 1),
            (-0.6, len(rows) - 0.4),
            width=width,
            plot=10 + 20 * len(rows),
            left=room_for(names, width),
            right=24,
        )
        chart.x_axis(f"{unit.name} since {moment(origin)}")
        chart.rows("run", names)
        for index, (_, row) in enumerate(rows):
            _span(
                chart,
                report,
                row,
                len(rows) - 1 - index,
                lambda time: unit.of((time - origin) / 60000),
            )
        return chart

    key = [
        (_bar_swatch("bar counted"), "training"),
        (_bar_swatch("bar init", HATCHED), "initialisation, not in the score"),
    ]
    key += [(_bar_swatch("bar bad", CROSSED), "lost attempt, as run.attempt")] if lost else []
    return join(both(draw), legend(*key))


def _bar_swatch(class_: str, fill: str | None = None) -> Safe:
    bar = void(
        "rect", class_=class_, x=1, y=2, width=28, height=12, fill=Safe(fill) if fill else None
    )
    return swatch(bar, width=30, height=16)


def _span(
    chart: Chart, report: Report, row: Run | RunAttempt, place: int, at: Callable[[float], float]
) -> None:
    def rect(begin: float, end: float, class_: str, fill: str | None = None) -> Safe:
        left, right = chart.x(at(begin)), chart.x(at(end))
        return void(
            "rect",
            class_=class_,
            x=fixed(left),
            y=fixed(chart.y(place) - 6),
            height=12,
            width=fixed(max(1.5, right - left)),
            fill=Safe(fill) if fill else None,
        )

    if isinstance(row, RunAttempt):
        says = f"run {row.run}, attempt {row.attempt}: {row.outcome}: {row.reason}"
        chart.mark(says, rect(row.start_ms, row.end_ms, "bar bad", CROSSED))
        return
    begin, start = min(row.init_ms or row.start_ms or 0.0, row.start_ms or 0.0), row.start_ms or 0.0
    stop = max(row.stop_ms or start, start)
    unit = report.unit
    chart.mark(
        f"run {row.label}{report.place(row)}: initialisation {unit.full((start - begin) / 60000)}, "
        f"training {unit.full((stop - start) / 60000)}, from {moment(begin)}",
        rect(begin, start, "bar init", HATCHED),
        rect(start, stop, "bar counted"),
    )
