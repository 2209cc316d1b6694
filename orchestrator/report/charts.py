"""The charts of a report, and the table of numbers beside each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.evidence.attempts import RunAttempt
from orchestrator.report.chart import Chart, fixed, legend, series, swatch, widened
from orchestrator.report.figures import minutes, moment, plain
from orchestrator.report.markup import Safe, join, tag, void
from orchestrator.report.model import CurvePoint, Report, Run

MOST_CURVES = 40
"""Runs drawn in one chart; a set has ten, and more curves than this are a carpet."""
MOST_ROWS = 48
"""Rows of the table beside curves."""
PATTERNS = {"fastest": "url(#hatch-up)", "slowest": "url(#hatch-down)", "bad": "url(#cross)", "outside": "url(#dots)"}


def patterns() -> Safe:
    """The fills that tell the uses of a run apart without colour, once per page."""

    def pattern(name: str, *inner: Safe, size: int = 8) -> Safe:
        return tag(
            "pattern",
            void("rect", class_="patternback", width=size, height=size),
            *inner,
            id=name,
            width=size,
            height=size,
            patternUnits="userSpaceOnUse",
        )

    up, down = (
        void("path", class_="patternline", d=Safe(path))
        for path in ("M0 8L8 0M-2 2L2 -2M6 10L10 6", "M0 0L8 8M-2 6L2 10M6 -2L10 2")
    )
    # Not display: none, which would take the patterns away from the charts.
    return tag(
        "svg",
        tag(
            "defs",
            pattern("hatch-up", up),
            pattern("hatch-down", down),
            pattern("cross", up, down),
            pattern("dots", void("circle", class_="patterndot", cx=4, cy=4, r=1.6)),
        ),
        width=0,
        height=0,
        aria_hidden="true",
        class_="defs",
    )


# ---- time to train ----


def times(report: Report) -> Safe:
    """Bars of the minutes per run; what is dropped is hatched."""
    runs = report.runs[: MOST_CURVES * 2]
    known = [run.minutes for run in runs if run.minutes is not None and run.minutes > 0]
    if not known:
        return Safe("")
    mean = report.score.olympic_mean
    description = f"One bar per run in minutes; {_uses_text(report)}."
    if mean is not None:
        description += f" The olympic mean is {minutes(mean)} minutes."
    chart = Chart("times", "Time to train of each run", description, (0, len(runs)), (0, max(known) * 1.12))
    chart.y_axis("minutes")
    chart.x_axis("run", [(index + 0.5, run.label) for index, run in enumerate(runs)] if len(runs) <= 40 else [])
    for index, run in enumerate(runs):
        _bar(chart, run, index)
    if mean is not None:
        chart.level(mean, f"olympic mean {minutes(mean)}", "mean")
    for index, run in enumerate(runs if len(runs) <= 16 else []):
        if run.minutes is not None and run.minutes > 0:
            chart.text(chart.x(index + 0.5), chart.y(run.minutes) - 6, _short(run.minutes))
    return join(chart.svg(), _uses_legend(runs))


def _uses_text(report: Report) -> str:
    marked = [f"run {run.label} {run.use_text}" for run in report.runs if run.use not in ("counted", "outside")]
    return ", ".join(marked[:6]) or "all runs count"


def _bar(chart: Chart, run: Run, index: int) -> None:
    left, right = chart.x(index + 0.14), chart.x(index + 0.86)
    base, value = chart.y(0), run.minutes
    if value is None or value <= 0:
        chart.mark(
            f"run {run.label}: no time to train ({run.use_text})",
            tag("text", "no time", class_="tick", x=fixed((left + right) / 2), y=fixed(base - 6), text_anchor="middle"),
        )
        return
    top = chart.y(value)
    bar = void(
        "rect",
        class_=f"bar {run.use}",
        x=fixed(left),
        y=fixed(top),
        width=fixed(right - left),
        height=fixed(base - top),
        fill=Safe(PATTERNS[run.use]) if run.use in PATTERNS else None,
    )
    samples = "" if run.samples is None else f", {plain(run.samples)} samples"
    chart.mark(f"run {run.label}: {minutes(value)} minutes{samples}, {run.use_text}", bar)


def _short(value: float) -> str:
    return f"{value:.1f}" if value >= 100 else f"{value:.2f}" if value >= 1 else f"{value:.4f}"


def _uses_legend(runs: Sequence[Run]) -> Safe:
    texts: dict[str, str] = {}
    for run in runs:
        texts.setdefault(run.use, run.use_text)
    return legend(*((_bar_swatch(use), text) for use, text in texts.items()))


def _bar_swatch(use: str) -> Safe:
    fill = Safe(PATTERNS[use]) if use in PATTERNS else None
    return swatch(void("rect", class_=f"bar {use}", x=1, y=1, width=22, height=12, fill=fill), width=24, height=14)


# ---- convergence ----


def convergence(report: Report) -> Safe:
    """The evaluations of every run over samples, against the target; the last stretch once more in large."""
    runs = _drawn([run for run in report.runs if run.evaluations])
    if not runs:
        return Safe("")
    curves = [list(run.evaluations) for run in runs]
    aim = (
        ""
        if report.target is None
        else f" The target is {report.target:g}; {'smaller' if report.smaller_is_better else 'larger'} is better."
    )
    whole = _curves(
        report,
        runs,
        curves,
        "convergence",
        f"{report.metric.capitalize()} over samples",
        f"One curve per run, {len(runs)} runs.{aim}",
    )
    ends = [curve[-max(3, len(curve) // 3) :] for curve in curves]
    close = Safe("")
    if _span_of(report, curves) > 3 * _span_of(report, ends) > 0:
        close = _curves(
            report,
            runs,
            ends,
            "convergence-end",
            "The last third of each curve",
            f"The same curves near their ends.{aim}",
        )
    return join(whole, close, series_legend(runs, len(report.runs)))


def _span_of(report: Report, curves: list[list[CurvePoint]]) -> float:
    low, high = _value_range(report, curves)
    return high - low


def _value_range(report: Report, curves: list[list[CurvePoint]]) -> tuple[float, float]:
    values = [point.value for curve in curves for point in curve] + (
        [report.target] if report.target is not None else []
    )
    return widened(values)


def _curves(
    report: Report, runs: list[Run], curves: list[list[CurvePoint]], name: str, title: str, description: str
) -> Safe:
    counts = [point.samples for curve in curves for point in curve]
    chart = Chart(name, title, description, widened(counts, 0.02), _value_range(report, curves), height=380)
    chart.x_axis("samples")
    chart.y_axis(report.metric if name == "convergence" else f"{report.metric}, the last third of each curve")
    for index, (run, curve) in enumerate(zip(runs, curves, strict=True)):
        last = curve[-1]
        chart.line(
            [(point.samples, point.value) for point in curve],
            index,
            f"run {run.label}: {len(run.evaluations)} evaluations, "
            f"last {last.value:.6g} at {plain(last.samples)} samples",
        )
    if report.target is not None:
        chart.level(report.target, f"target {report.target:g}", "target")
    return chart.svg()


def _drawn(runs: list[Run]) -> list[Run]:
    """At most MOST_CURVES runs, those that count first, in their order."""
    if len(runs) <= MOST_CURVES:
        return runs
    kept = {run.file for run in sorted(runs, key=lambda run: run.use in ("outside", "bad"))[:MOST_CURVES]}
    return [run for run in runs if run.file in kept]


def series_legend(runs: Sequence[Run], total: int) -> Safe:
    drawn: list[tuple[Safe | str, str]] = [(series(index), f"run {run.label}") for index, run in enumerate(runs)]
    return legend(*drawn, *([("", f"{total - len(runs)} more runs are not drawn")] if len(runs) < total else []))


# ---- samples against the reference ----


def samples(report: Report) -> Safe:
    """Samples to converge of every run, the reference's band and the smallest acceptable mean."""
    result = report.score.rcp
    runs = [run for run in report.runs if run.use != "outside" and run.samples is not None][:MOST_CURVES]
    if not runs or result is None or result.point is None or result.submission_mean is None:
        return Safe("")
    point, mine = result.point, result.submission_mean
    shown = mine < 1e8
    values = (
        [run.samples or 0.0 for run in runs]
        + [point.mean - point.stdev, point.mean + point.stdev, point.limit]
        + [mine] * shown
    )
    chart = Chart(
        "samples",
        "Samples to converge against the reference",
        f"The set's mean is {plain(mine)}, the reference's {plain(point.mean)}; at least {plain(point.limit)} is "
        f"needed: {'passed' if result.passed else 'not passed'}.",
        widened(values, 0.05),
        (-0.6, len(runs) - 0.4),
        height=110 + 50 + 22 * len(runs),
        top=100,
    )
    chart.band(point.mean - point.stdev, point.mean + point.stdev, "band")
    chart.x_axis("samples to converge (band: reference mean ± one standard deviation)")
    chart.y_axis("run", [(len(runs) - 1 - index, run.label) for index, run in enumerate(runs)])
    chart.upright(point.limit, f"smallest acceptable mean {plain(point.limit)}", "limit", 0)
    chart.upright(point.mean, f"reference mean {plain(point.mean)}", "reference", 1)
    if shown:
        chart.upright(mine, f"mean of this set {plain(mine)}", "mean", 2)
    dropped = _dropped_samples(runs, report.score.dropped)
    for index, run in enumerate(runs):
        _sample(chart, run, len(runs) - 1 - index, run.file in dropped)
    return join(
        chart.svg(),
        legend(
            (_dot_swatch("dot c0"), "counts for the mean of samples"),
            (_dot_swatch("dot hollow"), "smallest or largest: left out of it"),
        ),
    )


def _dot_swatch(class_: str) -> Safe:
    return swatch(void("circle", class_=class_, cx=8, cy=8, r=5), width=16, height=16)


def _dropped_samples(runs: Sequence[Run], dropped: int) -> set[str]:
    """The runs that the RCP test leaves out. (A run that did not converge is the largest; it is not drawn.)"""
    ordered = sorted(runs, key=lambda run: run.samples or 0.0)
    return {run.file for run in [*ordered[:dropped], *ordered[len(ordered) - dropped :]]}


def _sample(chart: Chart, run: Run, row: float, hollow: bool) -> None:
    x, y = chart.x(run.samples or 0.0), chart.y(row)
    chart.mark(
        f"run {run.label}: {plain(run.samples)} samples" + (", left out of the mean" if hollow else ""),
        void("line", class_="grid", x1=chart.box[0], x2=fixed(x), y1=fixed(y), y2=fixed(y)),
        void("circle", class_="dot hollow" if hollow else "dot c0", cx=fixed(x), cy=fixed(y), r=6),
    )


# ---- throughput ----


def throughput(report: Report) -> Safe:
    """Samples per second over the minutes of each run."""
    runs = _drawn([run for run in report.runs if run.throughput])
    if not runs:
        return Safe("")
    xs = [at for run in runs for at, _ in run.throughput]
    ys = [rate for run in runs for _, rate in run.throughput]
    scale, unit = _time_unit(max(xs))
    chart = Chart(
        "throughput",
        "Throughput over time",
        f"Samples per second of {len(runs)} runs, from {plain(min(ys))} to {plain(max(ys))}; "
        f"{throughput_note(report)}.",
        widened([x * scale for x in xs], 0.02),
        widened(ys),
        height=360,
    )
    chart.x_axis(f"{unit} since run_start")
    chart.y_axis("samples per second")
    for index, run in enumerate(runs):
        rates = [rate for _, rate in run.throughput]
        middle = sorted(rates)[len(rates) // 2]
        chart.line(
            [(at * scale, rate) for at, rate in run.throughput],
            index,
            f"run {run.label}: {plain(min(rates))} to {plain(max(rates))} samples per second, median {plain(middle)}",
        )
    return join(chart.svg(), series_legend(runs, len(report.runs)))


def throughput_note(report: Report) -> str:
    derived = [run.label for run in report.runs if run.throughput and run.throughput_from == "evaluations"]
    if not derived:
        return "as the runs logged it"
    return "from the evaluations, because the logs give no throughput: the time of evaluations is in it"


def _time_unit(longest_minutes: float) -> tuple[float, str]:
    """(factor from minutes, name of the unit) that suits a span."""
    if longest_minutes < 3:
        return 60.0, "seconds"
    if longest_minutes < 300:
        return 1.0, "minutes"
    return (1 / 60, "hours") if longest_minutes < 60 * 96 else (1 / 1440, "days")


# ---- timeline ----


def timeline(report: Report) -> Safe:
    """When each run was initialised and ran, and what lies between; failed attempts are crossed."""
    runs = sorted((run for run in report.runs if run.start_ms is not None), key=lambda run: run.start_ms or 0.0)[
        :MOST_CURVES
    ]
    lost = [
        attempt
        for attempt in report.attempts
        if attempt.outcome in ("infrastructure", "interrupted") and 0 < attempt.start_ms <= attempt.end_ms
    ][:MOST_CURVES]
    if not runs:
        return Safe("")
    begins = [min(run.init_ms or math.inf, run.start_ms or 0.0) for run in runs] + [float(one.start_ms) for one in lost]
    ends = [run.stop_ms or run.start_ms or 0.0 for run in runs] + [float(one.end_ms) for one in lost]
    origin, span = min(begins), (max(ends) - min(begins)) / 60000
    scale, unit = _time_unit(span)
    chart = Chart(
        "timeline",
        "When the runs ran",
        f"From {moment(origin)} to {moment(max(ends))}; hatched: initialisation"
        + ("; crossed: attempts that were lost (run.attempt ✗)" if lost else ""),
        (0, span * scale or 1),
        (-0.6, len(runs) + len(lost) - 0.4),
        height=100 + 20 * (len(runs) + len(lost)),
    )
    chart.x_axis(f"{unit} since {moment(origin)}")
    rows: list[tuple[float, Run | RunAttempt]] = sorted(
        [*((run.start_ms or 0.0, run) for run in runs), *((float(one.start_ms), one) for one in lost)],
        key=lambda row: row[0],
    )
    chart.y_axis(
        "run",
        [
            (len(rows) - 1 - index, row.label if isinstance(row, Run) else f"{row.run}.{row.attempt} ✗")
            for index, (_, row) in enumerate(rows)
        ],
    )
    for index, (_, row) in enumerate(rows):
        _span(chart, row, len(rows) - 1 - index, origin, scale)
    return chart.svg()


def _span(chart: Chart, row: Run | RunAttempt, place: int, origin: float, scale: float) -> None:
    def at(time: float) -> float:
        return chart.x((time - origin) / 60000 * scale)

    def rect(begin: float, end: float, class_: str, fill: str | None = None) -> Safe:
        return void(
            "rect",
            class_=class_,
            x=fixed(at(begin)),
            y=fixed(chart.y(place) - 6),
            height=12,
            width=fixed(max(1.5, at(end) - at(begin))),
            fill=Safe(fill) if fill else None,
        )

    if isinstance(row, RunAttempt):
        chart.mark(
            f"run {row.run}, attempt {row.attempt}: {row.outcome}: {row.reason}",
            rect(row.start_ms, row.end_ms, "bar bad", PATTERNS["bad"]),
        )
        return
    begin, start = min(row.init_ms or row.start_ms or 0.0, row.start_ms or 0.0), row.start_ms or 0.0
    stop = max(row.stop_ms or start, start)
    chart.mark(
        f"run {row.label}: initialisation {minutes((start - begin) / 60000)} minutes, "
        f"training {minutes((stop - start) / 60000)} "
        f"minutes, from {moment(begin)}",
        rect(begin, start, "bar init", PATTERNS["fastest"]),
        rect(start, stop, "bar counted"),
    )
