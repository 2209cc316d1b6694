"""What became of each node of a set: what it ran and how fast, its preflight, its bandwidth, whether it was set aside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import mean, median
from typing import Any

from orchestrator.evidence.attempts import Attempt, NodePart, read_attempts
from orchestrator.evidence.bandwidth import measurements, per_node
from orchestrator.evidence.events import read_told
from orchestrator.evidence.files import is_node_name
from orchestrator.evidence.sets import SetEvidence
from orchestrator.nodes.verdict import NodeVerdict, Row, parse_table
from orchestrator.onnode.mllog_tail import minutes
from orchestrator.onnode.records import SetAside

SLOW_SHARE = 0.02
"""A node is pointed at when it takes this much longer than the others, or its runs do than those without it."""
SLOW_BANDWIDTH = 0.9
"""And when its bandwidth is below this share of the middle one."""


@dataclass(slots=True)
class NodeHistory:
    """One node. `minutes_with` is the mean time to train of the good runs that it took part in; `_without` of the others."""

    node: str
    parts: list[tuple[Attempt, NodePart]] = field(default_factory=list)
    spare: bool = False
    """It waited, or `waits` still, to take the place of another one."""
    waits: bool = False
    minutes_with: float | None = None
    minutes_without: float | None = None
    gbps: float | None = None
    preflight: NodeVerdict | None = None
    set_aside: list[SetAside] = field(default_factory=list)
    blamed: list[SetAside] = field(default_factory=list)
    """Of attempts that died: why it was held to be this node's fault."""
    lost: list[SetAside] = field(default_factory=list)
    """Slurm gave it up while a job had it; the reason is Slurm's word for its state."""

    @property
    def ranks(self) -> list[int]:
        return sorted({part.rank for _, part in self.parts})

    @property
    def good(self) -> int:
        return len(self._good)

    @property
    def failed(self) -> int:
        return sum(attempt.outcome == "infrastructure" for attempt, _ in self.parts)

    @property
    def exits(self) -> list[int]:
        """Exit codes of its own other than 0, in order; 143 is that of a node that was ended because another one failed."""
        return [part.exit for _, part in self.parts if part.exit is not None and part.exit not in (0, -1, 143)]

    @property
    def mean_s(self) -> float | None:
        times = [part.seconds for part in self._good if part.seconds is not None]
        return mean(times) if times else None

    @property
    def last(self) -> NodePart | None:
        return next((part for _, part in reversed(self.parts) if part.seconds is not None), None)

    @property
    def relative(self) -> float | None:
        """Mean of its time over the others' in good attempts."""
        found = [part.relative for part in self._good if part.relative is not None]
        return mean(found) if found else None

    @property
    def _good(self) -> list[NodePart]:
        return [part for attempt, part in self.parts if attempt.end_state in ("success", "not_converged")]

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "ranks": self.ranks,
            "spare": self.spare,
            "waits": self.waits,
            "good": self.good,
            "failed": self.failed,
            "mean_s": self.mean_s,
            "last_s": self.last.seconds if self.last else None,
            "relative": self.relative,
            "minutes_with": self.minutes_with,
            "minutes_without": self.minutes_without,
            "exit_codes": self.exits,
            "bandwidth_gbps": self.gbps,
            "preflight": self.preflight.to_json() if self.preflight else None,
            "set_aside": [asdict(one) for one in self.set_aside],
            "blamed": [asdict(one) for one in self.blamed],
            "lost": [asdict(one) for one in self.lost],
            "attempts": [_part_json(attempt, part) for attempt, part in self.parts],
        }


def _part_json(attempt: Attempt, part: NodePart) -> dict[str, Any]:
    return {
        "run": attempt.run,
        "attempt": attempt.attempt,
        "rank": part.rank,
        "outcome": attempt.end_state,
        "exit": part.exit,
        "seconds": part.seconds,
        "relative": part.relative,
    }


def read_history(evidence: SetEvidence, attempts: Iterable[Attempt] | None = None) -> list[NodeHistory]:
    """Return every node that a job of the set had, those with ranks first. `attempts` are the set's where they were read."""
    found: dict[str, NodeHistory] = {}
    tried = list(read_attempts(evidence) if attempts is None else attempts)

    def of(name: str) -> NodeHistory:
        return found.setdefault(name, NodeHistory(name))

    for job in evidence.jobs:
        for name in filter(is_node_name, job.nodes):
            of(name)
    for attempt in tried:
        for part in attempt.nodes:
            of(part.node).parts.append((attempt, part))
    _add_minutes(evidence, tried, found.values())
    for job in evidence.jobs:
        for name in filter(is_node_name, job.spares):
            of(name).spare, of(name).waits = True, not job.final
    told = read_told(evidence)
    for one in told.aside:
        of(one.node).set_aside.append(one)
    for one in told.blamed:
        of(one.node).blamed.append(one)
    for one in told.lost:
        of(one.node).lost.append(one)
    for name, verdict in verdicts(evidence).items():
        of(name).preflight = verdict
    for name, gbps in per_node(measurements(evidence)).items():
        of(name).gbps = gbps
    return list(found.values())


def _add_minutes(evidence: SetEvidence, attempts: Iterable[Attempt], nodes: Iterable[NodeHistory]) -> None:
    taking_part = {one.run: {part.node for part in one.nodes} for one in attempts if one.outcome == "success"}
    known = {run: minutes(evidence.layout.result(run)) for run in taking_part}
    times = {run: value for run, value in known.items() if value is not None}
    for one in nodes:
        own = [value for run, value in times.items() if one.node in taking_part[run]]
        others = [value for run, value in times.items() if one.node not in taking_part[run]]
        one.minutes_with = mean(own) if own else None
        one.minutes_without = mean(others) if others else None


def verdicts(evidence: SetEvidence) -> dict[str, NodeVerdict]:
    """Return each node's newest preflight of the set's jobs."""
    found: dict[str, list[Row]] = {}
    for _, text in evidence.job_tables():
        rows: dict[str, list[Row]] = {}
        for row in parse_table(text):
            if is_node_name(row.node):
                rows.setdefault(row.node, []).append(row)
        found |= rows
    return {name: NodeVerdict(name, tuple(rows)) for name, rows in found.items()}


def suspicions(history: Sequence[NodeHistory]) -> list[str]:
    """Return sentences about nodes that look slow, each with what points at it."""
    rates = [one.gbps for one in history if one.gbps]
    middle = median(rates) if len(rates) > 1 else 0.0
    found = []
    for one in history:
        if one.gbps is not None and one.gbps < SLOW_BANDWIDTH * middle:
            found.append(f"{one.node} reached {one.gbps:.1f} GB/s in the deep step, the middle node {middle:.1f} GB/s")
        if one.relative is not None and one.relative > 1 + SLOW_SHARE:
            found.append(f"{one.node} took {100 * (one.relative - 1):.1f} % longer than the other nodes in its runs")
        if one.minutes_with and one.minutes_without and one.minutes_with > (1 + SLOW_SHARE) * one.minutes_without:
            found.append(
                f"runs with {one.node} took {one.minutes_with:.2f} minutes, those without it {one.minutes_without:.2f}"
            )
    return found
