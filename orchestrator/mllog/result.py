"""Immutable results of runs and sets."""

from __future__ import annotations

import math

from orchestrator.frozen import Frozen
from orchestrator.mllog.compliance import WARNING, LogFinding
from orchestrator.mllog.numbers import finite
from orchestrator.mllog.olympic import dropped_per_side
from orchestrator.mllog.source import why_no_result
from orchestrator.words import train_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from orchestrator.mllog.own import OwnRules
    from orchestrator.mllog.rcp import RcpResult
    from orchestrator.mllog.seeds import RunSeeds

USES = {
    "counted": "counted",
    "fastest": "dropped: fastest",
    "slowest": "dropped: slowest",
    "bad": "bad run, in the place of the slowest",
    "outside": "outside the median window",
    "": "no mean so far",
}
"""Use of a run -> text."""


class RunScore(Frozen):
    """One run of a set. Times are Unix milliseconds; `samples` is None without convergence."""

    file: str
    path: str
    number: int | None
    """In a set folder."""
    minutes: float | None
    start: float | None
    stop: float | None
    init_start: float | None
    status: Any
    converged: bool
    samples: Any
    batch_size: Any
    benchmark: Any
    division: Any
    refused: str
    """Why the RCP test cannot use the log, or ""."""
    seed: Any
    seeds: RunSeeds
    evaluations: list[tuple[float, Any, Any]]
    throughput: list[tuple[float, float]]
    stand_in: bool
    findings: tuple[LogFinding, ...]
    compliant: bool
    fatal: bool
    org: Any = None
    """`submission_org`"""
    rehearsed: bool = False
    """Simulated: no training ran."""
    use: str = ""
    """A key of USES."""

    @property
    def good(self) -> bool:
        """Return whether the run's time counts for the score."""
        return self.compliant and self.minutes is not None and math.isfinite(self.minutes)

    def to_json(self) -> dict[str, Any]:
        names = ("file", "minutes", "samples", "status", "seed", "converged", "compliant", "use")
        findings = [finding.to_json() for finding in self.findings]
        return {**self.named(*names), "findings": findings}


class Score(Frozen):
    """`valid` decides the exit code; `reasons` are those against a valid score."""

    directory: str
    runs: tuple[RunScore, ...]
    ruleset: str
    ruleset_from: str
    benchmark: Any
    division: str
    """`closed` or `open`; "" by a workload's own rules."""
    runs_required: int
    olympic_mean: float | None
    seed_findings: tuple[LogFinding, ...]
    """Empty in the open division: its seeds are not checked."""
    unscored: list[dict[str, Any]]
    """Attempts ended by the infrastructure."""
    pending: list[int]
    """Runs of a set folder without a result so far."""
    awaited: list[int]
    """Those with attempts left."""
    rcp: RcpResult | None = None
    """None if the RCP test does not apply."""
    own: OwnRules | None = None
    """The workload's own rules, if used: then it is no MLPerf score."""
    differences: tuple[LogFinding, ...] = ()
    """Differences of the logs from environment or descriptor: no reason against a score."""
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    forecast: dict[str, Any] | None = None
    window: dict[str, Any] | None = None
    rehearsed: bool = False
    """The set or any of its logs was simulated: no training ran."""
    why: tuple[dict[str, Any], ...] = ()

    @property
    def rules_text(self) -> str:
        name = "the workload's own rules, not MLPerf's" if self.own else f"round {self.ruleset}"
        return f"{name} ({self.ruleset_from})"

    @property
    def dropped(self) -> int:
        return 1 if self.own else dropped_per_side(self.benchmark)

    @property
    def by_samples(self) -> list[RunScore]:
        """Sort the runs by samples to converge, those without as largest."""
        runs = [run for run in self.runs if run.use != "outside"]
        return sorted(
            runs, key=lambda run: math.inf if (known := finite(run.samples)) is None else known
        )

    @property
    def sampled(self) -> list[RunScore]:
        """Return the runs that the RCP test averages."""
        runs = self.by_samples
        return runs[self.dropped : len(runs) - self.dropped]

    @property
    def batch_size(self) -> Any:
        return next((run.batch_size for run in self.runs if run.batch_size != -1), -1)

    @property
    def valid(self) -> bool:
        return not self.reasons

    @property
    def compliant(self) -> bool:
        """Return whether all runs are compliant."""
        return all(run.compliant for run in self.runs)

    @property
    def findings(self) -> list[LogFinding]:
        """Return findings on runs, on seeds, then the differences from the description."""
        return [
            *(finding for run in self.runs for finding in run.findings),
            *self.seed_findings,
            *self.differences,
        ]

    @property
    def seeds_ok(self) -> bool:
        return all(finding.severity == WARNING for finding in self.seed_findings)

    @property
    def factor(self) -> float | None:
        """Return the referee's normalisation factor; None if the RCP test does not apply. Applied
        to passing sets only."""
        return self.rcp.factor if self.rcp and not self.rcp.refused else None

    @property
    def minutes(self) -> float | None:
        """Return the score, or None without a valid score."""
        if not self.valid or self.olympic_mean is None:
            return None
        return self.olympic_mean * (self.factor if self.factor is not None else 1.0)

    @property
    def no_result(self) -> str:
        """Return why a valid score is no result of the benchmark, or ""."""
        return why_no_result(rehearsed=self.rehearsed, stand_in=self.stand_in)

    @property
    def stand_in(self) -> bool:
        """Return whether a run was of a stand-in workload."""
        return any(run.stand_in for run in self.runs)

    @property
    def verdict(self) -> str:
        """Return the result in one line, with the reasons against a valid score."""
        return f"{self.outcome}: {'; '.join(self.reasons)}" if self.reasons else self.outcome

    @property
    def outcome(self) -> str:
        """Return the result without reasons; a rehearsal's starts with that fact."""
        if why := self.no_result:
            return f"rehearsal, not a result ({why}): {self._outcome}"
        return self._outcome

    @property
    def _outcome(self) -> str:
        if self.valid:
            what = (
                "valid score by the workload's own rules, not an MLPerf score"
                if self.own
                else "valid score"
            )
            return f"{what}: {train_time(self.minutes)}"
        unfinished = self.forecast.get("can_become_valid") if self.forecast else self.awaited
        what = "no valid score yet" if unfinished else "no valid score"
        return f"{what} by the workload's own rules" if self.own else what

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "directory": self.directory,
            "benchmark": self.benchmark,
            "round": self.ruleset,
            "round_from": self.ruleset_from,
            "own_rules": self.own.to_json() if self.own else None,
            "division": self.division or None,
            "batch_size": None if self.batch_size == -1 else self.batch_size,
            "runs": [run.to_json() for run in self.runs],
            "runs_required": self.runs_required,
            "olympic_mean_minutes": self.olympic_mean,
            "rcp": self.rcp.to_json() if self.rcp else None,
            "normalization_factor": self.factor,
            "score_minutes": self.minutes,
            "compliant": self.compliant,
            "seeds_ok": self.seeds_ok,
            "seed_findings": [finding.to_json() for finding in self.seed_findings],
            "differences": [finding.to_json() for finding in self.differences],
            "valid": self.valid,
            "verdict": self.verdict,
            "rehearsal": self.rehearsed,
            "stand_in": self.stand_in,
            "reasons": self.reasons,
            "notes": self.notes,
            "unscored_attempts": self.unscored,
            "pending_runs": self.pending,
            "window": self.window,
            "forecast": self.forecast,
            "why": self.why,
        }
        return {name: plain(value) for name, value in document.items()}


def plain(value: Any, levels: int = 64) -> Any:
    """Return `value` for JSON: None for NaN, infinity and what is nested more than `levels` deep,
    lists for tuples."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if not isinstance(value, (dict, list, tuple)):
        return value
    if not levels:
        return None
    if isinstance(value, dict):
        return {key: plain(item, levels - 1) for key, item in value.items()}
    return [plain(item, levels - 1) for item in value]
