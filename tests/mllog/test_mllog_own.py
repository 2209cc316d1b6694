"""Workloads that are no MLPerf benchmarks: scored by their own rules, and never taken for an MLPerf score."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import outputs
import pytest
import set_of_logs as published_sets
from own_logs import WORKLOAD, own_log, own_set

from orchestrator.cli import main
from orchestrator.errors import OrchestratorError
from orchestrator.mllog.forecast import _text
from orchestrator.mllog.own import OwnRules
from orchestrator.mllog.score import score_dir
from orchestrator.views.score import score_parts
from orchestrator.views.terminal import lines

FIVE = [own_log(index, 0.5 + index / 100) for index in range(5)]


def test_a_set_needs_no_more_runs_than_a_set_can_have(tmp_path: Path) -> None:
    folder = own_set(tmp_path / "set", FIVE)
    for name, member in (("set.json", "nexp"), ("bundle/workload.json", "runs_required")):
        document = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**document, member: 10**12}))
        score = score_dir(str(folder))
        assert score.runs_required == 9999
        assert score.forecast is not None and score.forecast["runs_missing"] == 9994


def test_a_set_is_scored_by_the_rules_that_it_has_on_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = own_set(tmp_path / "set", FIVE)
    assert main(["score", str(folder), "--json"]) == 0
    score = outputs.checked(capsys.readouterr().out)
    assert score["score_minutes"] == pytest.approx(
        sum(run["minutes"] for run in score["runs"][1:4]) / 3, abs=1e-12
    )
    assert (score["round"], score["round_from"], score["division"]) == ("own", "set.json", None)
    assert (
        score["rcp"] is None
        and score["normalization_factor"] is None
        and score["differences"] == []
    )
    assert score["own_rules"] == {
        "benchmark": "tiny_gpt",
        "metric": "validation loss",
        "target": 1.5,
        "smaller_is_better": True,
        "runs_required": 4,
    }
    assert [run["samples"] for run in score["runs"]] == [640] * 5
    assert (
        score["verdict"] == "valid score by the workload's own rules, not an MLPerf score: 31.200 s"
    )
    assert main(["score", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "tiny_gpt · the workload's own rules, not MLPerf's (set.json) · batch size 64" in text
    assert "note: scored by the workload's own rules: no RCP test, no compliance check" in text
    assert main(["check", str(folder)]) == 0
    assert (
        "tiny_gpt, the workload's own rules, not MLPerf's: 5 files, 0 bad, seeds ok"
        in capsys.readouterr().out
    )


def test_mlperf_scores_say_that_they_are_none_of_these(published: dict[str, Path]) -> None:
    score = score_dir(str(published["v5.1/AMD/MI355X_EPYC_9575F_pytorch/llama2_70b_lora"]))
    assert score.own is None and score.to_json()["own_rules"] is None and score.division == "closed"
    assert "own rules" not in score.verdict


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"status": "aborted"}, "the run ended with status 'aborted'"),
        (
            {"loss": 1.6},
            "no evaluation reached the target (validation loss ≤ 1.5): the best is 1.6",
        ),
        (
            {"loss": float("nan")},
            "no evaluation reached the target (validation loss ≤ 1.5): there is none with a number",
        ),
        ({"minutes": 0}, "the run took 0.00 minutes"),
        (
            {"submission_benchmark": "other"},
            "the log is of 'other', and the workload of 'tiny_gpt'",
        ),
    ],
)
def test_a_bad_run_takes_the_place_of_the_slowest(
    tmp_path: Path, bad: dict[str, Any], words: str
) -> None:
    one = [own_log(2, **bad) if index == 2 else log for index, log in enumerate(FIVE)]
    score = score_dir(str(own_set(tmp_path / "one", one)))
    assert score.valid and [run.use for run in score.runs].count("bad") == 1
    [finding] = score.runs[2].findings
    assert words in finding.message and finding.severity == "error"
    two = [own_log(index, **bad) if index < 2 else log for index, log in enumerate(FIVE)]
    score = score_dir(str(own_set(tmp_path / "two", two)))
    assert not score.valid and score.minutes is None
    assert "2 bad runs (result_1.txt, result_2.txt), 1 allowed" in score.verdict
    assert score.verdict.startswith("no valid score by the workload's own rules: ")


def test_a_run_without_an_end_and_torn_lines(tmp_path: Path) -> None:
    logs = [FIVE[0].rsplit(b":::MLLOG", 1)[0], FIVE[1] + b":::MLLOG {torn\n", *FIVE[2:]]
    score = score_dir(str(own_set(tmp_path / "set", logs)))
    assert [run.use for run in score.runs] == ["bad", "fastest", "counted", "counted", "counted"]
    assert [(one.severity, one.line) for one in score.runs[1].findings] == [
        ("warning", FIVE[1].count(b"\n") + 1)
    ]


def test_larger_is_better_where_the_workload_says_so(tmp_path: Path) -> None:
    logs = [own_log(index, 0.5, loss=0.4) for index in range(4)]
    reached = own_set(
        tmp_path / "a", logs, target=0.3, metric="accuracy", target_is_upper_bound=False
    )
    assert score_dir(str(reached)).valid  # the first evaluation, 1.4, and the last are above it
    missed = score_dir(
        str(
            own_set(
                tmp_path / "b", logs, target=1.41, metric="accuracy", target_is_upper_bound=False
            )
        )
    )
    assert (
        not missed.valid
        and "accuracy ≥ 1.41): the best is 1.4" in missed.runs[0].findings[0].message
    )


def test_seeds(tmp_path: Path) -> None:
    twice = score_dir(str(own_set(tmp_path / "twice", [*FIVE[:4], own_log(4, seed=1001)])))
    assert (
        not twice.valid
        and "the seed check fails: result_5.txt: seed 1001 is already logged in" in twice.verdict
    )
    none = score_dir(str(own_set(tmp_path / "none", [*FIVE[:4], own_log(4, seed=None)])))
    assert not none.seeds_ok and "result_5.txt: no `seed` is logged" in none.verdict


def test_all_planned_runs_are_needed_and_all_count(tmp_path: Path) -> None:
    unfinished = score_dir(str(own_set(tmp_path / "a", FIVE[:3], 6)))
    assert unfinished.runs_required == 6 and unfinished.forecast is not None
    assert unfinished.verdict.startswith(
        "no valid score yet by the workload's own rules: 3 of 6 runs finished"
    )
    brief = [own_log(index, (1 + index) / 600) for index in range(3)]
    outlook = score_dir(str(own_set(tmp_path / "s", brief, 6))).forecast
    assert outlook is not None
    _, likely, needed = outlook["text"]
    assert re.fullmatch(r"score: [\d.]+ s to [\d.]+ s with 90 % .*", likely), likely
    assert needed == "they need about 5m", needed
    few = score_dir(str(own_set(tmp_path / "b", FIVE[:3])))
    assert few.runs_required == 4 and "3 of 4 runs finished" in few.verdict, (
        "the workload wants four"
    )
    many = [own_log(index, 0.5 + index / 100) for index in range(12)]
    score = score_dir(str(own_set(tmp_path / "c", many)))
    assert (
        score.valid
        and score.window is None
        and [run.use for run in score.runs].count("counted") == 10
    )


def test_a_sole_run_has_no_mean_and_no_forecast(tmp_path: Path) -> None:
    """Nothing was dropped, and one run shows no spread."""
    sole = score_dir(str(own_set(tmp_path / "a", FIVE[:1], 6)))
    assert sole.verdict.endswith(": 1 of 6 runs finished") and sole.runs[0].use == ""
    assert "dropped" not in "\n".join(lines(score_parts(sole)))
    assert sole.forecast is not None and "score_range_minutes" not in sole.forecast
    assert not any(line.startswith("score:") for line in sole.forecast["text"])
    two = score_dir(str(own_set(tmp_path / "b", FIVE[:2], 6)))
    assert [run.use for run in two.runs] == ["", ""] and two.forecast is not None
    assert "score_range_minutes" in two.forecast


def test_a_forecast_says_an_interval_once() -> None:
    outlook = {
        "runs_missing": 1, "runs_seen": 2, "failures_affordable": 0,
        "score_90_minutes": [8.867, 15.567], "score_range_minutes": [8.867, 15.567],
    }  # fmt: skip
    assert _text(outlook)[1] == "score: 8.867 min to 15.567 min in all draws"
    wider = {**outlook, "score_range_minutes": [8.1, 16.0]}
    assert "with 90 % probability, 8.100 min to 16.000 min in all draws" in _text(wider)[1]


def test_loose_logs_take_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(published_sets.plain_folder(tmp_path / "logs", FIVE))
    assert main(["score", folder]) == 1
    assert "(what is no MLPerf benchmark is scored with --ruleset own)" in capsys.readouterr().out
    assert main(["score", folder, "--ruleset", "own"]) == 0
    assert "no target is known" in capsys.readouterr().out
    (tmp_path / "tiny_gpt.yaml").write_text(WORKLOAD)
    assert main(["score", folder, "--workload", str(tmp_path / "tiny_gpt.yaml"), "--json"]) == 0
    said = outputs.checked(capsys.readouterr().out)
    assert (said["round_from"], said["own_rules"]["target"], said["runs_required"]) == (
        "--workload",
        1.5,
        5,
    )
    assert main(["check", folder, "--workload", str(tmp_path / "tiny_gpt.yaml")]) == 0
    strict = tmp_path / "strict" / "tiny_gpt.yaml"
    strict.parent.mkdir()
    strict.write_text(WORKLOAD.replace("target: 1.5", "target: 1.2"))
    assert main(["check", folder, "--workload", str(strict)]) == 1
    assert "no evaluation reached the target (validation loss ≤ 1.2)" in capsys.readouterr().out


def test_wrong_options_say_what_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(published_sets.plain_folder(tmp_path / "logs", FIVE))
    for words, text in (
        (("--workload", "flux1"), "flux1 is scored by MLPerf's rules"),
        (("--workload", "builtin", "--ruleset", "6.0.0"), "--workload goes with --ruleset own"),
        (("--workload", "buildin"), 'did you mean "builtin"'),
        (("--ruleset", "none"), "and own for what is no MLPerf benchmark"),
    ):
        assert main(["score", folder, *words]) == 2
        assert text in capsys.readouterr().err


def test_the_built_in_workload_is_one_of_them(tmp_path: Path) -> None:
    from orchestrator.model import load_entry

    entry = load_entry("local_2x2x8", "builtin")
    assert (entry.ruleset, entry.runs_required) == ("own", 3)
    logs = [own_log(index, loss=0.03, submission_benchmark="builtin") for index in range(3)]
    described = {"benchmark": "builtin", "target": entry.target, "metric": entry.metric}
    folder = own_set(tmp_path / "set", logs, **described)
    (folder / "bundle/workload.json").unlink()
    assert score_dir(str(folder)).valid


def test_an_mlperf_set_by_its_own_rules_is_said_to_be_one(tmp_path: Path) -> None:
    """Nobody has to do that; who does gets no factor, and no MLPerf score."""
    root = published_sets.make_set(tmp_path, published_sets.logs(published_sets.MI355X))
    score = score_dir(str(root), ruleset="own")
    assert score.valid and score.factor is None and "not an MLPerf score" in score.verdict
    assert score.minutes == score.olympic_mean


def test_rules_from_hand_made_records() -> None:
    assert OwnRules(runs_required=1).runs_required == 3
    assert not OwnRules(target=1.0).reached("0.5") and OwnRules(target=1.0).reached(1.0)
    assert OwnRules(metric="loss").goal == ""


@pytest.mark.parametrize(
    "members", [{"target": "low"}, {"target": None}, {"metric": 3, "benchmark": [], "nexp": "x"}]
)
def test_any_set_json_gives_an_answer(tmp_path: Path, members: dict[str, Any]) -> None:
    folder = own_set(tmp_path / "set", FIVE)
    document = json.loads((folder / "set.json").read_text())
    (folder / "set.json").write_text(json.dumps(document | members))
    (folder / "bundle/workload.json").write_text(
        '{"runs_required": "many", "logged": [3, {"key": []}]}'
    )
    try:
        assert score_dir(str(folder)).verdict
    except OrchestratorError:
        pytest.fail("a set.json that says nothing useful is no reason to fail")


def test_the_example_gives_what_its_readme_says(capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[2] / "examples/tiny_gpt"
    workload = example / "systems/workloads/tiny_gpt.yaml"
    assert main(["score", str(example / "two_h200"), "--workload", str(workload), "--json"]) == 0
    score = outputs.checked(capsys.readouterr().out)
    assert (round(score["score_minutes"], 4), len(score["runs"])) == (0.5445, 10)
    assert all(
        f"{figure:,}" in (example / "README.md").read_text() for figure in (110_592, 143_360)
    )
    assert {run["samples"] for run in score["runs"]} >= {110_592, 143_360}


@pytest.mark.parametrize(
    ("before", "files"), [(b'"samples_count": ', 1), (b'"eval_accuracy", "value": ', 5)]
)
def test_a_number_that_no_float_holds_is_none(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    before: bytes,
    files: int,
) -> None:
    """JSON may have one. As an evaluation it reaches no target, as a count it is unknown."""
    huge = re.compile(re.escape(before) + rb"[\d.]+")
    logs = [huge.sub(before + b"9" * 400, log) if k < files else log for k, log in enumerate(FIVE)]
    assert logs[0] != FIVE[0]
    folder = str(own_set(tmp_path / "set", logs))
    monkeypatch.chdir(tmp_path)  # `report` writes report.html there
    for words in (["score", folder], ["report", folder], ["compare", folder, folder]):
        assert main(words) in (0, 1), capsys.readouterr().err
    score = score_dir(folder)
    good = [run.good for run in score.runs]
    assert good == [before.startswith(b'"samples')] * 5
