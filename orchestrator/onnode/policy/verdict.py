"""From rows of checks to a verdict per node and the nodes to leave out; the table, the JSON and the page of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .judge import agree_on_facts, agree_on_network, failing, judge_checks
from .reports import Check, NodeReport, line

if TYPE_CHECKING:
    from ..kernel.settings import Settings

COLUMNS = ("node", "check", "verdict", "ms", "text", "remedy")
"""Of the table that preflight.sh writes with --tsv, and of a set's preflight/<job>.tsv."""
ORDER = ("pass", "skip", "warn", "untested", "fail")
"""Verdicts of a check or a node, the worst last."""
_RANK = {verdict: rank for rank, verdict in enumerate(ORDER)}


@dataclass(frozen=True)
class Row:
    """What one check said on one node: `verdict` is pass, warn, fail or skip; of the row of a silent node untested."""

    node: str
    check: str
    verdict: str
    ms: int
    text: str = ""
    remedy: str = ""

    @property
    def reason(self) -> str:
        return f"{self.check}: {self.text}" if self.text else self.check

    def to_json(self) -> dict[str, object]:
        """Return the row without its node."""
        return {name: getattr(self, name) for name in COLUMNS[1:]}


@dataclass(frozen=True)
class NodeVerdict:
    """One node. `problem` says why it was not tested; `asked` is False where it was not even tried (drained, in use)."""

    node: str
    rows: tuple[Row, ...] = ()
    problem: str = ""
    asked: bool = True

    @property
    def verdict(self) -> str:
        """pass, warn, fail or untested."""
        if self.problem or not self.rows:
            return "fail" if any(row.verdict == "fail" for row in self.rows) else "untested"
        worst = max((row.verdict for row in self.rows), key=_RANK.__getitem__)
        return "pass" if worst == "skip" else worst

    @property
    def telling(self) -> list[Row]:
        """The rows that are not all right, failures first."""
        found = [row for row in self.rows if _RANK[row.verdict] > _RANK["skip"]]
        found.sort(key=lambda row: -_RANK[row.verdict])
        # A set's table ends with what became of a node, which repeats the check that failed.
        return [row for row in found if row.check != "verdict"] or found

    @property
    def reasons(self) -> list[tuple[str, str, str]]:
        """(verdict, reason, remedy), failures first; what several checks say alike is said once."""
        checks: dict[tuple[str, str, str], list[str]] = {}
        for row in self.telling:
            checks.setdefault((row.verdict, row.text, row.remedy), []).append(row.check)
        return [
            (verdict, ", ".join(sorted(names)) + (f": {text}" if text else ""), remedy)
            for (verdict, text, remedy), names in checks.items()
        ]

    @property
    def silent(self) -> bool:
        """It was asked, and nothing is known of it."""
        return self.asked and self.verdict == "untested"

    @property
    def untested(self) -> str:
        """Why it was not tested; "" where it was."""
        return self.problem or "no answer" if self.verdict == "untested" else ""

    def to_json(self) -> dict[str, object]:
        told = self.reasons
        return {
            "node": self.node,
            "verdict": self.verdict,
            "reason": "; ".join(reason for _, reason, _ in told) or self.untested,
            "remedy": "; ".join(dict.fromkeys(remedy for _, _, remedy in told if remedy)),
            "checks": [row.to_json() for row in self.rows],
        }


@dataclass(frozen=True)
class Verdicts:
    """All nodes that were given, in their order, and rows that are about all of them together."""

    nodes: tuple[NodeVerdict, ...]
    together: tuple[Row, ...] = ()

    @property
    def tested(self) -> int:
        return sum(one.verdict != "untested" for one in self.nodes)

    @property
    def verdict(self) -> str:
        found = [one.verdict for one in self.nodes] + [
            row.verdict for row in self.together if row.verdict != "skip"
        ]
        return max(found, key=_RANK.__getitem__, default="untested")

    @property
    def fit(self) -> bool:
        """Whether every node was tested and none failed."""
        return self.verdict in ("pass", "warn")

    @property
    def exclude(self) -> list[str]:
        """Nodes that failed, or did not answer when they were asked."""
        return [one.node for one in self.nodes if one.verdict == "fail" or one.silent]

    @property
    def rows(self) -> list[Row]:
        """All rows of the table; a node that was not tested has one that says why."""
        silent = [
            Row(one.node, "answer", "untested", 0, one.untested)
            for one in self.nodes
            if one.untested
        ]
        return [*(row for one in self.nodes for row in one.rows), *silent, *self.together]

    def with_checks(self, checks: Mapping[str, Check]) -> Verdicts:
        """Return these with one more row for some of the nodes."""
        nodes = (
            replace(one, rows=(*one.rows, _row(one.node, checks[one.node])))
            if one.node in checks
            else one
            for one in self.nodes
        )
        return replace(self, nodes=tuple(nodes))

    def to_json(self) -> dict[str, object]:
        return {
            "schema": 1,
            "kind": "preflight",
            "given": len(self.nodes),
            "tested": self.tested,
            "verdict": self.verdict,
            "exclude": self.exclude,
            "nodes": [one.to_json() for one in self.nodes],
            "together": [row.to_json() for row in self.together],
        }


def judge_preflight(
    given: Sequence[str],
    reports: Mapping[str, NodeReport],
    untested: Mapping[str, str],
    settings: Settings,
) -> Verdicts:
    """Return the verdicts of preflight.sh on the nodes `given`; `untested` says why some were not there, or went silent.

    Who is not like the others fails the check `versions`; what no single node is to blame for is about all together.
    """
    settings = replace(settings, preflight_run=1)
    answered = [
        node
        for node in given
        if node not in untested and node in reports and "checked" in reports[node].messages
    ]
    judged = judge_checks({node: reports[node] for node in answered}, settings, rdma=True)
    rows = {node: {one.name: one for one in own} for node, own in judged.rows.items()}
    fit, together = [node for node in answered if node not in judged.failed], []
    for agree_on in (agree_on_network, agree_on_facts):
        found = agree_on(reports, fit, settings)
        together += [Row("*", "agreement", "warn", 0, line(text)) for text in found.warnings]
        for node, text in found.differing.items():
            rows[node].update(
                failing("versions", text, "make it like the others, or leave it out", settings)
            )
        if found.problem and not found.differing:
            together.insert(0, Row("*", "agreement", "fail", 0, line(found.problem)))
        if found.problem:
            break
    silent = {node: untested.get(node, "no answer") for node in given if node not in rows}
    told = {node: tuple(_row(node, one) for one in own.values()) for node, own in rows.items()}
    return Verdicts(
        tuple(NodeVerdict(node, told.get(node, ()), silent.get(node, "")) for node in given),
        tuple(together),
    )


def _row(node: str, one: Check) -> Row:
    return Row(node, one.name, one.verdict, one.ms, one.text, one.remedy)


def table(rows: Iterable[Row]) -> str:
    """Return a table with COLUMNS."""
    told = (
        (row.node, row.check, row.verdict, str(row.ms), line(row.text), line(row.remedy))
        for row in rows
    )
    return "".join("\t".join(cells) + "\n" for cells in (COLUMNS, *told))


def plain_table(verdicts: Verdicts, summary: str = "") -> str:
    """Return what preflight.sh prints for people; `summary` is the deep step's line."""
    width = max([4, *(len(one.node) for one in verdicts.nodes)])
    lines = [f"{'NODE':{width}}  {'VERDICT':8}  REASON"]
    for one in verdicts.nodes:
        why = [reason + (f" ({remedy})" if remedy else "") for _, reason, remedy in one.reasons]
        lines.append(
            f"{one.node:{width}}  {one.verdict:8}  {one.untested or '; '.join(why)}".rstrip()
        )
    lines += [f"warning: {row.text}" for row in verdicts.together if row.verdict == "warn"]
    lines += [f"all nodes: {row.text}" for row in verdicts.together if row.verdict == "fail"]
    lines += [summary] if summary else []
    lines.append(f"tested {verdicts.tested} of {len(verdicts.nodes)} nodes")
    lines += [f"exclude: {','.join(verdicts.exclude)}"] if verdicts.exclude else []
    return "\n".join(lines)
