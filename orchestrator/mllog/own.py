"""Scoring by a workload's own rules, if it is no MLPerf benchmark.

A run counts with a start, `run_stop` with success, and an evaluation that reached the target. All
seeds are logged and different. The score is the olympic mean; one bad run is allowed. Without RCP
test and compliance check, such a set cannot be submitted to MLPerf.
"""

from __future__ import annotations

import math

from orchestrator.mllog.compliance import ERROR, WARNING, Compliance, LogFinding
from orchestrator.mllog.numbers import finite
from orchestrator.mllog.rcp import FAILED
from orchestrator.mllog.reader import Log, Record
from orchestrator.mllog.shipped import OWN
from orchestrator.onnode.kernel.mllog_keys import ACCURACY, START, STOP
from orchestrator.onnode.kernel.walk import MOST_RUNS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from orchestrator.mllog.source import RunFile, Source

NO_RULES = (
    "scored by the workload's own rules: no RCP test, no compliance check; it cannot be "
    "submitted to MLPerf"
)

FEWEST_RUNS = 3
"""With fewer runs an olympic mean has nothing to average."""


class OwnRules:
    """The scoring part of a workload's document. `target` None: `run_stop` alone decides."""

    __slots__ = ("benchmark", "metric", "runs_required", "smaller", "target")

    ruleset = OWN

    def __init__(
        self,
        benchmark: str = "",
        target: float | None = None,
        metric: str = "evaluation",
        smaller: bool = True,
        runs_required: int = FEWEST_RUNS,
    ) -> None:
        self.benchmark = benchmark
        self.target = target
        self.metric = metric
        self.smaller = smaller
        self.runs_required = max(FEWEST_RUNS, runs_required)

    @classmethod
    def of_set(cls, source: Source) -> OwnRules:
        """Return a set folder's recorded rules; without a target for a plain folder."""
        described = source.described
        needed = source.workload.get("runs_required")
        return cls(
            benchmark=_text(described.get("benchmark")),
            target=finite(described.get("target")),
            metric=_text(described.get("metric")) or "evaluation",
            smaller=described.get("target_is_upper_bound") is not False,
            runs_required=needed if isinstance(needed, int) else FEWEST_RUNS,
        )

    @property
    def goal(self) -> str:
        """Return the target in words; "" if missing."""
        return (
            ""
            if self.target is None
            else f"{self.metric} {'≤' if self.smaller else '≥'} {self.target:g}"
        )

    def reached(self, value: Any) -> bool:
        """Return whether an evaluation meets the target."""
        number = finite(value)
        if self.target is None or number is None:
            return False
        return number <= self.target if self.smaller else number >= self.target

    def to_json(self) -> dict[str, Any]:
        return {
            "benchmark": self.benchmark or None,
            "metric": self.metric,
            "target": self.target,
            "smaller_is_better": self.smaller,
            "runs_required": self.runs_required,
        }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


class OwnReading:
    """A log's convergence, like `convergence` of the RCP test, but from evaluations alone."""

    __slots__ = ("batch_size", "benchmark", "converged", "refused", "samples")

    def __init__(self, log: Log, rules: OwnRules) -> None:
        self.benchmark = log.benchmark if log.benchmark is not None else rules.benchmark or None
        self.batch_size = -1 if log.batch_size is None else log.batch_size
        values = _evaluations(log)
        met = rules.target is None or any(rules.reached(value) for _, value in values)
        self.converged = log.status == "success" and met
        counts = (count for count, _ in reversed(values) if finite(count) is not None)
        self.samples: Any = next(counts, None)
        if not self.converged:
            self.samples = FAILED
        self.refused = ""


def _evaluations(log: Log) -> list[tuple[Any, Any]]:
    """Return (samples or epochs, value) of evaluations until the end of the run."""
    stop = log.start_stop[1]
    return [
        (count, value) for time, count, value in log.evaluations if stop is None or time <= stop
    ]


def check_own(run: RunFile, log: Log, rules: OwnRules) -> Compliance:
    def finding(
        key: str, rule: str, message: str, record: Record | None = None, severity: str = ERROR
    ) -> LogFinding:
        return LogFinding(run.name, log.line(record) if record else 0, key, rule, message, severity)

    findings = [
        LogFinding(run.name, log.line(damage), "", "records", damage.message, WARNING)
        for damage in log.damage[:10]
    ]
    named = log.last("submission_benchmark")
    if rules.benchmark and named and named.value != rules.benchmark:
        message = f"the log is of {named.value!r}, and the workload of {rules.benchmark!r}"
        findings.append(finding("submission_benchmark", "benchmark", message, named))
    stop = log.last(STOP)
    if log.minutes is None:
        findings.append(finding(STOP, "logged", f"`{START}` or `{STOP}` is missing"))
    elif not 0 < log.minutes < math.inf:
        findings.append(finding(STOP, "time", f"the run took {log.minutes:.2f} minutes", stop))
    elif log.status != "success":
        findings.append(finding(STOP, "status", f"the run ended with status {log.status!r}", stop))
    elif rules.target is not None and not any(
        rules.reached(value) for _, value in _evaluations(log)
    ):
        message = (
            f"the run says success, and no evaluation reached the target ({rules.goal}): "
            f"{_best(log, rules)}"
        )
        findings.append(finding(ACCURACY, "target", message, stop))
    return Compliance(findings)


def _best(log: Log, rules: OwnRules) -> str:
    values = [value for _, value in _evaluations(log) if finite(value) is not None]
    if not values:
        return "there is none with a number"
    return f"the best is {(min if rules.smaller else max)(values):g}"


def check_own_seeds(seeds: Sequence[tuple[str, Any]]) -> list[LogFinding]:
    """Check (file, seed) of a set."""
    findings: list[LogFinding] = []
    taken: dict[str, str] = {}
    for file, seed in seeds:
        if seed is None:
            findings.append(
                LogFinding(file, 0, "seed", "logged", "no `seed` is logged; every run must log one")
            )
            continue
        other = taken.setdefault(repr(seed), file)
        if other != file:
            message = f"seed {str(seed)[:40]} is already logged in {other}"
            findings.append(LogFinding(file, 0, "seed", "unique", message))
    return findings


def own_runs_required(rules: OwnRules, runs: int, planned: Any) -> int:
    """Return a set's size: the planned or existing runs, at least the required number."""
    wanted = max(rules.runs_required, planned if isinstance(planned, int) else 0)
    return max(runs, min(wanted, MOST_RUNS))
