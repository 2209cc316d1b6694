"""A report as CSV: one row per run, numbers as numbers, and no cell that a spreadsheet would take for a formula."""

from __future__ import annotations

import csv
import io

from orchestrator.report.figures import moment
from orchestrator.report.markup import clean
from orchestrator.report.model import Report, Run

HEADER = (
    "run",
    "file",
    "use",
    "minutes",
    "samples",
    "samples_per_second",
    "seed",
    "status",
    "converged",
    "compliant",
    "started_utc",
    "run_start_ms",
    "run_stop_ms",
    "initialisation_minutes",
    "evaluations",
    "last_evaluation",
    "benchmark",
    "round",
    "score_minutes",
    "valid",
)


def spreadsheet(report: Report) -> str:
    """The text of the file, with CRLF line ends as RFC 4180 has them."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(HEADER)
    score = report.score
    whole = [
        safe(score.benchmark),
        safe(score.ruleset),
        "" if score.minutes is None else score.minutes,
        int(score.valid),
    ]
    for run in report.runs:
        writer.writerow([*_row(run), *whole])
    return out.getvalue()


def safe(value: object) -> str:
    """Text that no spreadsheet evaluates: a leading = + - @ or white space gets an apostrophe before it."""
    text = "" if value is None else " ".join(clean(value).split())
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _whole(value: float | None) -> object:
    """A count or a time stamp: a log may hold it with a fraction of nothing."""
    return "" if value is None else int(value) if value == int(value) else value


def _row(run: Run) -> list[object]:
    rate = run.samples / (run.minutes * 60) if run.samples and run.minutes and run.minutes > 0 else ""
    start = (run.start_ms - run.init_ms) / 60000 if run.start_ms is not None and run.init_ms is not None else ""
    last = run.evaluations[-1].value if run.evaluations else ""
    numbers = ["" if run.minutes is None else run.minutes, _whole(run.samples)]
    return [
        safe(run.label),
        safe(run.file),
        run.use,
        *numbers,
        rate,
        safe(run.seed),
        safe(run.status),
        int(run.converged),
        int(run.compliant),
        moment(run.start_ms) if run.start_ms else "",
        _whole(run.start_ms),
        _whole(run.stop_ms),
        start,
        len(run.evaluations),
        last,
    ]
