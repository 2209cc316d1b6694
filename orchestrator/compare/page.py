"""A comparison as a self-contained HTML page, in the report's style."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.compare.comparison import NEAR, Comparison
from orchestrator.compare.parts import difference_tables, verdict_lines
from orchestrator.compare.sides import Side
from orchestrator.mllog.trimmed import METHOD
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
from orchestrator.report.page import render
from orchestrator.views.figures import Unit, plain, unit_of_runs
from orchestrator.views.markup import Safe, join, void
from orchestrator.views.parts import Figure, Heading, Part, Section, Table
from orchestrator.words import rate

ROW = 34


def page(comparisons: Sequence[Comparison]) -> str:
    """Return the page. All `comparisons` share their first side."""
    first = comparisons[0].a
    sides = [first, *(comparison.b for comparison in comparisons)]
    names = [chr(ord("A") + index) if index < 26 else str(index + 1) for index in range(len(sides))]
    unit = unit_of_runs(side.scored for side in sides)
    differ = [
        Section(f"differences-{name}", f"What differs: {name} and A", parts)
        for name, comparison in zip(names[1:], comparisons, strict=True)
        if (parts := _differences(comparison, name))
    ]
    sections = [
        Section("sides", "The sides", _sides(sides, names, unit)),
        Section("ratios", "How sure", _sure(comparisons, names)),
        *differ,
    ]
    tones = [comparison.tone for comparison in comparisons]
    single = comparisons[0] if len(comparisons) == 1 else None
    return render(
        "compare.html.j2",
        title=f"{first.benchmark}: {', '.join(names[1:])} against A",
        headline="comparison",
        subtitle=" · ".join(
            f"{name}: {side.name}" for name, side in zip(names, sides, strict=True)
        ),
        figure=_percent(single) if single else "",
        tone=next(tone for tone in ("no", "plain", "yes") if tone in tones),
        verdicts=[
            _verdict(comparison, name, single is not None)
            for name, comparison in zip(names[1:], comparisons, strict=True)
        ],
        notes=list(dict.fromkeys(note for comparison in comparisons for note in comparison.notes)),
        sections=sections,
        patterns=Safe(""),
    )


def _percent(comparison: Comparison) -> str:
    """Return the figure above the verdict; "" for an unsure difference."""
    if comparison.score_ratio is None or comparison.verdict == "unsure":
        return ""
    return signed(comparison.score_ratio)


def signed(ratio: float) -> str:
    """Return `+0.4 %`."""
    return f"{(ratio - 1) * 100:+.1f} %" if abs(ratio - 1) < 10 else f"× {ratio:.3g}"


def _verdict(comparison: Comparison, name: str, alone: bool) -> tuple[str, list[str]]:
    first, *rest = verdict_lines(comparison, name)
    return comparison.tone, [first if alone else f"{name}: {first}", *rest]


def _sides(sides: Sequence[Side], names: Sequence[str], unit: Unit) -> list[Part]:
    rows = [
        (
            name,
            unit.text(side.scored, side.digits)
            + ("" if side.score is not None or side.scored is None else " (mean)"),
            "–" if side.rate is None else rate(side.rate, 5),
            plain(None if side.samples is None else round(side.samples)),
            side.runs,
            f"{side.kind}, round {side.ruleset}" if side.ruleset[:1].isdigit() else side.kind,
        )
        for name, side in zip(names, sides, strict=True)
    ]
    header = ("", f"score, {unit.name}", "samples per second", "samples", "runs", "from")
    listing = Table(
        "What is compared", header, rows, numeric=(1, 2, 3, 4), below=[side.name for side in sides]
    )
    chart = _runs(sides, names, unit)
    caption = (
        f"A dot per run, in {unit.name} of the score; a run whose time is not known has none. "
        "The axis does not start at 0."
    )
    return [*([Figure(chart, caption)] if chart else []), listing]


def _runs(sides: Sequence[Side], names: Sequence[str], unit: Unit) -> Safe:
    values = [
        value
        for side in sides
        for value in (*side.minutes, *([side.scored] if side.scored else []))
    ]
    if not values:
        return Safe("")
    ends = [side.times.around() if side.times and side.times.mean > 0 else None for side in sides]
    low, high = zoomed(values, [value for pair in ends if pair for value in pair])

    def draw(width: int) -> Chart:
        chart = Chart(
            "runs",
            "Runs and scores",
            f"{len(sides)} sides, a row each",
            (unit.of(low), unit.of(high)),
            (-0.6, len(sides) - 0.4),
            width=width,
            plot=20 + ROW * len(sides),
            left=room_for(names, width),
            right=76,
        )
        chart.x_axis(f"{unit.name} of the score")
        chart.rows("", names)
        chart.column_head(unit.name)
        for index, (side, end) in enumerate(zip(sides, ends, strict=True)):
            row = len(sides) - 1 - index
            if end and end[0] < end[1]:
                _bar(chart, row, unit.of(end[0]), unit.of(end[1]), 24)
            for value in side.minutes:
                x, y = fixed(chart.x(unit.of(value))), fixed(chart.y(row))
                says = f"{names[index]}: a run of {unit.full(value)}"
                chart.mark(says, void("circle", class_="dot c0 clear", cx=x, cy=y, r=5))
            if side.scored is not None:
                _tick(chart, row, unit.of(side.scored), "mean", 13)
            chart.column(row, unit.text(side.scored, side.digits))
        return chart

    dot = swatch(void("circle", class_="dot c0 clear", cx=8, cy=8, r=5), width=16, height=16)
    key = ((dot, "a run"), (stroke("mean"), "score"), (patch("band"), "95 % interval of its mean"))
    return join(both(draw), legend(*key))


def _bar(chart: Chart, row: int, low: float, high: float, height: int) -> None:
    left, right = (
        chart.x(min(max(end, chart.x_range[0]), chart.x_range[1])) for end in (low, high)
    )
    y = fixed(chart.y(row) - height / 2)
    chart.parts.append(
        void("rect", class_="band", x=fixed(left), y=y, width=fixed(right - left), height=height)
    )


def _tick(chart: Chart, row: int, value: float, class_: str, reach: int) -> None:
    x, y = fixed(chart.x(value)), chart.y(row)
    chart.parts.append(
        void("line", class_=class_, x1=x, x2=x, y1=fixed(y - reach), y2=fixed(y + reach))
    )


def _sure(comparisons: Sequence[Comparison], names: Sequence[str]) -> list[Part]:
    """Return the ratios to A's time with intervals, next to the 1 % of equality."""
    rows = [
        (
            name,
            _ratio(comparison.score_ratio),
            f"{comparison.interval.low:.4f} to {comparison.interval.high:.4f}"
            if comparison.interval
            else "–",
            "–"
            if comparison.interval is None
            else f"{comparison.interval.p:.2g}"
            if comparison.interval.p >= 0.0001
            else "< 0.0001",
            _ratio(comparison.throughput_ratio),
            _ratio(comparison.samples_ratio),
        )
        for name, comparison in zip(names[1:], comparisons, strict=True)
    ]
    header = ("", "time / A's", "95 % interval", "p", "samples per second / A's", "samples / A's")
    listing = Table(f"Ratios; {METHOD}, on the runs that count", header, rows, numeric=range(1, 6))
    chart = _ratios(comparisons, names)
    caption = (
        "Above 0 is slower than A. The band is ± 1 %: two sides are equal where the whole "
        "interval lies in it."
    )
    return [*([Figure(chart, caption)] if chart else []), listing]


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _ratios(comparisons: Sequence[Comparison], names: Sequence[str]) -> Safe:
    drawn = [
        (name, comparison.score_ratio, comparison.interval)
        for name, comparison in zip(names[1:], comparisons, strict=True)
        if comparison.score_ratio is not None
    ]
    if not drawn:
        return Safe("")
    ends = [end for _, _, spread in drawn if spread for end in (spread.low, spread.high)]
    low, high = widened(
        [(value - 1) * 100 for value in (1 - NEAR, 1 + NEAR, *(item[1] for item in drawn), *ends)]
    )

    def draw(width: int) -> Chart:
        chart = Chart(
            "ratios",
            "Difference of the times to A's",
            "; ".join(f"{name} {signed(ratio)}" for name, ratio, _ in drawn),
            (low, high),
            (-0.6, len(drawn) - 0.4),
            width=width,
            plot=20 + ROW * len(drawn),
            left=room_for(names, width),
            right=76,
        )
        chart.band(-NEAR * 100, NEAR * 100)
        chart.x_axis("% more time than A")
        chart.rows("", [name for name, _, _ in drawn])
        chart.upright(0, "axis")
        for index, (name, ratio, spread) in enumerate(drawn):
            row, at = len(drawn) - 1 - index, (ratio - 1) * 100
            y = fixed(chart.y(row))
            marks = [void("circle", class_="dot c0", cx=fixed(chart.x(at)), cy=y, r=6)]
            says = f"{name}: {signed(ratio)}"
            if spread:
                left, right = (fixed(chart.x((end - 1) * 100)) for end in (spread.low, spread.high))
                marks.insert(0, void("line", class_="ratio", x1=left, x2=right, y1=y, y2=y))
                says += f", 95 % interval {signed(spread.low)} to {signed(spread.high)}"
            chart.mark(says, *marks)
            chart.column(row, signed(ratio))
        return chart

    return join(
        both(draw), legend((stroke("ratio"), "95 % interval"), (patch("band"), "within 1 %"))
    )


def _differences(comparison: Comparison, name: str) -> list[Part]:
    parts: list[Part] = []
    for table in difference_tables(comparison, name):
        parts += [Heading(table.caption.split(" ")[0]), table]
    return parts
