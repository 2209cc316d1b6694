"""The decisions over a set's runs: which count, the RCP test, and every reason against a score.

They are the referee's; those of a workload's own rules are in `own`.
"""

from __future__ import annotations

from orchestrator.mllog.compliance import FATAL, WARNING, check_log
from orchestrator.mllog.convergence import Convergence, convergence
from orchestrator.mllog.olympic import dropped_per_side, olympic_mean
from orchestrator.mllog.own import (
    NO_RULES,
    OwnReading,
    OwnRules,
    check_own,
    check_own_seeds,
    own_runs_required,
)
from orchestrator.mllog.rcp import FAILED, RcpResult, table
from orchestrator.mllog.result import RunScore, Score
from orchestrator.mllog.seeds import RunSeeds, check_seeds
from orchestrator.mllog.shipped import OWN
from orchestrator.mllog.source import REHEARSAL, REHEARSED, STAND_IN
from orchestrator.words import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from orchestrator.mllog.reader import Log
    from orchestrator.mllog.rules import Rules
    from orchestrator.mllog.source import RunFile, Source


def score_run(run: RunFile, log: Log, round_rules: Rules | OwnRules) -> RunScore:
    if isinstance(round_rules, OwnRules):
        reading: Convergence | OwnReading = OwnReading(log, round_rules)
        compliance = check_own(run, log, round_rules)
    else:
        reading, compliance = convergence(log), check_log(log, round_rules, name=run.name)
    start, stop = log.start_stop
    init, announced = log.first("init_start"), log.first("submission_benchmark")
    return RunScore(
        file=run.name,
        path=run.path,
        number=run.number,
        minutes=log.minutes,
        start=start,
        stop=stop,
        init_start=init.time if init else None,
        status=log.status,
        converged=reading.converged,
        samples=reading.samples if reading.converged else None,
        batch_size=reading.batch_size,
        benchmark=reading.benchmark,
        division=log.division,
        refused=reading.refused,
        seed=next((value for _, _, value in log.seeds), None),
        seeds=RunSeeds(run.name, log),
        evaluations=log.evaluations,
        throughput=log.throughput,
        stand_in=bool(
            announced
            and isinstance(announced.metadata, dict)
            and announced.metadata.get("stand_in") is True
        ),
        findings=tuple(compliance.findings),
        compliant=compliance.compliant,
        fatal=compliance.fatal,
        org=log.org,
        rehearsed=bool(
            announced
            and isinstance(announced.metadata, dict)
            and announced.metadata.get("file") == REHEARSAL
        ),
    )


def score_runs(
    directory: str,
    runs: Sequence[RunScore],
    round_rules: Rules | OwnRules,
    ruleset_from: str = "",
    source: Source | None = None,
) -> Score:
    """Return the score of runs in the given order, with each run's use."""
    described = source.described if source else {}
    benchmark = next(
        (run.benchmark for run in runs if run.benchmark is not None), described.get("benchmark")
    )
    good = [run.minutes for run in runs if run.good and run.minutes is not None]
    own_rules = round_rules if isinstance(round_rules, OwnRules) else None
    dropped = 1 if own_rules else dropped_per_side(benchmark)
    is_open = bool(runs) and all(run.division == "open" for run in runs)
    score = Score(
        directory=directory,
        runs=mark_uses(runs, dropped),
        ruleset=round_rules.ruleset,
        ruleset_from=ruleset_from,
        benchmark=benchmark,
        division="" if own_rules else "open" if is_open else "closed",
        runs_required=_runs_required(benchmark, len(runs), round_rules, described),
        olympic_mean=olympic_mean(good, len(runs) - len(good), dropped),
        seed_findings=tuple(
            check_own_seeds([(run.file, run.seed) for run in runs])
            if own_rules
            else ()
            if is_open
            else check_seeds([run.seeds for run in runs])
        ),
        unscored=list(source.unscored) if source else [],
        pending=list(source.pending) if source else [],
        awaited=list(source.awaited) if source else [],
        own=own_rules,
        rehearsed=any(run.rehearsed for run in runs) or (source is not None and source.rehearsed),
    )
    if runs and score.division == "closed":
        score = score.replace(rcp=rcp_test(score))
    return score.replace(reasons=tuple(reasons(score, round_rules)), notes=tuple(_notes(score)))


def _runs_required(
    benchmark: Any, runs: int, round_rules: Rules | OwnRules, described: dict[str, Any]
) -> int:
    if isinstance(round_rules, OwnRules):
        return own_runs_required(round_rules, runs, described.get("nexp"))
    return round_rules.benchmarks.get(benchmark, 10) if isinstance(benchmark, str) else 10


def mark_uses(runs: Sequence[RunScore], dropped: int) -> tuple[RunScore, ...]:
    """Return the runs with their use in the olympic mean, which drops `dropped` on each side; ""
    for good runs if nothing would be left."""
    ordered = sorted(
        (index for index, run in enumerate(runs) if run.good),
        key=lambda index: runs[index].minutes or 0.0,
    )
    slowest = len(ordered) - max(0, dropped - (len(runs) - len(ordered)))
    uses = ["bad"] * len(runs)
    for place, index in enumerate(ordered):
        use = "fastest" if place < dropped else "counted" if place < slowest else "slowest"
        uses[index] = use if slowest > dropped else ""
    return tuple(run.replace(use=use) for run, use in zip(runs, uses, strict=True))


def rcp_test(score: Score) -> RcpResult:
    """Run the RCP test as the referee calls it."""
    runs = score.runs
    if refused := next((run for run in runs if run.refused), None):
        return RcpResult(False, f"{refused.file}: {refused.refused}", refused=True)
    if mixed := _mixed(score):
        return RcpResult(False, mixed, refused=True)
    points = table(score.ruleset, score.benchmark) if isinstance(score.benchmark, str) else None
    if points is None:
        return RcpResult(
            False,
            f"there is no RCP table for {score.benchmark!r} in round {score.ruleset}",
            refused=True,
        )
    failed = sum(not run.converged for run in runs)
    samples = (
        None
        if failed > score.dropped
        else [FAILED if run.samples is None else run.samples for run in runs]
    )
    return points.check(score.batch_size, samples)


def _mixed(score: Score) -> str:
    """Return the differing batch sizes or benchmarks, which the referee refuses, or ""."""
    for what, name in (("batch sizes", "batch_size"), ("benchmarks", "benchmark")):
        first = getattr(score.runs[0], name) if score.runs else None
        for run in score.runs:
            if (value := getattr(run, name)) != first:
                return (
                    f"different {what} in one set: {first!r} in {score.runs[0].file}, {value!r} in "
                    f"{run.file}"
                )
    return ""


def reasons(score: Score, round_rules: Rules | OwnRules) -> list[str]:
    return [
        *_of_the_set(score, round_rules),
        *_of_the_runs(score),
        *_of_the_tests(score),
    ]


def still_to_come(score: Score) -> list[str]:
    """Return the reason against a score without all declared runs: a set does not end early because
    its score is good."""
    if not score.awaited or len(score.runs) < score.runs_required:
        return []
    more = count(len(score.awaited), "more run")
    return [f"{more} of this set still to come: a score needs all declared runs"]


def _of_the_set(score: Score, round_rules: Rules | OwnRules) -> list[str]:
    if isinstance(round_rules, OwnRules):
        missing = score.runs_required - len(score.runs)
        finished = f"{len(score.runs)} of {count(score.runs_required, 'run')} finished"
        return [finished] if missing > 0 else []
    reasons = []
    if len(score.runs) != score.runs_required:
        required = score.runs_required
        reasons.append(
            f"{len(score.runs)} of {count(required, 'run')} finished"
            if len(score.runs) < required
            else f"{count(len(score.runs), 'result file')}, exactly {required} are needed"
        )
    if not _listed(score.benchmark, round_rules):
        known = ", ".join(round_rules.benchmarks)
        reasons.append(
            f"the benchmark is {score.benchmark!r}; round {score.ruleset} has {known} "
            f"(what is no MLPerf benchmark is scored with --ruleset {OWN})"
        )
    return reasons


def _of_the_runs(score: Score) -> list[str]:
    reasons = []
    if fatal := next((run for run in score.runs if run.fatal), None):
        finding = next(finding for finding in fatal.findings if finding.severity == FATAL)
        reasons.append(f"mlperf-logging cannot read {fatal.file} ({finding.message})")
    bad = [run.file for run in score.runs if run.use == "bad"]
    if len(bad) > score.dropped:
        reasons.append(f"{count(len(bad), 'bad run')} ({', '.join(bad)}), {score.dropped} allowed")
    elif score.olympic_mean is None and len(score.runs) >= score.runs_required:
        reasons.append("no run can be averaged")
    return reasons


def _of_the_tests(score: Score) -> list[str]:
    reasons = []
    if not score.seeds_ok:
        first = next(finding for finding in score.seed_findings if finding.severity != WARNING)
        reasons.append(f"the seed check fails: {first.file}: {first.message}")
    if score.rcp and not score.rcp.passed:
        reasons.append(f"the RCP test fails: {_rcp_reason(score.rcp)}")
    return reasons


def _listed(benchmark: Any, round_rules: Rules) -> bool:
    return isinstance(benchmark, str) and benchmark in round_rules.benchmarks


def _rcp_reason(result: RcpResult) -> str:
    if (
        result.point is None
        or result.submission_mean is None
        or result.message.startswith("Missing")
    ):
        return result.message
    return (
        f"{result.message}, but the set converges faster than the reference allows "
        f"(mean {result.submission_mean:.1f}, at least {result.point.limit:.1f} is needed)"
    )


def _notes(score: Score) -> list[str]:
    notes = [REHEARSED] if score.rehearsed else []
    if score.own:
        notes.append(NO_RULES)
        if score.own.target is None:
            notes.append(
                "no target is known: every run that says success counts (--workload NAME gives the "
                "target)"
            )
    elif score.division == "open":
        notes.append("open division: the seed check and the RCP test do not apply")
    if score.stand_in:
        notes.append(STAND_IN)
    for run in score.runs:
        if run.minutes is not None and run.minutes <= 0 and not score.own:
            notes.append(
                f"{run.file}: `run_stop` is stamped before `run_start` ({run.minutes:.2f} "
                "minutes); "
                "the referee takes it as it is"
            )
    return notes
