"""From the logs of a set to its score, the way the referee gets there, with every reason on record.

    source = find_source(directory) ; score = score_source(source, ruleset)      or, in one call,
    score = score_dir(directory, ruleset="6.0.0") ; score.valid ; score.to_json()

The referee is two programs that notice different things: the package checker (number of files, compliance, seeds, RCP)
and the result summarizer (the mean of the compliant runs, times the RCP's normalisation factor). A score is valid when
both would accept the folder.
"""

from __future__ import annotations

import math
import zlib

from orchestrator.errors import InputError
from orchestrator.mllog.compliance import FATAL, WARNING, Compliance, Finding, check_log
from orchestrator.mllog.convergence import Convergence, convergence
from orchestrator.mllog.olympic import dropped_per_side, olympic_mean
from orchestrator.mllog.rcp import FAILED, RcpResult, table
from orchestrator.mllog.reader import Log, read_log
from orchestrator.mllog.rounds import chosen_round, guess_round
from orchestrator.mllog.rules import Rules, rules
from orchestrator.mllog.seeds import RunSeeds, check_seeds
from orchestrator.mllog.shapes import Shapes
from orchestrator.mllog.source import RunFile, Source, find_source

# Not typing's own constant: importing typing takes a tenth of a cold `orchestrator score`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BUILT_IN = "builtin"
"""The benchmark name of the project's own small workload, which is no MLPerf benchmark."""

NO_RULES = "not an MLPerf benchmark: RCP and compliance rules do not apply"


class RunScore:
    """One run of a set. Times are Unix milliseconds; `samples` is None for a run that did not converge."""

    def __init__(self, run: RunFile, log: Log, reading: Convergence, compliance: Compliance) -> None:
        self.file = run.name
        self.path = run.path
        self.number = run.number
        self.minutes = log.minutes
        self.start, self.stop = log.start_stop
        self.status = log.status
        self.converged = reading.converged
        self.samples = reading.samples if reading.converged else None
        self.batch_size = reading.batch_size
        self.benchmark = reading.benchmark
        self.division = log.division
        self.refused = reading.refused
        self.seed = next((value for _, _, value in log.seeds), None)
        self.seeds = RunSeeds(run.name, log)
        self.evaluations = log.evaluations
        self.throughput = log.throughput
        init = log.first("init_start")
        self.init_start = init.time if init else None
        announced = log.first("submission_benchmark")
        self.stand_in = bool(
            announced and isinstance(announced.metadata, dict) and announced.metadata.get("stand_in") is True
        )
        self.findings = compliance.findings
        self.compliant = compliance.compliant
        self.fatal = compliance.fatal
        self.use = ""
        """What became of the run: `counted`, `fastest`, `slowest` (dropped), `bad` (takes the place of the slowest)."""

    @property
    def good(self) -> bool:
        """The run's time counts for the score."""
        return self.compliant and self.minutes is not None and math.isfinite(self.minutes)

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "minutes": self.minutes,
            "samples": self.samples,
            "status": self.status,
            "seed": self.seed,
            "converged": self.converged,
            "compliant": self.compliant,
            "use": self.use,
            "findings": [finding.to_json() for finding in self.findings],
        }


class Score:
    """The score of a set. `valid` decides the exit code; `reasons` says why there is no valid score."""

    def __init__(self, directory: str, runs: list[RunScore], ruleset: str, ruleset_from: str) -> None:
        self.directory = directory
        self.runs = runs
        self.ruleset = ruleset
        self.ruleset_from = ruleset_from
        self.benchmark: Any = next((run.benchmark for run in runs if run.benchmark is not None), None)
        self.division = "open" if runs and all(run.division == "open" for run in runs) else "closed"
        self.runs_required = 0
        self.olympic_mean: float | None = None
        self.rcp: RcpResult | None = None
        self.seed_findings: list[Finding] = []
        self.reasons: list[str] = []
        self.notes: list[str] = []
        self.unscored: list[dict[str, Any]] = []
        self.pending: list[int] = []
        self.forecast: dict[str, Any] | None = None
        self.window: dict[str, Any] | None = None
        self.why: list[dict[str, Any]] = []

    @property
    def is_builtin(self) -> bool:
        return bool(self.benchmark == BUILT_IN)

    @property
    def dropped(self) -> int:
        return dropped_per_side(self.benchmark)

    @property
    def batch_size(self) -> Any:
        return next((run.batch_size for run in self.runs if run.batch_size != -1), -1)

    @property
    def valid(self) -> bool:
        return not self.reasons

    @property
    def compliant(self) -> bool:
        """All runs are compliant. (One bad run is allowed, so a valid score may have False here.)"""
        return all(run.compliant for run in self.runs)

    @property
    def seeds_ok(self) -> bool:
        return all(finding.severity == WARNING for finding in self.seed_findings)

    @property
    def factor(self) -> float | None:
        """The referee's normalisation factor; None where the RCP test does not apply. Applied to passing sets only."""
        return self.rcp.factor if self.rcp and not self.rcp.refused else None

    @property
    def minutes(self) -> float | None:
        """The score in minutes, None when there is no valid one."""
        if not self.valid or self.olympic_mean is None:
            return None
        return self.olympic_mean * (self.factor if self.factor is not None else 1.0)

    @property
    def verdict(self) -> str:
        if self.valid:
            what = "valid score" if not self.is_builtin else f"valid score of the built-in workload ({NO_RULES})"
            return f"{what}: {self.minutes:.2f} minutes"
        unfinished = self.forecast is not None and self.forecast.get("can_become_valid")
        return f"{'no valid score yet' if unfinished else 'no valid score'}: {'; '.join(self.reasons)}"

    def to_json(self) -> dict[str, Any]:
        document = {
            "directory": self.directory,
            "benchmark": self.benchmark,
            "round": self.ruleset,
            "round_from": self.ruleset_from,
            "division": self.division,
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
            "valid": self.valid,
            "verdict": self.verdict,
            "reasons": self.reasons,
            "notes": self.notes,
            "unscored_attempts": self.unscored,
            "pending_runs": self.pending,
            "window": self.window,
            "forecast": self.forecast,
            "why": self.why,
        }
        return plain(document)


def plain(value: Any) -> Any:
    """`value` with what JSON cannot say (NaN, infinity) as None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def score_dir(directory: str, *, ruleset: str = "", window: bool = False, minutes_left: float | None = None) -> Score:
    """Score the set in `directory` by the rules of `ruleset` (guessed when empty).

    `window` applies the median-window rule to a folder with more runs than a submission has (a set folder always gets
    it); `minutes_left` is the time that an unfinished set still has. Raises InputError.
    """
    source = find_source(directory)
    return score_source(source, ruleset=ruleset, window=window, minutes_left=minutes_left)


def score_source(
    source: Source, *, ruleset: str = "", window: bool = False, minutes_left: float | None = None
) -> Score:
    """As `score_dir`, for logs that were found already."""
    logs = read_logs(source)
    named, why = _ruleset(ruleset, source, logs)
    round_rules = rules(named)
    runs = [score_run(run, log, round_rules) for run, log in logs]
    logs.clear()
    score = score_runs(source.directory, runs, round_rules, why, source)
    _add_outlook(score, source, round_rules, window, minutes_left)
    return score


def read_logs(source: Source) -> list[tuple[RunFile, Log]]:
    """Read all logs of a set. Raises InputError for a file that cannot be read."""
    shapes = Shapes()
    logs = []
    for run in source.files:
        try:
            logs.append((run, read_log(run.path, shapes=shapes)))
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(
                f"{run.path}: cannot be read: {error}", hint="copy the file again from where it was written"
            ) from error
    return logs


def _ruleset(wanted: str, source: Source, logs: list[tuple[RunFile, Log]]) -> tuple[str, str]:
    if wanted:
        return chosen_round(wanted), "--ruleset"
    if named := source.described.get("ruleset"):
        return chosen_round(str(named)), "set.json"
    starts = [start for _, log in logs if (start := log.start_stop[0]) is not None]
    return guess_round(next((log.benchmark for _, log in logs if log.benchmark is not None), None), starts)


def score_run(run: RunFile, log: Log, round_rules: Rules) -> RunScore:
    """One log by the rules of a round."""
    reading = convergence(log)
    builtin = reading.benchmark == BUILT_IN
    return RunScore(
        run, log, reading, _builtin_findings(run, log) if builtin else check_log(log, round_rules, name=run.name)
    )


def _builtin_findings(run: RunFile, log: Log) -> Compliance:
    """MLCommons has no rules for it: a run is good when it says when it began and ended, and that it succeeded."""
    findings = []
    if log.minutes is None:
        findings.append(Finding(run.name, 0, "run_stop", "logged", "`run_start` or `run_stop` is missing"))
    elif log.status != "success":
        findings.append(Finding(run.name, 0, "run_stop", "status", f"the run ended with status {log.status!r}"))
    return Compliance(findings)


def score_runs(
    directory: str, runs: list[RunScore], round_rules: Rules, ruleset_from: str = "", source: Source | None = None
) -> Score:
    """The score of a list of runs, in the order given. Sets each run's `use`."""
    score = Score(directory, runs, round_rules.ruleset, ruleset_from)
    score.seed_findings = check_seeds([run.seeds for run in runs])
    if source:
        score.unscored, score.pending = source.unscored, source.pending
        score.benchmark = score.benchmark if score.benchmark is not None else source.described.get("benchmark")
    score.runs_required = _runs_required(score, round_rules, source)
    good = [run.minutes for run in runs if run.good and run.minutes is not None]
    score.olympic_mean = olympic_mean(good, len(runs) - len(good), score.dropped)
    mark_uses(score)
    if runs and not score.is_builtin and score.division == "closed":
        score.rcp = rcp_test(score)
    score.reasons = _reasons(score, round_rules)
    score.notes = _notes(score)
    return score


def _runs_required(score: Score, round_rules: Rules, source: Source | None) -> int:
    if not score.is_builtin:
        return round_rules.benchmarks.get(score.benchmark, 10) if isinstance(score.benchmark, str) else 10
    wanted = source.described.get("nexp") if source else None
    return wanted if isinstance(wanted, int) else max(3, len(score.runs))


def mark_uses(score: Score) -> None:
    """Set what becomes of each run of a set in its olympic mean."""
    ordered = sorted((run for run in score.runs if run.good), key=lambda run: run.minutes or 0.0)
    slowest = len(ordered) - max(0, score.dropped - (len(score.runs) - len(ordered)))
    for run in score.runs:
        run.use = "bad"
    for index, run in enumerate(ordered):
        run.use = "fastest" if index < score.dropped else "counted" if index < slowest else "slowest"


def rcp_test(score: Score) -> RcpResult:
    """The RCP test of a set's runs, as the referee calls it."""
    runs = score.runs
    if refused := next((run for run in runs if run.refused), None):
        return RcpResult(False, f"{refused.file}: {refused.refused}", refused=True)
    if mixed := _mixed(score):
        return RcpResult(False, mixed, refused=True)
    points = table(score.ruleset, score.benchmark) if isinstance(score.benchmark, str) else None
    if points is None:
        return RcpResult(False, f"there is no RCP table for {score.benchmark!r} in round {score.ruleset}", refused=True)
    failed = sum(not run.converged for run in runs)
    samples = None if failed > score.dropped else [FAILED if run.samples is None else run.samples for run in runs]
    return points.check(score.batch_size, samples)


def _mixed(score: Score) -> str:
    """Different batch sizes or benchmarks in one set, which the referee refuses."""
    for what, get in (("batch sizes", lambda run: run.batch_size), ("benchmarks", lambda run: run.benchmark)):
        first = get(score.runs[0]) if score.runs else None
        for run in score.runs:
            if get(run) != first:
                return f"different {what} in one set: {first!r} in {score.runs[0].file}, {get(run)!r} in {run.file}"
    return ""


def _reasons(score: Score, round_rules: Rules) -> list[str]:
    """Why there is no valid score; empty when there is one."""
    reasons = []
    if len(score.runs) != score.runs_required:
        unit = "runs" if score.is_builtin else "result files"
        reasons.append(f"{len(score.runs)} {unit}, exactly {score.runs_required} are needed")
    if not score.is_builtin and not _listed(score.benchmark, round_rules):
        known = ", ".join(round_rules.benchmarks)
        reasons.append(f"the benchmark is {score.benchmark!r}; round {score.ruleset} has {known}")
    if fatal := next((run for run in score.runs if run.fatal), None):
        finding = next(finding for finding in fatal.findings if finding.severity == FATAL)
        reasons.append(f"mlperf-logging cannot read {fatal.file} ({finding.message})")
    bad = [run.file for run in score.runs if run.use == "bad"]
    if len(bad) > score.dropped:
        reasons.append(f"{len(bad)} bad runs ({', '.join(bad)}), {score.dropped} allowed")
    elif score.olympic_mean is None:
        reasons.append("no run is left to average")
    if not score.is_builtin and score.division == "closed":
        if not score.seeds_ok:
            first = next(finding for finding in score.seed_findings if finding.severity != WARNING)
            reasons.append(f"the seed check fails: {first.file}: {first.message}")
        if score.rcp and not score.rcp.passed:
            reasons.append(f"the RCP test fails: {_rcp_reason(score.rcp)}")
    return reasons


def _listed(benchmark: Any, round_rules: Rules) -> bool:
    return isinstance(benchmark, str) and benchmark in round_rules.benchmarks


def _rcp_reason(result: RcpResult) -> str:
    if result.point is None or result.submission_mean is None or result.message.startswith("Missing"):
        return result.message
    return (
        f"{result.message}, but the set converges faster than the reference allows "
        f"(mean {result.submission_mean:.1f}, at least {result.point.limit:.1f} is needed)"
    )


def _notes(score: Score) -> list[str]:
    notes = []
    if score.is_builtin:
        notes.append(NO_RULES)
    elif score.division == "open":
        notes.append("open division: the seed check and the RCP test do not apply")
    if any(run.stand_in for run in score.runs):
        notes.append("stand-in: these runs rehearse the benchmark with a small workload; they are no result of it")
    if score.pending and len(score.runs) >= score.runs_required:
        notes.append(f"{len(score.pending)} more runs of this set are still to come")
    for run in score.runs:
        if run.minutes is not None and run.minutes <= 0:
            notes.append(
                f"{run.file}: `run_stop` is stamped before `run_start` ({run.minutes:.2f} minutes); "
                "the referee takes it as it is"
            )
    return notes


def _add_outlook(score: Score, source: Source, round_rules: Rules, window: bool, minutes_left: float | None) -> None:
    """The parts that only some sets need, imported only then."""
    if len(score.runs) > score.runs_required:
        from orchestrator.mllog.window import apply_window

        apply_window(score, round_rules, adopt=window or source.is_set)
    elif len(score.runs) < score.runs_required:
        from orchestrator.mllog.forecast import forecast

        score.forecast = forecast(score, minutes_left)
    from orchestrator.mllog.slowness import explain

    score.why = explain(score)
