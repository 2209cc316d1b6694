"""A comparison as text."""

from __future__ import annotations

from orchestrator.compare.comparison import VERDICTS, Comparison
from orchestrator.compare.sides import Side
from orchestrator.compare.trimmed import METHOD
from orchestrator.mllog.table import columns
from orchestrator.report.markup import clean

_HEADINGS = {"setting": "settings", "environment": "environment", "tunable": "tunables"}


def comparison_text(comparison: Comparison) -> str:
    """Return the whole comparison of two sides."""
    a, b = comparison.a, comparison.b
    rows = [
        [f"A  {clean(a.name)}", *_numbers(a)],
        [f"B  {clean(b.name)}", *_numbers(b)],
        [
            "B / A",
            _ratio(comparison.score_ratio),
            _ratio(comparison.throughput_ratio),
            _ratio(comparison.samples_ratio),
            "",
        ],
    ]
    lines = columns(["", "score, min", "samples/s", "samples", "runs"], rows)
    lines += ["", f"{VERDICTS[comparison.verdict]}"]
    if found := comparison.interval:
        lines.append(
            f"B takes {_percent(found.ratio)} of A's time, 95 % interval {_percent(found.low)} "
            f"to {_percent(found.high)} "
            f"({_chance(found.p)}; {METHOD}, on the runs that count)"
        )
    lines += [f"note: {clean(note)}" for note in comparison.notes]
    for kind, heading in _HEADINGS.items():
        found_here = [one for one in comparison.differences if one.kind == kind]
        if found_here:
            rows = [
                [clean(one.name, 60), clean(one.a, 60) or "(not set)", clean(one.b, 60) or "(not set)"]
                for one in found_here
            ]
            lines += ["", *columns([f"{heading} that differ", "A", "B"], rows)]
    return "\n".join(lines)


def _numbers(side: Side) -> list[str]:
    value = side.scored
    score = "-" if value is None else f"{value:.2f}" if value >= 0.1 else f"{value:.5f}"
    if side.score is None and value is not None:
        score += " (mean)"
    return [
        score,
        "-" if side.rate is None else f"{side.rate:.5g}",
        "-" if side.samples is None else f"{side.samples:.0f}",
        str(side.runs),
    ]


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if value >= 0.1 else f"{value:.3g}"


def _percent(value: float) -> str:
    return f"{value:.2%}".replace("%", " %")


def _chance(p: float) -> str:
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"
