"""From the rows of checks to a verdict per node, coverage, and the nodes to leave out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

COLUMNS = ("node", "check", "verdict", "ms", "text", "remedy")
"""Of the table that preflight.sh writes with --tsv, and of a set's preflight/<job>.tsv."""

ORDER = ("pass", "skip", "warn", "untested", "fail")
"""Verdicts of a check or a node, the worst last."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one check said on one node: `verdict` is pass, warn, fail or skip."""

    node: str
    check: str
    verdict: str
    ms: int
    text: str = ""
    remedy: str = ""

    @property
    def reason(self) -> str:
        return f"{self.check}: {self.text}" if self.text else self.check


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """One node. `problem` says why it was not tested; `asked` is False where nobody tried (drained, in use)."""

    node: str
    rows: tuple[Row, ...] = ()
    problem: str = ""
    asked: bool = True

    @property
    def verdict(self) -> str:
        """pass, warn, fail or untested."""
        if self.problem or not self.rows:
            return "fail" if any(row.verdict == "fail" for row in self.rows) else "untested"
        worst = max((row.verdict for row in self.rows), key=_rank)
        return "pass" if worst == "skip" else worst

    @property
    def telling(self) -> list[Row]:
        """The rows that are not all right, failures first."""
        found = sorted(
            (row for row in self.rows if _rank(row.verdict) > _rank("skip")), key=lambda row: -_rank(row.verdict)
        )
        # A set's table ends with what became of a node, which repeats the check that failed.
        return [row for row in found if row.check != "verdict"] or found

    @property
    def reasons(self) -> list[tuple[str, str, str]]:
        """(verdict, reason, remedy), failures first; what several checks say alike is said once."""
        checks: dict[tuple[str, str, str], list[str]] = {}
        for row in self.telling:
            checks.setdefault((row.verdict, row.text, row.remedy), []).append(row.check)
        return [
            (verdict, f"{', '.join(sorted(names))}: {text}", remedy)
            for (verdict, text, remedy), names in checks.items()
        ]

    def to_json(self) -> dict[str, object]:
        telling = self.telling
        return {
            "node": self.node,
            "verdict": self.verdict,
            "reason": telling[0].reason if telling else self.problem or ("" if self.rows else "no answer"),
            "remedy": telling[0].remedy if telling else "",
            "checks": [
                {"check": row.check, "verdict": row.verdict, "ms": row.ms, "text": row.text, "remedy": row.remedy}
                for row in self.rows
            ],
        }


@dataclass(frozen=True, slots=True)
class Verdicts:
    """All nodes that were given, in their order, and rows that are about all of them together."""

    nodes: tuple[NodeVerdict, ...]
    together: tuple[Row, ...] = field(default=())

    @property
    def tested(self) -> int:
        return sum(one.verdict != "untested" for one in self.nodes)

    @property
    def verdict(self) -> str:
        found = [one.verdict for one in self.nodes] + [row.verdict for row in self.together if row.verdict != "skip"]
        return max(found, key=_rank, default="untested")

    @property
    def fit(self) -> bool:
        """Whether every node was tested and none failed."""
        return self.verdict in ("pass", "warn")

    @property
    def exclude(self) -> list[str]:
        """Nodes that failed, or did not answer when they were asked."""
        return [one.node for one in self.nodes if one.verdict == "fail" or (one.verdict == "untested" and one.asked)]

    @property
    def coverage(self) -> str:
        """`tested 7 of 8 nodes: 5 fit, 1 fit with warnings, 1 failed`"""
        counts = {word: sum(one.verdict == word for one in self.nodes) for word in ORDER}
        parts = [
            f"{counts[word]} {text}"
            for word, text in (("pass", "fit"), ("warn", "fit with warnings"), ("fail", "failed"))
            if counts[word]
        ]
        return f"tested {self.tested} of {len(self.nodes)} nodes" + (f": {', '.join(parts)}" if parts else "")

    def to_json(self) -> dict[str, object]:
        return {
            "schema": 1,
            "given": len(self.nodes),
            "tested": self.tested,
            "verdict": self.verdict,
            "exclude": self.exclude,
            "nodes": [one.to_json() for one in self.nodes],
            "together": [
                {"check": row.check, "verdict": row.verdict, "ms": row.ms, "text": row.text, "remedy": row.remedy}
                for row in self.together
            ],
        }


def _rank(verdict: str) -> int:
    return ORDER.index(verdict)


def parse_table(text: str) -> list[Row]:
    """Return the rows of a table with COLUMNS; its header, torn lines and lines with other verdicts are left out."""
    rows = []
    for line in text.splitlines():
        cells = line.split("\t")
        if len(cells) >= 5 and cells[2] in ORDER:
            rows.append(
                Row(
                    cells[0],
                    cells[1],
                    cells[2],
                    int(cells[3]) if cells[3].isdecimal() and len(cells[3]) < 16 else 0,
                    cells[4],
                    cells[5] if len(cells) > 5 else "",
                )
            )
    return rows


def judge(
    nodes: Sequence[str], rows: Iterable[Row], problems: Mapping[str, str], untried: Mapping[str, str] | None = None
) -> Verdicts:
    """Return verdicts on `nodes`: `problems` has words about those that did not answer, `untried` about others."""
    told: dict[str, list[Row]] = {name: [] for name in nodes}
    together = []
    left_out = untried or {}
    words = {**problems, **left_out}
    for row in rows:
        if row.node not in told:
            together.append(row)
        elif row.verdict == "untested":
            words.setdefault(row.node, row.text)
        else:
            told[row.node].append(row)
    return Verdicts(
        tuple(NodeVerdict(name, tuple(told[name]), words.get(name, ""), name not in left_out) for name in nodes),
        tuple(together),
    )
