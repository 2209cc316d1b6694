"""The parts of a comparison: verdict, sides, differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.compare.comparison import CERTAINTY, Comparison
from orchestrator.compare.sides import Side
from orchestrator.mllog.trimmed import METHOD
from orchestrator.views.parts import Bullets, Cell, Headline, Table
from orchestrator.words import count, rate, train_time

if TYPE_CHECKING:
    from orchestrator.views.parts import Part

FEW = 10
"""Mean and spread of fewer runs than MLPerf's ten change with each further run."""
DIFFERENCES = {
    "setting": "Settings that differ",
    "environment": "Environment that differs",
    "tunable": "Host settings that differ",
}
"""Kind of difference -> caption of its table."""
UNSET = "(not set)"


def comparison_parts(comparison: Comparison) -> list[Part]:
    differences = difference_tables(comparison)
    return [
        _headline(comparison),
        _side_table(comparison),
        Bullets([f"note: {note}" for note in dict.fromkeys(comparison.notes)]),
        # A terminal shows no captions.
        *(table.replace(header=(table.caption, *table.header[1:])) for table in differences),
    ]


def difference_tables(comparison: Comparison, name: str = "B") -> list[Table]:
    """Return a table for each kind of difference. `name`: of side `b`."""
    tables = []
    for kind, caption in DIFFERENCES.items():
        rows = [
            [Cell(text, code=True) for text in (item.name, item.a or UNSET, item.b or UNSET)]
            for item in comparison.differences
            if item.kind == kind
        ]
        if rows:
            tables.append(Table(caption, ("name", "A", name), rows))
    return tables


def verdict_lines(comparison: Comparison, name: str = "B") -> list[str]:
    """Return verdict, certainty, and the further runs that would settle it. `name`: of side
    `b`."""
    what, sure = comparison.outcome, CERTAINTY.get(comparison.verdict, "")
    ratio = comparison.score_ratio
    if ratio is None:
        return [what]
    difference = f"{ratio - 1:+.2%}".replace("%", " %") if ratio < 10 else f"{ratio:.0f} times"
    if comparison.same_runs:
        sure = "the times are the same, run for run: these seem to be the same logs"
    times = f"{_time(comparison.b)} against {_time(comparison.a)}"
    lines = [f"{what}: {times} ({difference})"]
    if comparison.verdict == "unsure":
        size = f"{abs(ratio - 1):.1%}".replace("%", " %")
        text = f"{name} is {size} {comparison.direction}, within the spread of the runs"
        lines = [f"{what}: {text} ({times})"]
    lines += [sure or comparison.no_interval]
    if comparison.interval is not None and sure.startswith("not"):
        lines.append(_further_runs(comparison, name))
    return lines


def _further_runs(comparison: Comparison, name: str) -> str:
    whose = f"of {name}" if comparison.a.kind == "published" else "of each"
    more = comparison.runs_to_settle
    if not more:
        return f"more runs {whose} alone would not settle it, not even a thousand"
    text = f"about {count(more, 'more run')} {whose} would settle it, if mean and spread stay"
    few = min(comparison.a.runs, comparison.b.runs)
    if few >= FEW:
        return f"{text} as they are"
    return f"{text} as they are; with only {count(few, 'run')} both still move a lot"


def _headline(comparison: Comparison) -> Headline:
    first, *rest = verdict_lines(comparison)
    tone = {"yes": "good", "no": "doubtful", "plain": ""}[comparison.tone]
    if comparison.score_ratio is None:
        tone = "bad"
    if ratio := comparison.interval:
        rest.append(
            f"B takes {_percent(ratio.ratio)} of A's time, 95 % interval {_percent(ratio.low)} "
            f"to {_percent(ratio.high)} ({_chance(ratio.p)}; {METHOD}, on the runs that count)"
        )
    return Headline(first, tone, rest)


def _side_table(comparison: Comparison) -> Table:
    a, b = comparison.a, comparison.b
    ratios = (comparison.score_ratio, comparison.throughput_ratio, comparison.samples_ratio)
    return Table(
        "What is compared",
        ("side", "score", "samples/s", "samples", "runs"),
        [["A", *_numbers(a)], ["B", *_numbers(b)], ["B / A", *map(_ratio, ratios), ""]],
        numeric=(1, 2, 3, 4),
        remark="name",
        below=[a.name, b.name, ""],
    )


def _numbers(side: Side) -> list[str]:
    score = _time(side)
    if side.score is None and side.scored is not None:
        score += " (mean)"
    return [
        score,
        "-" if side.rate is None else rate(side.rate, 5),
        "-" if side.samples is None else f"{side.samples:.0f}",
        str(side.runs),
    ]


def _time(side: Side) -> str:
    return train_time(side.scored, side.digits)


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if value >= 0.1 else f"{value:.3g}"


def _percent(value: float) -> str:
    return f"{value:.2%}".replace("%", " %")


def _chance(p: float) -> str:
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"
