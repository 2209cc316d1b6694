"""The parts of comparisons: verdicts, sides, differences. All comparisons share their first side,
A; the others are B, C and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.compare.comparison import CERTAINTY, Comparison
from orchestrator.compare.sides import Side
from orchestrator.mllog.trimmed import METHOD
from orchestrator.views.figures import MISSING, Unit, plain, unit_of_runs
from orchestrator.views.parts import Bullets, Cell, Headline, Table
from orchestrator.words import count, rate, train_time

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def comparison_parts(comparisons: Sequence[Comparison]) -> list[Part]:
    """Return the parts for a terminal, which shows no captions."""
    tables = [
        table
        for name, comparison in zip(side_names(comparisons)[1:], comparisons, strict=True)
        for table in difference_tables(comparison, name)
    ]
    return [
        *verdicts(comparisons),
        side_table(comparisons),
        Bullets([f"note: {note}" for note in notes(comparisons)]),
        *(table.replace(header=(table.caption, *table.header[1:])) for table in tables),
    ]


def sides_of(comparisons: Sequence[Comparison]) -> list[Side]:
    return [comparisons[0].a, *(comparison.b for comparison in comparisons)]


def side_names(comparisons: Sequence[Comparison]) -> list[str]:
    """Return A, B and so on; numbers after Z."""
    return [
        chr(ord("A") + index) if index < 26 else str(index + 1)
        for index in range(len(comparisons) + 1)
    ]


def unit_of(comparisons: Sequence[Comparison]) -> Unit:
    return unit_of_runs(side.scored for side in sides_of(comparisons))


def notes(comparisons: Sequence[Comparison]) -> list[str]:
    return list(dict.fromkeys(note for comparison in comparisons for note in comparison.notes))


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
    a, b = comparison.divided
    times = f"{train_time(b, comparison.b.digits)} against {train_time(a, comparison.a.digits)}"
    if not comparison.has_scores:
        times = f"means {times}"
    lines = [f"{what}: {times} ({difference})"]
    if comparison.verdict == "unsure":
        size = f"{abs(ratio - 1):.1%}".replace("%", " %")
        text = f"{name} is {size} {comparison.direction}, within the spread of the runs"
        lines = [f"{what}: {text} ({times})"]
    lines += [sure or comparison.no_interval(name)]
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


def verdicts(comparisons: Sequence[Comparison]) -> list[Headline]:
    """Return a headline per comparison, which names its side if there are several."""
    alone = len(comparisons) == 1
    return [
        _headline(comparison, name, "" if alone else f"{name}: ")
        for name, comparison in zip(side_names(comparisons)[1:], comparisons, strict=True)
    ]


def _headline(comparison: Comparison, name: str, prefix: str) -> Headline:
    first, *rest = verdict_lines(comparison, name)
    if ratio := comparison.interval:
        rest.append(
            f"{name} takes {_percent(ratio.ratio)} of A's time, 95 % interval "
            f"{_percent(ratio.low)} to {_percent(ratio.high)} ({_chance(ratio.p)}; {METHOD}, on "
            "the runs that count)"
        )
    return Headline(f"{prefix}{first}", comparison.tone, rest)


def side_table(comparisons: Sequence[Comparison]) -> Table:
    """Return a row per side, then a row with the ratios of each to A."""
    sides, names = sides_of(comparisons), side_names(comparisons)
    unit = unit_of(comparisons)
    rows = [[name, *_numbers(side, unit)] for name, side in zip(names, sides, strict=True)]
    for name, comparison in zip(names[1:], comparisons, strict=True):
        ratio = _ratio(comparison.score_ratio) + ("" if comparison.has_scores else " (means)")
        others = _ratio(comparison.throughput_ratio), _ratio(comparison.samples_ratio)
        rows.append([f"{name} / A", ratio, *others, "", ""])
    return Table(
        "What is compared",
        ("side", "score", "samples/s", "samples", "runs", "from"),
        rows,
        numeric=(1, 2, 3, 4),
        remark="name",
        below=[*(side.name for side in sides), *("" for _ in comparisons)],
        leave=("from",),
    )


def _numbers(side: Side, unit: Unit) -> list[str]:
    is_mean = side.score is None and side.scored is not None
    return [
        unit.full(side.scored, side.digits) + (" (mean)" if is_mean else ""),
        MISSING if side.rate is None else rate(side.rate, 5),
        plain(None if side.samples is None else round(side.samples)),
        str(side.runs),
        f"{side.kind}, round {side.ruleset}" if side.ruleset[:1].isdigit() else side.kind,
    ]


def _ratio(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4f}" if value >= 0.1 else f"{value:.3g}"


def _percent(value: float) -> str:
    return f"{value:.2%}".replace("%", " %")


def _chance(p: float) -> str:
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"
