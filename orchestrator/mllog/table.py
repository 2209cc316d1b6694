"""Scores and findings as plain text."""

from __future__ import annotations

from orchestrator.mllog.result import USES, RunScore, Score
from orchestrator.words import PIPE, Screen, TextTable, cell, count, quoted, train_time, wrapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

RUNS = TextTable(
    "FILE", "STATUS", "TIME TO TRAIN", "SAMPLES", "SEED", "USE",
    right=("TIME TO TRAIN", "SAMPLES", "SEED"), states=("STATUS",), leave=("SEED",),
)  # fmt: skip


def number(value: Any, digits: int = 0) -> str:
    """Return a number for a table; a dash for None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "-" if value is None else str(value)
    return (
        f"{value:.{digits}f}"
        if digits
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def score_text(score: Score, screen: Screen = PIPE, beside: Sequence[str] = ()) -> str:
    """Return a set's report: the verdict, the lines `beside` it, its derivation."""
    batch = number(None if score.batch_size == -1 else score.batch_size)
    what = [
        str(score.benchmark),
        score.rules_text,
        f"{score.division} division" if score.division else "",
    ]
    head = [*beside, score.directory, " · ".join([*filter(None, what), f"batch size {batch}"]), ""]
    tail = [
        "",
        *(
            f"{one['outcome']}: run {one['run']}, attempt {one['attempt']}: {one['reason']} (not "
            "scored)"
            for one in score.unscored
        ),
    ]
    tail += [*_arithmetic(score), *_findings(score)]
    if score.forecast:
        tail += ["", "forecast:", *(f"  {line}" for line in score.forecast["text"])]
    if score.why:
        tail += ["", "where the time goes:", *(f"  {item['text']}" for item in score.why)]
    tail += [f"note: {note}" for note in score.notes]
    # A rehearsal does not look like a result: neither green nor red.
    colour = "1" if score.no_result else "1;32" if score.valid else "1;31"

    def prose(lines: Sequence[str]) -> list[str]:
        return [part for line in lines for part in wrapped(cell(line), screen.width)]

    verdict = [screen.paint(part, colour) for part in prose([score.verdict])]
    return "\n".join(
        [*verdict, *prose(head), *RUNS.lines(map(_row, score.runs), screen), *prose(tail)]
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
    if not findings:
        return []
    shown = [f"  {finding}" for finding in findings[:12]]
    if len(findings) > 12:
        shown.append(
            f"  and {len(findings) - 12} more: orchestrator score --compliance "
            f"{quoted(score.directory)}"
        )
    return ["", "findings:", *shown]


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
