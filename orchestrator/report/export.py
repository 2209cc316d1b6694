"""Runs for Parquet and for MLflow's tracking. Their packages come with the extra `export`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from orchestrator.errors import OrchestratorError, UsageError
from orchestrator.report.columns import COLUMNS, Cell, rows
from orchestrator.report.model import Report, Run

RUN_TAG = "orchestrator.run"
"""Tag in MLflow, `<set>/<run>`: an existing run is not written again."""


def _package(name: str, what: str) -> Any:
    """Import a package of the extra. Raises UsageError if missing."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            f"{what} needs the package {name.partition('.')[0]}, which is not installed here "
            f"({error})",
            hint=(
                "install the command with it, such as pip install '.[export]' in its "
                "environment; CSV needs nothing"
            ),
        ) from error


def parquet(reports: Iterable[Report]) -> bytes:
    """Return a Parquet file with COLUMNS, described in its metadata."""
    arrow, writer = _package("pyarrow", "Parquet"), _package("pyarrow.parquet", "Parquet")
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    schema = arrow.schema(
        [
            arrow.field(column.name, kinds[column.kind], metadata={"text": column.text})
            for column in COLUMNS
        ]
    )
    table = [
        dict(zip(schema.names, row, strict=True)) for report in reports for row in rows(report)
    ]
    out = BytesIO()
    writer.write_table(arrow.Table.from_pylist(table, schema=schema), out)
    return out.getvalue()


def check_address(address: str) -> None:
    """Raise UsageError for an invalid address, or one with a user, token or password: everybody on
    this host can read command lines."""
    try:
        parts = urlsplit(address)
        login = bool(parts.password or (parts.username and parts.scheme.startswith("http")))
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"this is no address of MLflow: {error}") from error
    if login:
        raise UsageError(
            "the address of MLflow has a user, token or password in it",
            hint=(
                "put it into the environment: MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD "
                "or MLFLOW_TRACKING_TOKEN"
            ),
        )


class Tracking:
    """An MLflow store or server. Runs become runs of the benchmark's experiment.

    Numbers are metrics, texts are parameters, evaluations the metric `evaluation` over samples.
    """

    def __init__(self, address: str) -> None:
        """Raise UsageError without the package, OrchestratorError if MLflow cannot use the
        address."""
        check_address(address)
        os.environ.setdefault(
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2"
        )  # its own 7 are four minutes of silence
        self.address = address
        self._entities = _package("mlflow.entities", "MLflow")
        self._client = self._ask(_package("mlflow", "MLflow").MlflowClient, tracking_uri=address)

    def put(self, report: Report) -> int:
        """Write the new runs; return their number. Raises OrchestratorError."""
        known = self._ask(self._client.get_experiment_by_name, str(report.score.benchmark))
        home = (
            known.experiment_id
            if known
            else self._ask(self._client.create_experiment, str(report.score.benchmark))
        )
        fresh = 0
        for run, row in zip(report.runs, rows(report), strict=True):
            values = dict(zip((column.name for column in COLUMNS), row, strict=True))
            name = f"{values['set']}/{values['run']}".replace("'", "")  # filters cannot express it
            where = f"tags.`{RUN_TAG}` = '{name}'"
            if not self._ask(self._client.search_runs, [home], filter_string=where, max_results=1):
                self._put(home, name, run, values)
                fresh += 1
        return fresh

    def _put(self, home: str, name: str, run: Run, values: dict[str, Cell]) -> None:
        begin, end = (
            None if time_ms is None else round(time_ms) for time_ms in (run.start_ms, run.stop_ms)
        )
        made = self._ask(
            self._client.create_run,
            home,
            start_time=begin,
            run_name=name,
            tags={RUN_TAG: name, "orchestrator.set": str(values["set"])},
        )
        numbers = {name: value for name, value in values.items() if isinstance(value, (int, float))}
        metrics = [
            self._entities.Metric(name, float(value), end or begin or 0, 0)
            for name, value in numbers.items()
        ]
        metrics += [
            self._entities.Metric(
                "evaluation",
                point.value,
                int((begin or 0) + point.minutes * 60000),
                int(point.samples),
            )
            for point in run.evaluations
        ]
        texts = [
            self._entities.Param(name, value)
            for name, value in values.items()
            if isinstance(value, str) and value
        ]
        self._ask(self._client.log_batch, made.info.run_id, metrics=metrics, params=texts)
        self._ask(
            self._client.set_terminated,
            made.info.run_id,
            "FINISHED" if run.converged else "FAILED",
            end_time=end,
        )

    def _ask(self, call: Any, *args: Any, **named: Any) -> Any:
        """Call MLflow, whose errors are of many kinds."""
        try:
            return call(*args, **named)
        except Exception as error:
            lines = str(error).strip().splitlines()[:1]
            raise OrchestratorError(
                f"MLflow at {self.address}: {lines[0][:500] if lines else type(error).__name__}",
                hint="runs that are there are not written again: the same command continues",
            ) from error
