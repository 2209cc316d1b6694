"""A comparison as a self-contained HTML page, in the report's style."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.compare.comparison import NEAR, Comparison
from orchestrator.compare.parts import (
    difference_tables,
    notes,
    side_names,
    side_table,
    sides_of,
    unit_of,
    verdicts,
)
from orchestrator.compare.sides import Side
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
from orchestrator.views.figures import Unit
from orchestrator.views.markup import Safe, join, void
from orchestrator.views.page import render
from orchestrator.views.parts import Figure, Part, Section

ROW = 34


def page(comparisons: Sequence[Comparison]) -> str:
    """Return the page. All `comparisons` share their first side."""
    sides, names = sides_of(comparisons), side_names(comparisons)
    about_runs = (
        f"A dot per run, in {unit_of(comparisons).name} of the score; a run whose time is not "
        "known has none. The axis does not start at 0."
    )
    about_ratios = (
        "Above 0 is slower than A. The band is ± 1 %: two sides are equal if the whole interval "
        "lies in it."
    )
    runs = _figure(_runs(sides, names, unit_of(comparisons)), about_runs)
    sure = _figure(_ratios(comparisons, names), about_ratios)
    differ = [
        Section(f"differences-{name}", f"What differs: {name} and A", parts)
        for name, comparison in zip(names[1:], comparisons, strict=True)
        if (parts := difference_tables(comparison, name))
    ]
    sections = [
        Section("sides", "The sides", [*runs, side_table(comparisons)]),
        *([Section("ratios", "How sure", sure)] if sure else []),
        *differ,
    ]
    headlines = verdicts(comparisons)
    tones = [headline.tone for headline in headlines]
    benchmark = next((side.benchmark for side in sides if side.benchmark), "unknown benchmark")
    return render(
        "compare.html.j2",
        title=f"{benchmark}: {', '.join(names[1:])} against A",
        short="comparison",
        subtitle=" · ".join(
            f"{name}: {side.name}" for name, side in zip(names, sides, strict=True)
        ),
        figure=_percent(comparisons[0]) if len(comparisons) == 1 else "",
        tone=next(tone for tone in ("bad", "", "good") if tone in tones),
        verdicts=headlines,
        notes=notes(comparisons),
        sections=sections,
        patterns=Safe(""),
    )


def _figure(chart: Safe, caption: str) -> list[Part]:
    return [Figure(chart, caption)] if chart else []


def _percent(comparison: Comparison) -> str:
    """Return the figure above the verdict; "" for an unsure difference."""
    ratio = comparison.score_ratio
    if ratio is None or not comparison.has_verdict or comparison.verdict == "unsure":
        return ""
    return signed(ratio)


def signed(ratio: float) -> str:
    """Return `+0.4 %`."""
    return f"{(ratio - 1) * 100:+.1f} %" if abs(ratio - 1) < 10 else f"× {ratio:.3g}"


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
