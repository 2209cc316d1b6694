"""The tables of checks by preflight.sh and by the jobs of a set, and their verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from orchestrator.onnode.policy.verdict import ORDER, NodeVerdict, Row, Verdicts
from orchestrator.words import count


def parse_table(text: str) -> list[Row]:
    """Return the rows of a table with COLUMNS, without header, torn lines and unknown verdicts."""
    rows = []
    for line in text.split("\n"):
        cells = line.rstrip("\r").split("\t")
        if len(cells) >= 5 and cells[2] in ORDER:
            ms = (
                int(cells[3])
                if cells[3].isascii() and cells[3].isdigit() and len(cells[3]) < 16
                else 0
            )
            rows.append(
                Row(cells[0], cells[1], cells[2], ms, cells[4], cells[5] if len(cells) > 5 else "")
            )
    return rows


def judge(
    nodes: Sequence[str],
    rows: Iterable[Row],
    problems: Mapping[str, str],
    untried: Mapping[str, str] | None = None,
) -> Verdicts:
    """Return the verdicts on `nodes`. `problems`: why answers are missing; `untried`: nodes never
    asked."""
    by_node: dict[str, list[Row]] = {name: [] for name in nodes}
    together, left_out = [], untried or {}
    reasons = {**problems, **left_out}
    for row in rows:
        if row.node not in by_node:
            together.append(row)
        elif row.verdict == "untested":
            reasons.setdefault(row.node, row.text)
        else:
            by_node[row.node].append(row)
    return Verdicts(
        tuple(
            NodeVerdict(name, tuple(by_node[name]), reasons.get(name, ""), name not in left_out)
            for name in nodes
        ),
        tuple(together),
    )


def coverage(verdicts: Verdicts) -> str:
    """Return `tested 7 of 8 nodes: 5 fit, 1 fit with warnings, 1 failed`."""
    kinds = (("pass", "fit"), ("warn", "fit with warnings"), ("fail", "failed"))
    counts = [
        (sum(node.verdict == verdict for node in verdicts.nodes), text) for verdict, text in kinds
    ]
    parts = [f"{count} {text}" for count, text in counts if count]
    return f"tested {verdicts.tested} of {count(len(verdicts.nodes), 'node')}" + (
        f": {', '.join(parts)}" if parts else ""
    )
