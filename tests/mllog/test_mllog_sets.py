"""Scoring our own set folders (docs/set-folder.md), and unfinished ones."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from orchestrator.errors import InputError
from orchestrator.mllog.score import score_dir
from orchestrator.views.figures import unit_of_runs
from orchestrator.views.score import score_facts

MI355X = "v5.1/AMD/MI355X_EPYC_9575F_pytorch/llama2_70b_lora"


def state(folder: Path, **members: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state.json").write_text(json.dumps({"schema": 1, **members}), encoding="utf-8")


def make_set(folder: Path, logs: list[bytes], nexp: int, **described: Any) -> Path:
    folder.mkdir()
    document = {
        "schema": 1,
        "set_id": folder.name,
        "nexp": nexp,
        "benchmark": "llama2_70b_lora",
        "ruleset": "5.1.0",
        **described,
    }
    (folder / "set.json").write_text(json.dumps(document), encoding="utf-8")
    for number in range(1, nexp + 1):
        run = folder / "runs" / str(number)
        if number <= len(logs):
            state(run, run=number, attempt=1, state="success", outcome="success")
            (run / f"result_{number}.txt").write_bytes(logs[number - 1])
        else:
            state(run, run=number, attempt=0, state="queued", outcome="")
    return folder


@pytest.fixture
def logs(published: dict[str, Path]) -> list[bytes]:
    return [(published[MI355X] / f"result_{index}.txt").read_bytes() for index in range(10)]


def test_a_complete_set_folder_scores_like_the_folder_of_its_logs(
    logs: list[bytes], published: dict[str, Path], tmp_path: Path
) -> None:
    score = score_dir(str(make_set(tmp_path / "set", logs, 10)))
    assert score.minutes == score_dir(str(published[MI355X])).minutes
    assert (score.ruleset, score.ruleset_from) == ("5.1.0", "set.json")
    assert [run.file for run in score.runs] == [f"result_{number}.txt" for number in range(1, 11)]


def test_failed_attempts_are_listed_and_not_scored(
    logs: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_set(tmp_path / "set", logs, 10)
    state(
        folder / "runs" / "3" / "attempt_1",
        run=3,
        attempt=1,
        state="failed",
        outcome="infrastructure",
        reason="node n2 is gone",
    )
    state(folder / "runs" / "3" / "attempt_2", run=3, attempt=2, state="success", outcome="success")
    score = score_dir(str(folder))
    assert score.valid
    assert score.unscored == [
        {"run": 3, "attempt": 1, "outcome": "infrastructure", "reason": "node n2 is gone"}
    ]
    assert main(["score", str(folder)]) == 0
    assert (
        "infrastructure: run 3, attempt 1: node n2 is gone (not scored)" in capsys.readouterr().out
    )


def test_a_compressed_result_does_not_count(logs: list[bytes], tmp_path: Path) -> None:
    """No job writes one, and the ledger has none."""
    folder = make_set(tmp_path / "set", logs[:9], 10)
    (folder / "runs/10/result_10.txt.gz").write_bytes(gzip.compress(logs[9]))
    score = score_dir(str(folder))
    assert score.pending == [10] and len(score.runs) == 9 and not score.valid


def test_a_result_of_a_lost_run_does_not_count(logs: list[bytes], tmp_path: Path) -> None:
    folder = make_set(tmp_path / "set", logs, 10)
    state(
        folder / "runs" / "5",
        run=5,
        attempt=3,
        state="failed",
        outcome="infrastructure",
        reason="hung",
    )
    score = score_dir(str(folder))
    assert score.pending == [5] and len(score.runs) == 9 and not score.valid


def test_an_unfinished_set_gets_the_forecast(
    logs: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_set(tmp_path / "set", logs[:4], 10)
    assert main(["score", str(folder), "--minutes-left", "20"]) == 1
    text = capsys.readouterr().out
    assert "6 of 10 runs have no result; at most 1 may miss the target" in text
    assert "IT DOES NOT FIT" in text and "chance to pass the RCP test" in text
    assert text.splitlines()[0].startswith("no valid score yet: 4 of 10 runs finished")


def test_runs_without_a_time_have_no_draws(logs: list[bytes], tmp_path: Path) -> None:
    still = [re.sub(rb'"time_ms": [0-9]+', b'"time_ms": 1755000000000', log) for log in logs[:2]]
    still = [re.sub(rb'"samples_count": [0-9]+', b'"samples_count": 0', log) for log in still]
    score = score_dir(str(make_set(tmp_path / "set", still, 10)))
    assert score.forecast and [run.minutes for run in score.runs] == [0, 0] and score.compliant
    assert "valid_chance" not in score.forecast and score.forecast["minutes_needed"] == 0


@pytest.mark.parametrize("text", ["inf", "nan", "1e400", "-3", "soon"])
def test_the_time_left_is_a_number(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["score", str(tmp_path), f"--minutes-left={text}"])
    assert f"'{text}' is not a time in minutes" in capsys.readouterr().err


def test_a_set_without_any_result_yet(logs: list[bytes], tmp_path: Path) -> None:
    score = score_dir(str(make_set(tmp_path / "set", [], 10)))
    assert not score.valid and score.pending == list(range(1, 11))
    assert score.to_json()["rcp"] is None and score.verdict.startswith("no valid score yet")


@pytest.mark.parametrize("done", [10, 11])
def test_a_set_needs_all_declared_runs(
    done: int, logs: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = (
        logs[4].replace(b'"time_ms": 17', b'"time_ms": 18').replace(b'"lineno": ', b'"lineno": 9')
    )
    folder = make_set(tmp_path / "set", [*logs, more][:done], 12, max_attempts=2)
    score = score_dir(str(folder))
    assert score.minutes is None and score.awaited == list(range(done + 1, 13))
    assert main(["score", str(folder)]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"no valid score yet: {12 - done} more run")
    # In job 1 one is left, in job 2 none after the second; one without an outcome is at work.
    ends = [("1", "infrastructure"), ("1", "interrupted"), ("2", "infrastructure"), ("2", "")]
    for attempt, (job_id, outcome) in enumerate([*ends, ("2", "infrastructure")], 1):
        attempt = min(attempt, len(ends))
        assert not score_dir(str(folder)).valid
        for run in score.awaited:
            end = {"state": "failed" if outcome else "running", "outcome": outcome}
            place = folder / f"runs/{run}/attempt_{attempt}"
            state(place, run=run, attempt=attempt, job_id=job_id, **end)
    score = score_dir(str(folder))
    assert score.valid and score.awaited == [] and score.pending == list(range(done + 1, 13))


def test_a_set_with_more_runs_is_scored_by_its_median_window(
    logs: list[bytes], tmp_path: Path
) -> None:
    extra = (
        logs[4].replace(b'"time_ms": 17', b'"time_ms": 18').replace(b'"lineno": ', b'"lineno": 9')
    )
    score = score_dir(str(make_set(tmp_path / "set", [*logs, extra], 11)))
    assert score.valid and score.window is not None
    assert len(score.window["windows"]) == 2
    assert score.minutes == max(window["score_minutes"] for window in score.window["windows"])


def test_broken_state_files_are_no_reason_to_fail(logs: list[bytes], tmp_path: Path) -> None:
    folder = make_set(tmp_path / "set", logs, 10)
    (folder / "runs" / "2" / "state.json").write_bytes(b"\xff{")
    (folder / "runs" / "4" / "state.json").write_text("[]", encoding="utf-8")
    assert score_dir(str(folder)).valid


def test_a_broken_set_json_is_said(tmp_path: Path) -> None:
    (tmp_path / "set.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="not a set's description"):
        score_dir(str(tmp_path))


def test_the_open_division_has_no_seed_check_and_no_rcp(
    published: dict[str, Path], write_logs: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """All logs say `open`: the open rules count, and neither equal seeds nor a strange batch size fails the set."""
    import mllog_referee as referee

    def opened(data: bytes) -> bytes:
        data = data.replace(
            b'"submission_division", "value": "closed"', b'"submission_division", "value": "open"'
        )
        data = data.replace(
            b'"global_batch_size", "value": 8', b'"global_batch_size", "value": 4096'
        )
        # The open rules of this benchmark ask for epochs.
        return b"\n".join(
            line.replace(b'"samples_count"', b'"epoch_num": 1, "samples_count"')
            if b'"eval_accuracy"' in line
            else line
            for line in data.split(b"\n")
        )

    files = {path.name: opened(path.read_bytes()) for path in published[MI355X].iterdir()}
    files["result_1.txt"] = files["result_2.txt"]
    folder = str(write_logs(files))
    score, answer = (
        score_dir(folder, ruleset="5.1.0"),
        referee.judge(folder, "llama2_70b_lora", "5.1.0", "open"),
    )
    assert score.valid and answer.valid and score.division == "open" and score.rcp is None
    assert score.minutes == score.olympic_mean == pytest.approx(answer.olympic_mean, abs=1e-9)
    assert main(["score", "--compliance", folder, "--ruleset", "5.1"]) == 0
    assert capsys.readouterr().out.endswith(": 10 files, 0 not compliant, no seed check\n")
    assert not score.seed_findings
    assert dict(score_facts(score, unit_of_runs([])))["seeds"] == "does not apply"
