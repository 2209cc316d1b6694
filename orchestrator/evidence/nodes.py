"""The history of each node of a set: its runs and their speed, its preflight, its bandwidth, its
exclusion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.evidence.attempts import NodePart, RunAttempt, read_attempts
from orchestrator.evidence.bandwidth import best_of_each, measurements
from orchestrator.evidence.events import SetAside, read_job_notes
from orchestrator.evidence.files import is_node_name
from orchestrator.evidence.pace import Pace, signs
from orchestrator.evidence.progress import minutes, read_ends, tail_of
from orchestrator.evidence.sets import SetEvidence
from orchestrator.mllog.olympic import DONE, mean

if TYPE_CHECKING:
    from orchestrator.onnode.policy.verdict import NodeVerdict, Row


@dataclass(slots=True)
class NodeHistory:
    """One node. `minutes_with` is the mean time to train of the good runs with it; `_without` of
    the others; `rate_with` and `rate_without` are their mean samples per second."""

    node: str
    parts: list[tuple[RunAttempt, NodePart]] = field(default_factory=list)
    spare: bool = False
    """It was a spare node; `waits`: it still is."""
    waits: bool = False
    minutes_with: float | None = None
    minutes_without: float | None = None
    rate_with: float | None = None
    rate_without: float | None = None
    gbps: float | None = None
    way: str = ""
    """How `gbps` was measured: torch, rccl-tests or tcp."""
    preflight: NodeVerdict | None = None
    set_aside: list[SetAside] = field(default_factory=list)
    blamed: list[SetAside] = field(default_factory=list)
    """Dead attempts blamed on this node, with the reason."""
    lost: list[SetAside] = field(default_factory=list)
    """Slurm marked it down during a job; the reason is Slurm's state."""

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
        """Return its own exit codes other than 0, in order; 143 is that of a node ended because
        another failed."""
        return [
            part.exit
            for _, part in self.parts
            if part.exit is not None and part.exit not in (0, -1, 143)
        ]

    @property
    def mean_s(self) -> float | None:
        times = [part.seconds for part in self._good if part.seconds is not None]
        return mean(times) if times else None

    @property
    def last(self) -> tuple[RunAttempt, NodePart] | None:
        timed = (pair for pair in reversed(self.parts) if pair[1].seconds is not None)
        return next(timed, None)

    @property
    def relative(self) -> float | None:
        """Return the mean of its time over the others' in good attempts."""
        found = [part.relative for part in self._good if part.relative is not None]
        return mean(found) if found else None

    @property
    def _good(self) -> list[NodePart]:
        return [part for attempt, part in self.parts if attempt.end_state in DONE]

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "ranks": self.ranks,
            "spare": self.spare,
            "waits": self.waits,
            "good": self.good,
            "failed": self.failed,
            "mean_s": self.mean_s,
            "last_s": self.last[1].seconds if self.last else None,
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


def _part_json(attempt: RunAttempt, part: NodePart) -> dict[str, Any]:
    return {
        "run": attempt.run,
        "attempt": attempt.attempt,
        "rank": part.rank,
        "outcome": attempt.end_state,
        "exit": part.exit,
        "seconds": part.seconds,
        "relative": part.relative,
    }


def read_history(
    evidence: SetEvidence, attempts: Iterable[RunAttempt] | None = None
) -> list[NodeHistory]:
    """Return every node of the set's jobs, those with ranks first. `attempts` are the set's if
    already read."""
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
    notes = read_job_notes(evidence)
    for one in notes.aside:
        of(one.node).set_aside.append(one)
    for one in notes.blamed:
        of(one.node).blamed.append(one)
    for one in notes.lost:
        of(one.node).lost.append(one)
    for name, verdict in verdicts(evidence).items():
        of(name).preflight = verdict
    for name, measured in best_of_each(measurements(evidence)).items():
        of(name).gbps, of(name).way = measured.gbps, measured.way
    return list(found.values())


def _add_minutes(
    evidence: SetEvidence, attempts: Iterable[RunAttempt], nodes: Iterable[NodeHistory]
) -> None:
    taking_part = {
        one.run: {part.node for part in one.nodes} for one in attempts if one.outcome == "success"
    }
    logs = {run: tail_of(read_ends(evidence.layout.result(run))) for run in taking_part}
    times = {run: log.minutes for run, log in logs.items()}
    rates = {run: log.samples_per_second for run, log in logs.items()}

    def mean_of(values: Mapping[int, float | None], node: str, *, with_it: bool) -> float | None:
        chosen = [
            value
            for run, value in values.items()
            if value is not None and (node in taking_part[run]) is with_it
        ]
        return mean(chosen) if chosen else None

    for one in nodes:
        one.minutes_with = mean_of(times, one.node, with_it=True)
        one.minutes_without = mean_of(times, one.node, with_it=False)
        one.rate_with = mean_of(rates, one.node, with_it=True)
        one.rate_without = mean_of(rates, one.node, with_it=False)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that ran runs together, and the minutes to train of their good runs, by run."""

    nodes: tuple[str, ...]
    runs: tuple[int, ...]
    minutes: tuple[float, ...]

    @property
    def mean(self) -> float:
        return mean(self.minutes)

    def to_json(self) -> dict[str, Any]:
        return {
            "nodes": list(self.nodes),
            "runs": list(self.runs),
            "minutes": list(self.minutes),
            "mean": self.mean,
        }


def read_groups(
    evidence: SetEvidence, attempts: Iterable[RunAttempt] | None = None
) -> list[NodeGroup]:
    """Return the groups of nodes with good runs, by their first run; [] if all runs had the same
    nodes."""
    found: dict[tuple[str, ...], list[tuple[int, float]]] = {}
    for one in read_attempts(evidence) if attempts is None else attempts:
        value = (
            minutes(evidence.layout.result(one.run))
            if one.counts and one.outcome == "success"
            else None
        )
        if value is not None and one.nodes:
            found.setdefault(tuple(sorted(part.node for part in one.nodes)), []).append(
                (one.run, value)
            )
    groups = [
        NodeGroup(nodes, *map(tuple, zip(*runs, strict=True))) for nodes, runs in found.items()
    ]
    return groups if len(groups) > 1 else []


def verdicts(evidence: SetEvidence) -> dict[str, NodeVerdict]:
    """Return each node's newest preflight of the set's jobs."""
    tables = [text for _, text in evidence.job_tables()]
    if not tables:
        return {}
    from orchestrator.evidence.checks import parse_table
    from orchestrator.onnode.policy.verdict import NodeVerdict

    found: dict[str, list[Row]] = {}
    for text in tables:
        rows: dict[str, list[Row]] = {}
        for row in parse_table(text):
            if is_node_name(row.node):
                rows.setdefault(row.node, []).append(row)
        found |= rows
    return {name: NodeVerdict(name, tuple(rows)) for name, rows in found.items()}


def suspicions(history: Sequence[NodeHistory]) -> list[str]:
    """Return sentences about nodes that look slow, each with its evidence."""
    return signs([_pace(one) for one in history])


def _pace(one: NodeHistory) -> Pace:
    deep = [row for row in one.preflight.rows if row.check == "deep"] if one.preflight else []
    return Pace(
        one.node,
        gbps=one.gbps,
        way=one.way,
        judged=bool(deep),
        deep=next((row.text for row in deep if row.verdict in ("fail", "warn")), ""),
        seconds=one.mean_s,
        relative=one.relative,
        rate_with=one.rate_with,
        rate_without=one.rate_without,
    )
