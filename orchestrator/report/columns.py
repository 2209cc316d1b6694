"""Runs as a table: the columns of CSV, Parquet and MLflow, with descriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.mllog.numbers import finite
from orchestrator.report.model import Report, Run
from orchestrator.views.figures import moment
from orchestrator.views.markup import clean

EXACT = 2.0**53
"""Larger floating-point numbers are no exact whole numbers."""

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Column:
    """`kind` is str, int, float or bool; `text` describes it with its unit
    (docs/reference/runs.md)."""

    name: str
    kind: type
    text: str
    of: Callable[[Report, Run], Any]

    def cell(self, report: Report, run: Run) -> Cell:
        """Return a run's value, of this kind; None if unknown."""
        value = self.of(report, run)
        if value is None:
            return None
        if self.kind is str:
            return " ".join(clean(str(value)).split())
        if self.kind is bool:
            return bool(value)
        number = finite(value)
        if number is None or self.kind is float:
            return number
        return round(value) if abs(value) < EXACT else None


def _rate(_: Report, run: Run) -> float | None:
    return (
        run.samples / (run.minutes * 60)
        if run.samples and run.minutes and run.minutes > 0
        else None
    )


def _initialisation(_: Report, run: Run) -> float | None:
    return (
        (run.start_ms - run.init_ms) / 60000
        if run.start_ms is not None and run.init_ms is not None
        else None
    )


def _gpus(report: Report, _: Run) -> int | None:
    nodes, each = report.described.get("nodes"), report.described.get("gpus_per_node")
    return nodes * each if isinstance(nodes, int) and isinstance(each, int) and each else None


def _described(name: str) -> Callable[[Report, Run], Any]:
    return lambda report, _: report.described.get(name)


COLUMNS = (
    Column("set", str, "id of the set; of plain logs the folder's name",
           lambda report, _: report.described.get("set_id") or Path(report.directory).name),
    Column("system", str, "the system", lambda report, _: report.system),
    Column("workload", str, "the workload; empty for plain logs", _described("workload")),
    Column("benchmark", str, "MLPerf's name of the benchmark, as the logs have it",
           lambda report, _: report.score.benchmark),
    Column("round", str, "whose rules count; `own`: the workload's own",
           lambda report, _: report.score.ruleset),
    Column("nodes", int, "nodes of a run", _described("nodes")),
    Column("gpus", int, "GPUs of a run, of all its nodes", _gpus),
    Column("run", str, "number of the run in its set, or its file's name",
           lambda _, run: run.label),
    Column("file", str, "the log", lambda _, run: run.file),
    Column("use", str,
           "`counted`; dropped as `fastest` or `slowest`; `bad`, in its place; `outside` of the "
           "median window",
           lambda _, run: run.use),
    Column("minutes", float, "time to train, run_stop − run_start; minutes",
           lambda _, run: run.minutes),
    Column("samples", float, "samples until the target was reached; empty when it was not",
           lambda _, run: run.samples),
    Column("samples_per_second", float, "samples over time to train, evaluations included; 1/s",
           _rate),
    Column("seed", str,
           "the seed in the log; text, as it can be larger than a spreadsheet's numbers",
           lambda _, run: run.seed),
    Column("status", str, "of run_stop: `success` or `aborted`", lambda _, run: run.status),
    Column("converged", bool, "the target was reached", lambda _, run: run.converged),
    Column("compliant", bool, "no rule is broken that makes a run bad",
           lambda _, run: run.compliant),
    Column("started_utc", str, "run_start, UTC",
           lambda _, run: moment(run.start_ms) if run.start_ms else None),
    Column("run_start_ms", int, "run_start, Unix time; milliseconds", lambda _, run: run.start_ms),
    Column("run_stop_ms", int, "run_stop, Unix time; milliseconds", lambda _, run: run.stop_ms),
    Column("initialisation_minutes", float,
           "from init_start to run_start, not in the score; minutes",
           _initialisation),
    Column("evaluations", int, "evaluations in the log, at most 240",
           lambda _, run: len(run.evaluations)),
    Column("last_evaluation", float, "value of the last one, in the benchmark's metric",
           lambda _, run: run.evaluations[-1].value if run.evaluations else None),
    Column("target", float, "quality target, in the same metric", lambda report, _: report.target),
    Column("score_minutes", float,
           "score of the whole set, the same in all its rows; minutes; empty without one",
           lambda report, _: report.score.minutes),
    Column("valid", bool, "the set has a valid score", lambda report, _: report.score.valid),
    Column("edited", str,
           "files of the bundle that were edited, with `resume --edited`, before this run started; "
           "empty if none",
           lambda report, run: report.edited.get(run.file)),
    Column("rehearsal", bool, "no training ran: the set was played in a simulation",
           lambda report, _: report.score.rehearsed),
    Column("stand_in", bool, "a small stand-in workload ran, not the benchmark",
           lambda report, _: report.score.stand_in),
)  # fmt: skip
"""docs/reference/runs.md is made from them."""


def rows(report: Report) -> Iterator[tuple[Cell, ...]]:
    for run in report.runs:
        yield tuple(column.cell(report, run) for column in COLUMNS)
