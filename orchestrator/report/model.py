"""What a report says, as plain values. Times are Unix milliseconds, durations minutes or seconds as named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.report.figures import Unit, unit_of_runs

if TYPE_CHECKING:
    from orchestrator.evidence.attempts import RunAttempt
    from orchestrator.evidence.bandwidth import Measurement
    from orchestrator.evidence.nodes import NodeGroup, NodeHistory
    from orchestrator.evidence.startup import StartUp
    from orchestrator.evidence.tunables import TunableReading
    from orchestrator.mllog.result import Score
    from orchestrator.mllog.trimmed import Trimmed
    from orchestrator.published import PublishedResult
    from orchestrator.published.startup import PublishedStartup


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One evaluation; `minutes` since run_start."""

    minutes: float
    samples: float
    value: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run as its log tells it. A member is None where the log does not say it."""

    label: str
    file: str
    use: str
    minutes: float | None
    samples: float | None
    seed: str
    status: str
    converged: bool
    compliant: bool
    init_ms: float | None
    start_ms: float | None
    stop_ms: float | None
    evaluations: tuple[CurvePoint, ...]
    throughput: tuple[tuple[float, float], ...]
    """(minutes since run_start, samples per second)"""
    throughput_from: str
    """`logged`, or `evaluations` where the log gives no throughput: then evaluation time is in it."""

    @property
    def use_text(self) -> str:
        return USES.get(self.use, self.use)


USES = {
    "counted": "counted",
    "fastest": "dropped: fastest",
    "slowest": "dropped: slowest",
    "bad": "bad run, in the place of the slowest",
    "outside": "outside the median window",
}


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the runs' environment; `place` is where the bundle sets it, `origin` which document says so."""

    name: str
    value: str
    place: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Gap:
    """What lies between two runs that follow each other: minutes from one's end to the next one's start."""

    after: str
    before: str
    minutes: float


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the score's arithmetic: what is done, the numbers, what comes out. `value` is the result."""

    title: str
    lines: tuple[str, ...]
    value: float | None = None
    unit: str = ""


@dataclass(slots=True)
class Report:
    """Everything about one set. `facts` are pairs for people; `score` is the referee's own object."""

    directory: str
    score: Score
    target: float | None
    metric: str
    smaller_is_better: bool
    runs: tuple[Run, ...]
    gaps: tuple[Gap, ...]
    steps: tuple[Step, ...]
    scale: float = 1.0
    """Minutes of the score per minute of a run: the normalisation factor where it counts."""
    mean: Trimmed | None = None
    """The score, or what stands for it as long as there is none, with its error; in minutes of the score."""
    published: tuple[PublishedResult, ...] = ()
    """What is published for this system, benchmark and round."""
    facts: tuple[tuple[str, str], ...] = ()
    attempts: tuple[RunAttempt, ...] = ()
    nodes: tuple[NodeHistory, ...] = ()
    slow_signs: tuple[str, ...] = ()
    """What points at a slow node, in words."""
    groups: tuple[NodeGroup, ...] = ()
    bandwidth: tuple[Measurement, ...] = ()
    startups: tuple[StartUp, ...] = ()
    published_startup: tuple[PublishedStartup, ...] = ()
    tunables: tuple[TunableReading, ...] = ()
    environment: tuple[Variable, ...] = ()
    environment_note: str = ""
    images: tuple[tuple[str, str], ...] = ()
    """(image or digest, where it was used)"""
    problems: tuple[str, ...] = ()
    """Files of the set that could not be used."""
    described: dict[str, Any] = field(default_factory=dict)

    @property
    def is_set(self) -> bool:
        return bool(self.described)

    @property
    def system(self) -> str:
        """The system that the set names; of plain logs what the folders are called."""
        named = (
            self.described.get("system")
            or self.directory.rstrip("/").rsplit("/", 2)[-2 if self._nested else -1]
        )
        return str(named)

    @property
    def title(self) -> str:
        return f"{self.score.benchmark or 'unknown benchmark'} on {self.system}"

    @property
    def unit(self) -> Unit:
        """In which unit the times of the runs are written."""
        return unit_of_runs(run.minutes for run in self.runs)

    @property
    def against_published(self) -> list[str]:
        """Sentences about the score beside what is published."""
        from orchestrator.published import label, sentence

        value = self.score.minutes
        return [
            f"published: {label(one)}" if value is None else f"{sentence(value, one)}"
            for one in self.published
        ]

    @property
    def _nested(self) -> bool:
        """A published tree: .../<system>/<benchmark>."""
        parts = self.directory.rstrip("/").split("/")
        return len(parts) > 2 and parts[-1] == self.score.benchmark
