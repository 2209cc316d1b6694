"""A report's content. Times are Unix milliseconds, durations minutes or seconds as named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.views.figures import Unit, unit_of_runs
from orchestrator.views.parts import Step

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
    """A run from its log; None for missing values."""

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
    """`logged`, or `evaluations`: then it includes evaluation time."""

    @property
    def use_text(self) -> str:
        from orchestrator.mllog.result import USES

        return USES.get(self.use, self.use)


@dataclass(frozen=True, slots=True)
class Variable:
    """`place` is in the bundle, `origin` a document."""

    name: str
    value: str
    place: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Gap:
    """The pause in minutes between two runs."""

    after: str
    before: str
    minutes: float


@dataclass(frozen=True, slots=True)
class Report:
    """Everything about a set. `facts` are for people, `score` is the referee's."""

    directory: str
    score: Score
    target: float | None
    metric: str
    smaller_is_better: bool
    runs: tuple[Run, ...]
    gaps: tuple[Gap, ...]
    steps: tuple[Step, ...]
    scale: float = 1.0
    """Minutes of the score per minute of a run: the normalisation factor."""
    mean: Trimmed | None = None
    """The score, or its projection, with its error; in minutes of the score."""
    published: tuple[PublishedResult, ...] = ()
    """For this system, benchmark and round."""
    edited: dict[str, str] = field(default_factory=dict)
    """Log -> files of the bundle with accepted edits when its run began."""
    facts: tuple[tuple[str, str], ...] = ()
    attempts: tuple[RunAttempt, ...] = ()
    nodes: tuple[NodeHistory, ...] = ()
    slow_signs: tuple[str, ...] = ()
    """Evidence of a slow node."""
    groups: tuple[NodeGroup, ...] = ()
    bandwidth: tuple[Measurement, ...] = ()
    startups: tuple[StartUp, ...] = ()
    published_startup: tuple[PublishedStartup, ...] = ()
    tunables: tuple[TunableReading, ...] = ()
    environment: tuple[Variable, ...] = ()
    environment_note: str = ""
    images: tuple[tuple[str, str], ...] = ()
    """(image or digest, its use)"""
    problems: tuple[str, ...] = ()
    """Unusable files of the set."""
    described: dict[str, Any] = field(default_factory=dict)

    def place(self, run: Run) -> str:
        """Return ` on node[1-8]` for a run with recorded nodes, else ""."""
        from orchestrator.nodes.names import fold

        for attempt in reversed(self.attempts):
            if str(attempt.run) == run.label and attempt.counts and attempt.nodes:
                return f" on {fold([part.node for part in attempt.nodes])}"
        return ""

    @property
    def is_set(self) -> bool:
        return bool(self.described)

    @property
    def system(self) -> str:
        return system_name(self.directory, self.described, self.score.benchmark)

    @property
    def title(self) -> str:
        return f"{self.score.benchmark or 'unknown benchmark'} on {self.system}"

    @property
    def unit(self) -> Unit:
        return unit_of_runs(run.minutes for run in self.runs)

    @property
    def against_published(self) -> list[str]:
        from orchestrator.published import label, sentence

        value = self.score.minutes
        return [
            f"published: {label(entry)}" if value is None else f"{sentence(value, entry)}"
            for entry in self.published
        ]


def system_name(directory: str, described: dict[str, Any], benchmark: Any) -> str:
    """Return a set's system; for plain logs the folder's name, in a published tree
    (.../<system>/<benchmark>) that of the folder above."""
    parts = directory.rstrip("/").split("/")
    is_nested = len(parts) > 2 and parts[-1] == benchmark
    return str(described.get("system") or parts[-2 if is_nested else -1])
