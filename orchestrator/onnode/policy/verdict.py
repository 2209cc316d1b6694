"""Verdicts of the preflight on nodes, and the nodes to exclude."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..kernel.plural import count
from .judge import agree_on_facts, agree_on_network, failing, judge_checks
from .reports import Check, NodeReport, line

if TYPE_CHECKING:
    from ..kernel.settings import Settings

COLUMNS = ("node", "check", "verdict", "ms", "text", "remedy")
"""Also of a set's preflight/<job>.tsv."""
ORDER = ("pass", "skip", "warn", "untested", "fail")
"""Verdicts of a check or a node, the worst last."""
_RANK = {verdict: rank for rank, verdict in enumerate(ORDER)}


@dataclass(frozen=True)
class Row:
    """A check on a node. `verdict`: pass, warn, fail or skip; untested for a silent node. `shows`:
    the remedy is a command that only shows the problem."""

    node: str
    check: str
    verdict: str
    ms: int
    text: str = ""
    remedy: str = ""
    shows: bool = False

    @property
    def reason(self) -> str:
        return f"{self.check}: {self.text}" if self.text else self.check

    @property
    def unchecked(self) -> bool:
        """The node lacked a source, such as a driver or tool."""
        return self.text.startswith("cannot be checked")

    def to_json(self) -> dict[str, object]:
        """Without its node."""
        return {name: getattr(self, name) for name in COLUMNS[1:]}


@dataclass(frozen=True)
class CheckGroup:
    """Checks with the same result."""

    checks: tuple[str, ...]
    verdict: str
    text: str
    remedy: str

    @property
    def reason(self) -> str:
        return ", ".join(self.checks) + (f": {self.text}" if self.text else "")


@dataclass(frozen=True)
class NodeVerdict:
    """`problem`: why it was not tested; `asked`: False if drained or in use."""

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
        """Rows with problems, failures first."""
        rows = [row for row in self.rows if _RANK[row.verdict] > _RANK["skip"]]
        rows.sort(key=lambda row: -_RANK[row.verdict])
        # A set's last row, `verdict`, repeats the failed check.
        return [row for row in rows if row.check != "verdict"] or rows

    @property
    def groups(self) -> list[CheckGroup]:
        """Failures first; equal texts of several checks once."""
        checks: dict[tuple[str, str, str], list[str]] = {}
        for row in self.telling:
            checks.setdefault((row.verdict, row.text, row.remedy), []).append(row.check)
        return [CheckGroup(tuple(sorted(names)), *same) for same, names in checks.items()]

    @property
    def reasons(self) -> list[tuple[str, str, str]]:
        """(verdict, reason, remedy) of the groups."""
        return [(group.verdict, group.reason, group.remedy) for group in self.groups]

    @property
    def silent(self) -> bool:
        """Asked, without an answer."""
        return self.asked and self.verdict == "untested"

    @property
    def untested(self) -> str:
        """Return why it was not tested, or ""."""
        return self.problem or "no answer" if self.verdict == "untested" else ""

    def to_json(self) -> dict[str, object]:
        reasons = self.reasons
        return {
            "node": self.node,
            "verdict": self.verdict,
            "reason": "; ".join(reason for _, reason, _ in reasons) or self.untested,
            "remedy": "; ".join(dict.fromkeys(remedy for _, _, remedy in reasons if remedy)),
            "checks": [row.to_json() for row in self.rows],
        }


@dataclass(frozen=True)
class Verdicts:
    """Nodes, in order, and rows about all together."""

    nodes: tuple[NodeVerdict, ...]
    together: tuple[Row, ...] = ()

    @property
    def tested(self) -> int:
        return sum(node.verdict != "untested" for node in self.nodes)

    @property
    def verdict(self) -> str:
        verdicts = [node.verdict for node in self.nodes]
        verdicts += [row.verdict for row in self.together if row.verdict != "skip"]
        return max(verdicts, key=_RANK.__getitem__, default="untested")

    @property
    def fit(self) -> bool:
        """Every node was tested without failures."""
        return self.verdict in ("pass", "warn")

    @property
    def exclude(self) -> list[str]:
        """Nodes that failed, or did not answer."""
        return [node.node for node in self.nodes if node.verdict == "fail" or node.silent]

    @property
    def rows(self) -> list[Row]:
        """The table; an untested node has a row with the reason."""
        rows = [row for node in self.nodes for row in node.rows]
        for node in self.nodes:
            if node.untested:
                rows.append(Row(node.node, "answer", "untested", 0, node.untested))
        return [*rows, *self.together]

    def with_checks(self, checks: Mapping[str, Check]) -> Verdicts:
        """Add a row to some nodes."""
        return replace(self, nodes=tuple(_with_check(node, checks) for node in self.nodes))

    def to_json(self) -> dict[str, object]:
        return {
            "schema": 1,
            "kind": "preflight",
            "given": len(self.nodes),
            "tested": self.tested,
            "verdict": self.verdict,
            "exclude": self.exclude,
            "nodes": [node.to_json() for node in self.nodes],
            "together": [row.to_json() for row in self.together],
        }


def _with_check(node: NodeVerdict, checks: Mapping[str, Check]) -> NodeVerdict:
    if node.node not in checks:
        return node
    return replace(node, rows=(*node.rows, _row(node.node, checks[node.node])))


def judge_preflight(
    given: Sequence[str],
    reports: Mapping[str, NodeReport],
    untested: Mapping[str, str],
    settings: Settings,
) -> Verdicts:
    """Return verdicts of preflight.sh. `untested`: node -> reason.

    A node unlike the others fails the check `versions`.
    """
    settings = replace(settings, preflight_run=1)
    answered = [
        node
        for node in given
        if node not in untested and node in reports and "checked" in reports[node].messages
    ]
    judged = judge_checks({node: reports[node] for node in answered}, settings, rdma=True)
    rows = {node: {check.name: check for check in checks} for node, checks in judged.rows.items()}
    fit = [node for node in answered if node not in judged.failed]
    together = []
    for agree_on in (agree_on_network, agree_on_facts):
        agreement = agree_on(reports, fit, settings)
        together += [Row("*", "agreement", "warn", 0, line(text)) for text in agreement.warnings]
        for node, text in agreement.differing.items():
            remedy = "make it like the others, or leave it out"
            rows[node].update(failing("versions", text, remedy, settings))
        if agreement.problem and not agreement.differing:
            together.insert(0, Row("*", "agreement", "fail", 0, line(agreement.problem)))
        if agreement.problem:
            break
    silent = {node: untested.get(node, "no answer") for node in given if node not in rows}
    nodes = []
    for node in given:
        checks = tuple(_row(node, check) for check in rows.get(node, {}).values())
        nodes.append(NodeVerdict(node, checks, silent.get(node, "")))
    return Verdicts(tuple(nodes), tuple(together))


def _row(node: str, check: Check) -> Row:
    return Row(node, check.name, check.verdict, check.ms, check.text, check.remedy)


def table(rows: Iterable[Row]) -> str:
    lines = ["\t".join(COLUMNS)]
    for row in rows:
        cells = (row.node, row.check, row.verdict, str(row.ms), line(row.text), line(row.remedy))
        lines.append("\t".join(cells))
    return "\n".join(lines) + "\n"


def plain_table(verdicts: Verdicts, summary: str = "") -> str:
    """preflight.sh's output. `summary`: of the bandwidth test."""
    width = max([4, *(len(node.node) for node in verdicts.nodes)])
    lines = [f"{'NODE':{width}}  {'VERDICT':8}  REASON"]
    for node in verdicts.nodes:
        text = node.untested or "; ".join(
            f"{reason} ({remedy})" if remedy else reason for _, reason, remedy in node.reasons
        )
        lines.append(f"{node.node:{width}}  {node.verdict:8}  {text}".rstrip())
    lines += [f"warning: {row.text}" for row in verdicts.together if row.verdict == "warn"]
    lines += [f"all nodes: {row.text}" for row in verdicts.together if row.verdict == "fail"]
    if summary:
        lines.append(summary)
    lines.append(f"tested {verdicts.tested} of {count(len(verdicts.nodes), 'node')}")
    if verdicts.exclude:
        lines.append(f"exclude: {','.join(verdicts.exclude)}")
    return "\n".join(lines)
