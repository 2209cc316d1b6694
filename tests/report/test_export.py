"""`orchestrator export`: runs of many sets as one table, for spreadsheets and for other programs."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import shutil
from pathlib import Path

import outputs
import own_logs
import pytest
import set_of_logs as sets

from orchestrator.cli import main
from orchestrator.report.columns import COLUMNS
from orchestrator.report.spreadsheet import written

NAMES = [column.name for column in COLUMNS]


def has_extra() -> bool:
    return bool(importlib.util.find_spec("pyarrow") and importlib.util.find_spec("mlflow"))


@pytest.fixture
def log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A complete set of ten runs, one that a job has not closed, and a damaged one."""
    folder = tmp_path / "sets"
    whole = sets.make_set(folder, sets.logs(sets.MI355X))
    going = folder / whole.name.replace("-0001", "-0002")
    shutil.copytree(whole, going)
    record = json.loads((going / "jobs/7.json").read_text())
    (going / "jobs/7.json").write_text(json.dumps({**record, "state": "running", "ended_ms": 0}))
    (folder / "S-w-20260501-130000-0003").mkdir()
    (folder / "S-w-20260501-130000-0003/set.json").write_text("{")
    site = tmp_path / "site.yaml"
    site.write_text(f"scheduler: local\nlog_dir: {folder}\n")
    monkeypatch.setenv("ORCHESTRATOR_SITE", str(site))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return folder


def test_complete_sets_are_one_table(
    log_dir: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["export"]) == 0
    told = capsysbinary.readouterr()
    rows = list(csv.DictReader(io.StringIO(told.out.decode(), newline="")))
    assert list(rows[0]) == NAMES and told.out.count(b"\r\n") == 11
    assert [row["run"] for row in rows] == [str(number) for number in range(1, 11)]
    assert {row["set"] for row in rows} == {"MI355X_1x8x1-llama2_70b_lora-20260501-120000-0001"}
    first = rows[0]
    assert (first["system"], first["nodes"], first["gpus"], first["valid"]) == (
        "MI355X_1x8x1",
        "1",
        "8",
        "1",
    )
    span = (int(first["run_stop_ms"]) - int(first["run_start_ms"])) / 60000
    assert float(first["minutes"]) == pytest.approx(span)
    assert float(first["samples_per_second"]) == pytest.approx(int(first["samples"]) / span / 60)
    assert b"-0002: not finished" in told.err and b"-0003: damaged" in told.err


def test_named_sets_and_plain_logs(
    log_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    going = next(log_dir.glob("*-0002"))
    own = own_logs.own_set(tmp_path / "own", [own_logs.own_log(index, 0.5) for index in range(2)])
    out = tmp_path / "runs.csv"
    assert main(["export", str(going), str(own), str(sets.MI350X), "-o", str(out), "--json"]) == 0
    told = outputs.checked(capsys.readouterr().out)
    assert told == {
        "schema": 1,
        "kind": "export",
        "format": "csv",
        "output": str(out),
        "sets": 3,
        "runs": 22,
        "left_out": [],
    }
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert [row["round"] for row in rows[::10]] == ["5.1.0", "own", "5.1.0"]
    assert rows[-1]["set"] == sets.MI350X.name and rows[-1]["workload"] == rows[-1]["nodes"] == ""


def test_no_cell_is_a_formula(log_dir: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    log = next(log_dir.glob("*-0001/runs/1/result_1.txt"))
    log.write_bytes(log.read_bytes().replace(b'"success"', b'"=HYPERLINK(1)"'))
    assert main(["export"]) == 0
    assert b",'=HYPERLINK(1)," in capsysbinary.readouterr().out


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t=", "\r=", "\n=", " \t@"])
def test_a_text_that_a_spreadsheet_would_evaluate_is_marked(begin: str) -> None:
    assert written(f"{begin}1") == f"'{begin}1"
    assert written(f"x{begin}1") == f"x{begin}1"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--format", "mlflow"], "needs the address"),
        (["--format", "parquet"], "needs a file"),
        (["--json"], "-o runs.csv"),
        (["--format", "mlflow", "-o", "https://me:secret@example.org"], "MLFLOW_TRACKING_PASSWORD"),
        (["--format", "mlflow", "-o", "https://hf_secret@example.org"], "MLFLOW_TRACKING_PASSWORD"),
        (["--format", "mlflow", "-o", "http://me:secret@[::1"], "is no address of MLflow"),
        (["--format", "mlflow", "-o", "http://host:many"], "is no address of MLflow"),
        (["--site", "/nowhere.yaml"], "no file /nowhere.yaml"),
    ],
)
def test_what_cannot_be(
    log_dir: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", *words]) == 2
    told = capsys.readouterr()
    assert says in told.err and "secret" not in told.out + told.err
    assert outputs.checked(told.out)["kind"] == "error" if "--json" in words else told.out == ""


def test_nothing_to_export(log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(next(log_dir.glob("*-0001")))
    assert main(["export"]) == 5
    assert "not finished" in (err := capsys.readouterr().err) and "orchestrator status --all" in err


@pytest.mark.skipif(has_extra(), reason="the packages are installed")
@pytest.mark.parametrize(
    ("name", "to"), [("parquet", "runs.parquet"), ("mlflow", "http://127.0.0.1:9")]
)
def test_without_the_extra(
    log_dir: Path, name: str, to: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "--format", name, "-o", to]) == 2
    assert "not installed" in (err := capsys.readouterr().err) and "pip install" in err


@pytest.mark.long
@pytest.mark.skipif(not has_extra(), reason="needs the extra `export`, as `make long` installs it")
@pytest.mark.filterwarnings("default")  # theirs
def test_real_parquet_and_mlflow(
    log_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import pyarrow.parquet
    from mlflow import MlflowClient

    out = tmp_path / "runs.parquet"
    assert main(["export", "-o", str(out)]) == 0
    table = pyarrow.parquet.read_table(out)
    assert table.column_names == NAMES and table.num_rows == 10
    assert table.schema.field("minutes").metadata[b"text"].endswith(b"; minutes")
    row = table.to_pylist()[0]
    assert isinstance(row["run_start_ms"], int) and row["valid"] is True

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    address = (tmp_path / "mlruns").as_uri()
    words = ["export", "--format", "mlflow", "-o", address, "--json"]
    capsys.readouterr()
    assert main(words) == 0 and json.loads(capsys.readouterr().out)["runs"] == 10
    assert main(words) == 0 and json.loads(capsys.readouterr().out)["runs"] == 0, (
        "a second time writes nothing"
    )
    client = MlflowClient(tracking_uri=address)
    experiment = client.get_experiment_by_name("llama2_70b_lora")
    found = {one.info.run_name: one for one in client.search_runs([experiment.experiment_id])}
    assert len(found) == 10
    one = found[f"{row['set']}/1"]
    assert one.info.status == "FINISHED" and one.info.start_time == row["run_start_ms"]
    assert one.data.metrics["minutes"] == row["minutes"] and one.data.params["seed"] == row["seed"]
    curve = client.get_metric_history(one.info.run_id, "evaluation")
    assert len(curve) == row["evaluations"] and max(point.step for point in curve) == row["samples"]

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert main(["export", "--format", "mlflow", "-o", "http://127.0.0.1:9"]) == 2
    assert "MLflow at http://127.0.0.1:9: " in capsys.readouterr().err
