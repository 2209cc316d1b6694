"""A comparison as text."""

from __future__ import annotations

from orchestrator.compare.comparison import CERTAINTY, Comparison
from orchestrator.compare.sides import Side
from orchestrator.mllog.trimmed import METHOD
from orchestrator.views.markup import clean
from orchestrator.words import PIPE, Screen, TextTable, count, rate, train_time

SIDES = TextTable(
    "SIDE", "SCORE", "SAMPLES/S", "SAMPLES", "RUNS", "NAME",
    right=("SCORE", "SAMPLES/S", "SAMPLES", "RUNS"), below=("NAME",),
)  # fmt: skip
FEW = 10
"""Mean and spread of fewer runs than MLPerf's usual ten change with each further run."""
_HEADINGS = {
    "setting": "SETTINGS THAT DIFFER",
    "environment": "ENVIRONMENT THAT DIFFERS",
    "tunable": "TUNABLES THAT DIFFER",
}


def comparison_text(comparison: Comparison, screen: Screen = PIPE) -> str:
    """Return the whole comparison as text."""
    a, b = comparison.a, comparison.b
    lines = [*_verdict(comparison, screen), ""]
    rows = [
        ["A", *_numbers(a), a.name],
        ["B", *_numbers(b), b.name],
        [
            "B / A",
            *map(
                _ratio,
                (comparison.score_ratio, comparison.throughput_ratio, comparison.samples_ratio),
            ),
            "",
            "",
        ],
    ]
    lines += SIDES.lines(rows, screen)
    lines += [f"note: {clean(note)}" for note in dict.fromkeys(comparison.notes)]
    for kind, heading in _HEADINGS.items():
        found_here = [one for one in comparison.differences if one.kind == kind]
        if found_here:
            rows = [
                [
                    clean(one.name, 60),
                    clean(one.a, 60) or "(not set)",
                    clean(one.b, 60) or "(not set)",
                ]
                for one in found_here
            ]
            lines += ["", *TextTable(heading, "A", "B").lines(rows, screen)]
    return "\n".join(lines)


def verdict_lines(comparison: Comparison, name: str = "B") -> list[str]:
    """Return the verdict, its certainty, and the further runs that would settle it. `name`: the
    compared side's."""
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


def _verdict(comparison: Comparison, screen: Screen) -> list[str]:
    first, *rest = verdict_lines(comparison)
    colour = {"yes": "1;32", "no": "1;33", "plain": "1"}[comparison.tone]
    if comparison.score_ratio is None:
        colour = "1;31"
    lines = [screen.paint(first, colour), *rest]
    if found := comparison.interval:
        lines.append(
            f"B takes {_percent(found.ratio)} of A's time, 95 % interval {_percent(found.low)} "
            f"to {_percent(found.high)} ({_chance(found.p)}; {METHOD}, on the runs that count)"
        )
    return lines


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
