"""One record per attempt at a run and per node of it: exit codes, times, lateness, drift."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from orchestrator.evidence.files import is_node_name
from orchestrator.evidence.pace import notable
from orchestrator.evidence.sets import SetEvidence
from orchestrator.mllog.olympic import median
from orchestrator.onnode.kernel.records import NodeRunRecord, RunRecord


@dataclass(frozen=True, slots=True)
class NodePart:
    """One node's part of one attempt: exit code, and seconds that it took and was late.

    `slow`: notably late at start or end. `relative` is its time over the median of the other nodes.
    Unknown values are None.
    """

    node: str
    rank: int
    exit: int | None
    seconds: float | None = None
    late_start_s: float = 0.0
    late_end_s: float = 0.0
    slow: bool = False
    relative: float | None = None


@dataclass(frozen=True, slots=True)
class RunAttempt:
    """One attempt at a run. Times are Unix milliseconds, 0 if unknown."""

    run: int
    attempt: int
    state: str
    outcome: str
    reason: str
    seed: int
    job_id: str
    image_digest: str
    start_ms: int
    end_ms: int
    counts: bool
    """The run's result is of this attempt."""
    nodes: tuple[NodePart, ...] = ()

    @property
    def end_state(self) -> str:
        """Return the outcome, or the state of an attempt without one."""
        return self.outcome or self.state


@dataclass(frozen=True, slots=True)
class Drift:
    """A host setting that did not hold at the end of a run."""

    run: int
    attempt: int
    node: str
    knob: str
    wanted: str
    found: str
    need: str

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def read_attempts(evidence: SetEvidence) -> tuple[RunAttempt, ...]:
    """Return the attempts with a readable state, by run and attempt."""
    attempts = []
    for run, number in evidence.tried:
        current, record = evidence.run(run), evidence.attempt(run, number)
        if record is not None:
            counts = current is not None and current.done and current.attempt == number
            attempts.append(_attempt(record, run, number, counts, evidence.ends(run, number)))
    return tuple(attempts)


def _attempt(
    record: RunRecord, run: int, number: int, counts: bool, ends: dict[int, NodeRunRecord]
) -> RunAttempt:
    return RunAttempt(
        run,
        number,
        record.state,
        record.outcome,
        record.reason,
        record.seed,
        record.job_id,
        record.image_digest,
        record.start_ms,
        record.end_ms,
        counts,
        _parts(record, {rank: end for rank, end in ends.items() if end.start_ms and end.end_ms}),
    )


def _parts(record: RunRecord, ends: dict[int, NodeRunRecord]) -> tuple[NodePart, ...]:
    """Return one part per node, by rank; without a node's own record, with the loop's exit code."""
    known = [ends[rank] for rank in range(len(record.nodes)) if rank in ends]
    times = [_seconds(end) for end in known]
    begin, middle = (
        (min(end.start_ms for end in known), median([end.end_ms for end in known]))
        if known
        else (0, 0.0)
    )
    parts = []
    for rank, name in enumerate(record.nodes):
        end = ends.get(rank)
        if not is_node_name(name):
            continue
        if end is None:
            parts.append(NodePart(name, rank, record.exit_codes.get(name)))
            continue
        late = (end.start_ms - begin) / 1000, (end.end_ms - middle) / 1000
        slow = notable(max(late), (middle - begin) / 1000)
        relative = _relative(times, _seconds(end))
        parts.append(NodePart(name, rank, end.exit, _seconds(end), *late, slow, relative))
    return tuple(parts)


def _seconds(end: NodeRunRecord) -> float:
    return (end.end_ms - end.start_ms) / 1000


def _relative(times: Sequence[float], seconds: float) -> float | None:
    others = list(times)
    others.remove(seconds)
    middle = median(others) if others else 0.0
    return seconds / middle if middle > 0 else None


def slow_nodes(attempts: Iterable[RunAttempt]) -> list[tuple[str, int, float]]:
    """Return (node, late attempts, mean lateness in seconds), the worst first."""
    late: dict[str, list[float]] = {}
    for attempt in attempts:
        for part in attempt.nodes:
            if part.slow:
                late.setdefault(part.node, []).append(max(part.late_start_s, part.late_end_s))
    nodes = [(node, len(values), sum(values) / len(values)) for node, values in late.items()]
    return sorted(nodes, key=lambda item: (-item[1], -item[2], item[0]))


def drifts(evidence: SetEvidence) -> list[Drift]:
    return [
        Drift(
            run,
            attempt,
            end.node,
            *(str(setting.get(name, "")) for name in ("knob", "wanted", "found", "need")),
        )
        for run, attempt in evidence.tried
        for end in evidence.ends(run, attempt).values()
        for setting in end.drift
        if isinstance(setting, dict)
    ]
