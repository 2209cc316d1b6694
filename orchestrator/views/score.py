"""The parts of a score, and its findings as lines."""

from __future__ import annotations

from orchestrator.mllog.numbers import finite
from orchestrator.mllog.result import USES, RunScore, Score
from orchestrator.mllog.source import natural
from orchestrator.views.figures import MISSING, Unit, moment, plain, unit_of_runs
from orchestrator.views.parts import Bullets, Cell, Headline, Sentences, Table
from orchestrator.words import cell, count, quoted, train_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from orchestrator.views.parts import Part

FEW_FINDINGS = 12
"""Findings next to a score; `score --compliance` lists all."""


def score_parts(score: Score, against: Sequence[str] = (), command: str = "") -> list[Part]:
    """Return verdict, sentences next to it (`against` published results), runs, derivation, and
    the next `command`."""
    forecast = score.forecast["text"] if score.forecast else ()
    notes: list[str | Cell] = [f"note: {note}" for note in score.notes]
    return [
        score_headline(score, [*against, score.directory, about(score)]),
        scored_runs(score.runs),
        Sentences([*_unscored(score), *_arithmetic(score)]),
        Bullets(_findings(score), "findings"),
        Bullets(forecast, "forecast"),
        Bullets([item["text"] for item in score.why], "where the time goes"),
        Bullets([*notes, *([Cell(command, code=True)] if command else [])]),
    ]


def score_headline(score: Score, under: Sequence[str] = ()) -> Headline:
    """Return the verdict with sentences `under` it. A rehearsal looks neither good nor bad."""
    tone = "" if score.no_result else "good" if score.valid else "bad"
    return Headline(score.outcome, tone, under, score.reasons)


def about(score: Score) -> str:
    """Return benchmark, rules, division and batch size."""
    batch = logged(None if score.batch_size == -1 else score.batch_size)
    division = f"{score.division} division" if score.division else ""
    what = [benchmark_text(score), score.rules_text, division]
    return " · ".join([*filter(None, what), f"batch size {batch}"])


def benchmark_text(score: Score) -> str:
    return str(score.benchmark or "unknown benchmark")


def score_facts(score: Score, unit: Unit) -> list[tuple[str, str]]:
    """Return the figures of a score by name, times in `unit`; not those of about()."""
    result = score.rcp
    pairs = [
        ("runs", f"{len(score.runs)} of {score.runs_required}"),
        ("olympic mean", unit.full(score.olympic_mean)),
        ("normalisation factor", MISSING if score.factor is None else f"{score.factor:.6f}"),
        ("RCP test", result.verdict if result else "does not apply"),
        ("seeds", _seeds(score, "all different", "check fails", "does not apply")),
    ]
    mean = result.shown_mean if result else None
    if result and result.point and mean is not None:
        pairs += [
            ("samples to converge", plain(mean)),
            ("samples / reference", f"{mean / result.point.mean:.3f}"),
        ]
    return pairs


def scored_runs(runs: Sequence[RunScore]) -> Table:
    labels = run_labels(runs)
    unit = unit_of_runs(finite(run.minutes) for run in runs)
    return Table(
        "Time to train of each run",
        ("run", "status", "time to train", "samples", "seed", "use", "started", "file"),
        [[labels[run.file], *_row(run, unit), run.file] for run in runs],
        numeric=(2, 3, 4),
        states=(1,),
        # Reasons and findings name the file: it is never dropped.
        under=("file",),
        leave=("started", "seed", "file"),
    )


def _row(run: RunScore, unit: Unit) -> list[str]:
    doubt = ", not compliant" if not run.compliant and run.use != "bad" else ""
    return [
        "no run_stop" if run.status is None else logged(run.status),
        unit.full(finite(run.minutes)),
        plain(finite(run.samples)),
        logged(run.seed),
        USES.get(run.use, run.use) + doubt,
        moment(run.start),
    ]


def run_labels(runs: Sequence[RunScore]) -> dict[str, str]:
    """Return file name -> the run's number, if all differ, else the file name."""
    digits = {
        run.file: str(run.number if run.number is not None else natural(run.file)[1])
        for run in runs
    }
    short = len(set(digits.values())) == len(runs) and all(
        not text.startswith("-") for text in digits.values()
    )
    return digits if short else {run.file: run.file for run in runs}


def logged(value: Any) -> str:
    """Return a value of a log with all its digits; a missing or blank one as MISSING."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    text = "" if value is None else str(value)
    return text if text.strip() else MISSING


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
        mean = result.shown_mean
        if result.point and mean is not None:
            lines.append(
                f"  samples to converge {mean:.1f}, reference "
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


def _seeds(score: Score, good: str, bad: str, unchecked: str) -> str:
    return unchecked if score.division == "open" else good if score.seeds_ok else bad


def check_text(score: Score) -> str:
    """Return a set's findings, one per line."""
    findings = score.findings
    bad = sum(not run.compliant for run in score.runs)
    seeds = _seeds(score, "seeds ok", "seed check fails", "no seed check")
    rules = "the workload's own rules, not MLPerf's" if score.own else f"round {score.ruleset}"
    what = f"{score.directory}: {benchmark_text(score)}, {rules}"
    differing = f", {count(len(score.differences), 'differing value')}" if score.differences else ""
    what = f"rehearsal: {what}" if score.no_result else what
    bad_runs = f"{bad} {'bad' if score.own else 'not compliant'}"
    summary = f"{what}: {count(len(score.runs), 'file')}, {bad_runs}, {seeds}{differing}"
    return "\n".join(map(cell, (*findings, summary)))
