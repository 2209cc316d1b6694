"""The parts of a score, and its findings as lines."""

from __future__ import annotations

from orchestrator.mllog.result import USES, RunScore, Score
from orchestrator.views.parts import Bullets, Cell, Headline, Sentences, Table
from orchestrator.words import cell, count, quoted, train_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from orchestrator.views.parts import Part

FEW_FINDINGS = 12
"""Findings next to a score; `score --compliance` lists all."""


def score_parts(score: Score, beside: Sequence[str] = (), command: str = "") -> list[Part]:
    """Return verdict, sentences `beside` it, runs, derivation, and the next `command`."""
    # A rehearsal does not look like a result: neither green nor red.
    tone = "" if score.no_result else "good" if score.valid else "bad"
    forecast = score.forecast["text"] if score.forecast else ()
    notes: list[str | Cell] = [f"note: {note}" for note in score.notes]
    return [
        Headline(score.verdict, tone, [*beside, score.directory, _about(score)]),
        run_table(score.runs),
        Sentences([*_unscored(score), *_arithmetic(score)]),
        Bullets(_findings(score), "findings"),
        Bullets(forecast, "forecast"),
        Bullets([item["text"] for item in score.why], "where the time goes"),
        Bullets([*notes, *([Cell(command, code=True)] if command else [])]),
    ]


def _about(score: Score) -> str:
    batch = number(None if score.batch_size == -1 else score.batch_size)
    division = f"{score.division} division" if score.division else ""
    what = [str(score.benchmark), score.rules_text, division]
    return " · ".join([*filter(None, what), f"batch size {batch}"])


def run_table(runs: Sequence[RunScore]) -> Table:
    return Table(
        "Runs",
        ("file", "status", "time to train", "samples", "seed", "use"),
        [_row(run) for run in runs],
        numeric=(2, 3, 4),
        states=(1,),
        leave=("seed",),
    )


def _row(run: RunScore) -> list[str]:
    status = str(run.status) if run.status is not None else "no run_stop"
    remark = "" if run.use == "counted" else USES.get(run.use, run.use)
    if not run.compliant and run.use != "bad":
        remark = "not compliant"
    return [
        run.file,
        status,
        train_time(run.minutes),
        number(run.samples),
        number(run.seed),
        remark,
    ]


def number(value: Any, digits: int = 0) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "-" if value is None else str(value)
    return (
        f"{value:.{digits}f}"
        if digits
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _unscored(score: Score) -> list[str]:
    return [
        f"{attempt['outcome']}: run {attempt['run']}, attempt {attempt['attempt']}: "
        f"{attempt['reason']} (not scored)"
        for attempt in score.unscored
    ]


def _arithmetic(score: Score) -> list[str]:
    lines = []
    if score.olympic_mean is not None:
        counted = sum(run.use == "counted" for run in score.runs)
        lines.append(f"olympic mean of {count(counted, 'run')}: {train_time(score.olympic_mean)}")
    if result := score.rcp:
        lines.append(f"RCP test {result.verdict}")
        if result.point and result.submission_mean is not None:
            lines.append(
                f"  samples to converge {result.submission_mean:.1f}, reference "
                f"{result.point.mean:.1f}, "
                f"at least {result.point.limit:.1f} needed"
            )
        if result.passed and score.valid:
            lines.append(
                f"score: {train_time(score.olympic_mean)} x {result.factor:.6f} = "
                f"{train_time(score.minutes)}"
            )
    return lines


def _findings(score: Score) -> list[str]:
    findings = score.findings
    shown = [str(finding) for finding in findings[:FEW_FINDINGS]]
    if len(findings) > FEW_FINDINGS:
        shown.append(
            f"and {len(findings) - FEW_FINDINGS} more: orchestrator score --compliance "
            f"{quoted(score.directory)}"
        )
    return shown


def check_text(score: Score) -> str:
    """Return a set's findings, one per line."""
    findings = score.findings
    bad = sum(not run.compliant for run in score.runs)
    seeds = "seeds ok" if score.seeds_ok else "seed check fails"
    rules = "the workload's own rules, not MLPerf's" if score.own else f"round {score.ruleset}"
    what = f"{score.directory}: {score.benchmark}, {rules}"
    differing = f", {count(len(score.differences), 'differing value')}" if score.differences else ""
    what = f"rehearsal: {what}" if score.no_result else what
    bad_runs = f"{bad} {'bad' if score.own else 'not compliant'}"
    summary = f"{what}: {count(len(score.runs), 'file')}, {bad_runs}, {seeds}{differing}"
    return "\n".join(map(cell, (*findings, summary)))
