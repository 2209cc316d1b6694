"""From what the nodes said to rows, and who is not fit. Rules: docs/preflight.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..events import number
from .said import OUTCOMES, Check, Report, line, place

if TYPE_CHECKING:
    from ..settings import Settings

Rows = dict[str, dict[str, Check]]


@dataclass(frozen=True)
class Judgement:
    """`rows` are the final ones of each node, `failed` says why a node is not fit, `warnings` are for the job's record."""

    rows: dict[str, list[Check]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def judge_checks(reports: Mapping[str, Report], settings: Settings, *, rdma: bool) -> Judgement:
    """Return the judgement on the nodes that are compared with each other.

    A set leaves the network to `agree`, which knows what the site allows; what only the check `rdma` finds (all ports alike are
    slower than the fabric) is a warning there. With `rdma` a failure of that check is one of the node.
    """
    judge = _Judge({node: dict(report.checks) for node, report in reports.items()}, settings)
    if settings.preflight_run == 1:
        judge.markers(reports)
        judge.alone("gpu_count")
        judge.alone("rdma")
        judge.alike("data", "the data folders differ in names, sizes or times", reports)
        judge.clocks(reports)
    ordered = judge.ordered()
    if settings.preflight_run != 1:
        return Judgement(ordered)
    return Judgement(ordered, _failed(ordered, () if rdma else ("rdma",)), _warnings(ordered))


def failing(name: str, text: str, remedy: str, settings: Settings) -> Check | None:
    """Return the judge's row for a check that fails, as the site has it: None where it is switched off."""
    if name in settings.preflight_skip:
        return None
    return Check(name, "warn" if name in settings.preflight_warn else "fail", 0, line(text), remedy)


def usual(values: Iterable[str]) -> str:
    """Return the value that most have, of several the first one; "" without any."""
    times = Counter(values)
    return max(times, key=times.__getitem__, default="")


class _Judge:
    """The rows while the judge's verdicts replace those of the nodes themselves."""

    def __init__(self, rows: Rows, settings: Settings) -> None:
        self.rows = rows
        self.settings = settings

    def verdict(self, node: str, name: str) -> str:
        row = self.rows[node].get(name)
        return row.verdict if row else ""

    def fails(self, node: str, name: str, text: str, remedy: str) -> None:
        """A failure, unless the site says otherwise."""
        row = failing(name, text, remedy, self.settings)
        if row is not None:
            self.rows[node][name] = row

    def markers(self, reports: Mapping[str, Report]) -> None:
        where = self.settings.logdir or "the log directory"
        for node, report in reports.items():
            if report.unseen and self.verdict(node, "log_dir") == "pass":
                text = f"what it writes to {where} is not seen on the batch host"
                self.fails(node, "log_dir", text, "mount the same shared storage on both")

    def alone(self, name: str) -> None:
        """What no node can tell is a warning; where others can, it is the node's failure."""
        told = [node for node in self.rows if self.verdict(node, name) in ("pass", "fail")]
        for node, rows in self.rows.items():
            if told and self.verdict(node, name) == "warn":
                self.fails(node, name, f"{rows[name].words} (unlike node {told[-1]})", "")

    def alike(self, name: str, words: str, reports: Mapping[str, Report]) -> None:
        """A node with another value than most has a warning."""
        values = {node: report.same[name] for node, report in reports.items() if report.same.get(name)}
        most = usual(values.values())
        for node, value in values.items():
            if value != most and self.verdict(node, name) == "pass":
                text, remedy = f"{words} from those of most nodes", "compare the folders, or prepare the data anew"
                self.rows[node][name] = Check(name, "warn", 0, text, remedy)

    def clocks(self, reports: Mapping[str, Report]) -> None:
        limit_ms = (number(self.settings.preflight_clock_s) or 0) * 1000
        for node, report in reports.items():
            if abs(report.clock_off_ms) > limit_ms:
                text = f"its clock differs by {report.clock_off_ms} ms from the batch host's"
                remedy = "synchronise it (chronyc makestep, or systemctl restart systemd-timesyncd)"
                self.fails(node, "clock", text, remedy)

    def ordered(self) -> dict[str, list[Check]]:
        names = sorted({name for rows in self.rows.values() for name in rows}, key=place)
        place_of = {name: at for at, name in enumerate(names)}
        return {node: sorted(rows.values(), key=lambda row: place_of[row.name]) for node, rows in self.rows.items()}


def _failed(rows: Mapping[str, list[Check]], others: tuple[str, ...]) -> dict[str, str]:
    """The first failure of each node; the deep step and what became of a node are judged elsewhere."""
    elsewhere = {*OUTCOMES, "deep", *others}
    found = {}
    for node, own in rows.items():
        first = next((row for row in own if row.verdict == "fail" and row.name not in elsewhere), None)
        if first is not None:
            found[node] = f"check {first.name}: {first.words}"
    return found


def _warnings(rows: Mapping[str, list[Check]]) -> list[str]:
    """Each once, with the checks and the nodes that it is about."""
    # What all networks lack, `agree` says once; and whoever is slow, the deep step.
    told = [
        (row.name, row.words, node)
        for node, own in rows.items()
        for row in own
        if row.verdict == ("fail" if row.name == "rdma" else "warn") and row.name != "deep"
    ]
    names: dict[str, dict[str, None]] = {}
    nodes: dict[str, set[str]] = {}
    for name, words, node in sorted(told, key=lambda item: place(item[0])):
        names.setdefault(words, {})[name] = None
        nodes.setdefault(words, set()).add(node)
    rank_of = {node: rank for rank, node in enumerate(rows)}
    found = []
    for words, about in nodes.items():
        who = "all nodes" if len(about) == len(rows) > 1 else " ".join(sorted(about, key=rank_of.__getitem__))
        found.append(f"check {' '.join(names[words])}: {words} ({who})")
    return found
