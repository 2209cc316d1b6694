"""The history of each node of a set: its runs, speed, preflight, bandwidth and exclusion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """One node. `minutes_with` is the mean time to train of the good runs with it; `_without` of
    the others; `rate_with` and `rate_without` are their mean samples per second."""

    node: str
    parts: tuple[tuple[RunAttempt, NodePart], ...] = ()
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
    set_aside: tuple[SetAside, ...] = ()
    blamed: tuple[SetAside, ...] = ()
    """Dead attempts blamed on this node."""
    lost: tuple[SetAside, ...] = ()
    """When the scheduler marked it down during a job; the reason is its state."""

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
        """Return its exit codes other than 0, in order; 143 is that of a node ended because another
        failed."""
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
        """Return its mean time over the others' in good attempts."""
        times = [part.relative for part in self._good if part.relative is not None]
        return mean(times) if times else None

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
            "set_aside": [aside._asdict() for aside in self.set_aside],
            "blamed": [aside._asdict() for aside in self.blamed],
            "lost": [aside._asdict() for aside in self.lost],
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
    """Return every node of the set's jobs, those with ranks first. `attempts`: the set's, if
    already read."""
    tried = list(read_attempts(evidence) if attempts is None else attempts)
    parts: dict[str, list[tuple[RunAttempt, NodePart]]] = {
        name: [] for job in evidence.jobs for name in job.nodes if is_node_name(name)
    }
    for attempt in tried:
        for part in attempt.nodes:
            parts.setdefault(part.node, []).append((attempt, part))
    waits = {
        name: not job.final for job in evidence.jobs for name in filter(is_node_name, job.spares)
    }
    notes = read_job_notes(evidence)
    excluded, blamed, lost = map(_by_node, (notes.aside, notes.blamed, notes.lost))
    preflights, measured = verdicts(evidence), best_of_each(measurements(evidence))
    speeds = _RunSpeeds(evidence, tried)
    names = dict.fromkeys(
        name
        for known in (parts, waits, excluded, blamed, lost, preflights, measured)
        for name in known
    )
    return [
        NodeHistory(
            name,
            tuple(parts.get(name, ())),
            spare=name in waits,
            waits=waits.get(name, False),
            **(speeds.compared(name) if name in parts else {}),
            gbps=measured[name].gbps if name in measured else None,
            way=measured[name].way if name in measured else "",
            preflight=preflights.get(name),
            set_aside=excluded.get(name, ()),
            blamed=blamed.get(name, ()),
            lost=lost.get(name, ()),
        )
        for name in names
    ]


def _by_node(noted: Iterable[SetAside]) -> dict[str, tuple[SetAside, ...]]:
    notes: dict[str, tuple[SetAside, ...]] = {}
    for aside in noted:
        notes[aside.node] = (*notes.get(aside.node, ()), aside)
    return notes


class _RunSpeeds:
    """The times and rates of a set's good runs, and their nodes."""

    def __init__(self, evidence: SetEvidence, attempts: Iterable[RunAttempt]) -> None:
        self._nodes = {
            attempt.run: {part.node for part in attempt.nodes}
            for attempt in attempts
            if attempt.outcome == "success"
        }
        files = evidence.findings.inside
        logs = {run: tail_of(read_ends(evidence.layout.result(run), files)) for run in self._nodes}
        self._minutes = {run: log.minutes for run, log in logs.items()}
        self._rates = {run: log.samples_per_second for run, log in logs.items()}

    def compared(self, node: str) -> dict[str, float | None]:
        """Return the means of the runs with and without a node, by NodeHistory's names."""
        return {
            "minutes_with": self._mean(self._minutes, node, with_it=True),
            "minutes_without": self._mean(self._minutes, node, with_it=False),
            "rate_with": self._mean(self._rates, node, with_it=True),
            "rate_without": self._mean(self._rates, node, with_it=False),
        }

    def _mean(
        self, values: Mapping[int, float | None], node: str, *, with_it: bool
    ) -> float | None:
        chosen = [
            value
            for run, value in values.items()
            if value is not None and (node in self._nodes[run]) is with_it
        ]
        return mean(chosen) if chosen else None


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that ran runs together, and the minutes to train of their good runs."""

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
    runs_of: dict[tuple[str, ...], list[tuple[int, float]]] = {}
    for attempt in read_attempts(evidence) if attempts is None else attempts:
        value = (
            minutes(evidence.layout.result(attempt.run), evidence.findings.inside)
            if attempt.counts and attempt.outcome == "success"
            else None
        )
        if value is not None and attempt.nodes:
            runs_of.setdefault(tuple(sorted(part.node for part in attempt.nodes)), []).append(
                (attempt.run, value)
            )
    groups = [
        NodeGroup(nodes, *map(tuple, zip(*runs, strict=True))) for nodes, runs in runs_of.items()
    ]
    return groups if len(groups) > 1 else []


def verdicts(evidence: SetEvidence) -> dict[str, NodeVerdict]:
    """Return each node's newest preflight."""
    tables = [text for _, text in evidence.job_tables()]
    if not tables:
        return {}
    from orchestrator.evidence.checks import parse_table
    from orchestrator.onnode.policy.verdict import NodeVerdict

    newest: dict[str, list[Row]] = {}
    for text in tables:
        rows: dict[str, list[Row]] = {}
        for row in parse_table(text):
            if is_node_name(row.node):
                rows.setdefault(row.node, []).append(row)
        newest |= rows
    return {name: NodeVerdict(name, tuple(rows)) for name, rows in newest.items()}


def suspicions(history: Sequence[NodeHistory]) -> list[str]:
    """Return sentences about nodes that look slow, each with its evidence."""
    return signs([_pace(node) for node in history])


def _pace(node: NodeHistory) -> Pace:
    deep = [row for row in node.preflight.rows if row.check == "deep"] if node.preflight else []
    return Pace(
        node.node,
        gbps=node.gbps,
        way=node.way,
        judged=bool(deep),
        deep=next((row.text for row in deep if row.verdict in ("fail", "warn")), ""),
        seconds=node.mean_s,
        relative=node.relative,
        rate_with=node.rate_with,
        rate_without=node.rate_without,
    )
