"""The published sets: equal to what the referee says about them, number for number."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import outputs
import pytest
import yaml

from orchestrator.errors import InputError
from orchestrator.mllog import slowness
from orchestrator.mllog.forecast import _fit, forecast
from orchestrator.mllog.reader import read_log
from orchestrator.mllog.rounds import guess_round
from orchestrator.mllog.rules import rules
from orchestrator.mllog.score import RunScore, read_logs, score_dir, score_run, score_runs
from orchestrator.mllog.source import find_source
from orchestrator.mllog.window import launch_order

DATA = Path(__file__).resolve().parent.parent / "data" / "mllog"
SETS = yaml.safe_load((DATA / "index.yaml").read_text(encoding="utf-8"))["sets"]
DELL = "v5.0/Dell/9xXE9712x4GB200/llama2_70b_lora"
MI355X = "v5.1/AMD/MI355X_EPYC_9575F_pytorch/llama2_70b_lora"
MI350X = "v5.1/AMD/MI350X_EPYC_9575F_pytorch/llama31_8b"


def same(ours: object, theirs: object, tolerance: float = 1e-9) -> bool:
    if isinstance(ours, float) and isinstance(theirs, (int, float)):
        return math.isclose(ours, theirs, rel_tol=0, abs_tol=tolerance)
    return ours == theirs


@pytest.mark.parametrize("entry", SETS, ids=lambda entry: entry["path"])
def test_the_stored_files_are_the_published_bytes(entry: dict) -> None:
    for run in entry["runs"]:
        path = DATA / entry["path"] / (run["file"].removesuffix(".gz") + ".gz")
        assert hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest() == run["sha256"]


@pytest.mark.parametrize("entry", SETS, ids=lambda entry: entry["path"])
def test_a_published_set_scores_as_the_referee_scores_it(
    entry: dict, published: dict[str, Path]
) -> None:
    score = score_dir(str(published[entry["path"]]), ruleset=entry["ruleset"]).to_json()
    expected = entry["expected"]
    assert same(score["olympic_mean_minutes"], expected["olympic_mean_minutes"])
    assert same(score["normalization_factor"], expected["normalisation_factor"])
    assert same(score["score_minutes"], expected["score_minutes"])
    assert round(score["score_minutes"], 2) == expected["score_rounded"]
    assert score["compliant"] is expected["compliance_pass_all"]
    assert score["seeds_ok"] is expected["seed_check_pass"]
    assert score["batch_size"] == entry["global_batch_size"]
    assert score["benchmark"] == entry["benchmark"]
    assert score["valid"]
    for ours, theirs in (
        ("pass", "pass"),
        ("message", "message"),
        ("batch_size", "rcp_batch_size"),
        ("mean", "rcp_mean"),
        ("stdev", "rcp_stdev"),
        ("min_acceptable_mean", "min_acceptable_mean"),
        ("submission_mean", "submission_mean"),
    ):
        assert same(score["rcp"][ours], expected["rcp"][theirs]), ours


@pytest.mark.parametrize("entry", SETS, ids=lambda entry: entry["path"])
def test_each_run_reads_as_the_referee_reads_it(entry: dict, published: dict[str, Path]) -> None:
    score = score_dir(str(published[entry["path"]]), ruleset=entry["ruleset"])
    for run, expected in zip(score.runs, entry["runs"], strict=True):
        assert run.file == expected["file"].removesuffix(".gz")
        assert (run.start, run.stop) == (expected["run_start_ms"], expected["run_stop_ms"])
        assert same(run.minutes, expected["minutes"])
        for name in ("samples", "status", "seed", "converged", "compliant"):
            assert getattr(run, name) == expected[name], name
        assert run.evaluations[-1][2] == expected["last_eval"]
        assert len(run.evaluations) == expected["n_evals"]


@pytest.mark.parametrize("entry", SETS, ids=lambda entry: entry["path"])
def test_compressed_logs_read_the_same_and_the_round_is_guessed(
    entry: dict, published: dict[str, Path]
) -> None:
    packed = score_dir(str(DATA / entry["path"]))
    plain = score_dir(str(published[entry["path"]]), ruleset=entry["ruleset"])
    assert packed.ruleset == entry["ruleset"]
    assert packed.minutes == plain.minutes
    assert [run.samples for run in packed.runs] == [run.samples for run in plain.runs]


@pytest.mark.parametrize(
    ("benchmark", "day", "round_"),
    [
        ("llama2_70b_lora", "2025-05-01", "5.0.0"),
        ("llama31_8b", "2025-05-01", "5.1.0"),
        ("flux1", "2025-11-01", "5.1.0"),
        ("gpt_oss_20b", "2025-11-01", "6.0.0"),
        ("dlrmv4", "2026-05-01", "6.1.0"),
        ("bert", "2026-05-01", "5.0.0"),
        ("tiny_gpt", "2026-05-01", "6.0.0"),
    ],
)
def test_the_guessed_round_has_the_benchmark(benchmark: str, day: str, round_: str) -> None:
    start = datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp() * 1000
    assert guess_round(benchmark, [start])[0] == round_


@pytest.mark.parametrize("entry", SETS[:2], ids=lambda entry: entry["path"])
def test_skipping_statistics_changes_nothing(entry: dict, published: dict[str, Path]) -> None:
    for path in sorted(published[entry["path"]].iterdir()):
        quick, full = read_log(str(path)), read_log(str(path), full=True)
        assert [(e.key, e.value, e.time) for e in quick.records] == [
            (e.key, e.value, e.time) for e in full.records
        ]
        assert [quick.line(e) for e in quick.entries] == [full.line(e) for e in full.entries]
        assert quick.throughput == full.throughput


def test_line_numbers_are_those_of_the_file(published: dict[str, Path]) -> None:
    for name in (DELL, MI355X, "v5.1/NVIDIA/theia_ngpu72_ngc25.09_nemo/flux1"):
        path = sorted(published[name].iterdir())[-1]
        lines = (
            path.read_bytes()
            .decode("latin-1")
            .replace("\r\n", "\n")
            .replace("\r", "\n")
            .split("\n")
        )
        log = read_log(str(path))
        for entry in log.records:
            assert f'"{entry.key}"' in lines[log.line(entry) - 1]


def test_the_one_bad_run_is_named_with_its_reasons(published: dict[str, Path]) -> None:
    score = score_dir(str(published[DELL]), ruleset="5.0.0")
    bad = [run for run in score.runs if not run.compliant]
    assert [run.file for run in bad] == ["result_9.txt"]
    assert [run.use for run in score.runs].count("counted") == 8
    assert bad[0].use == "bad"
    words = " ".join(str(finding) for finding in bad[0].findings)
    assert "`run_stop` is missing" in words
    assert "result_9.txt:222" in words and "0.925" in words


@pytest.mark.parametrize("entry", SETS, ids=lambda entry: entry["path"])
def test_findings_say_what_6_1_0_asks_for_in_addition(
    entry: dict, published: dict[str, Path]
) -> None:
    score = score_dir(str(published[entry["path"]]), ruleset="6.1.0")
    missing = {finding.key for finding in score.runs[0].findings if "missing" in finding.message}
    assert {"micro_batch_size", "config_filename", "tensor_parallelism"} <= missing
    assert not score.valid


def replayed(folder: Path, ruleset: str) -> tuple[list[RunScore], float]:
    """The runs in launch order, and the score of all."""
    runs = [score_run(run, log, rules(ruleset)) for run, log in read_logs(find_source(str(folder)))]
    final = score_runs(str(folder), runs, rules(ruleset)).minutes
    assert final is not None
    return launch_order(runs), final


@pytest.mark.long
def test_the_forecast_range_holds_the_final_score_in_nine_of_ten_cases(
    published: dict[str, Path],
) -> None:
    held = asked = 0
    for entry in SETS:
        runs, final = replayed(published[entry["path"]], entry["ruleset"])
        for seen in range(1, 10):
            outlook = forecast(score_runs("replay", runs[:seen], rules(entry["ruleset"])))
            if "score_90_minutes" in outlook:
                low, high = outlook["score_90_minutes"]
                held, asked = held + (low <= final <= high), asked + 1
                assert high - low < 0.2 * final, "a range that says nothing"
    assert asked >= 70
    assert held / asked >= 0.9, f"{held} of {asked}"


def test_the_forecast_says_when_a_set_is_lost(published: dict[str, Path]) -> None:
    runs, _ = replayed(published[DELL], "5.0.0")
    bad = next(run for run in runs if not run.compliant)
    one = forecast(score_runs("x", [runs[0], bad], rules("5.0.0")))
    assert one["can_become_valid"] and one["failures_affordable"] == 0
    assert one["text"][0] == "8 of 10 runs have no result; none may miss the target"
    two = forecast(score_runs("x", [runs[0], bad, bad], rules("5.0.0")))
    assert not two["can_become_valid"]
    assert "can no longer become valid" in two["text"][0]


def test_the_forecast_says_whether_the_rest_fits(published: dict[str, Path]) -> None:
    runs, _ = replayed(published[MI355X], "5.1.0")
    score = score_runs("x", runs[:4], rules("5.1.0"))
    assert forecast(score, minutes_left=30)["fits"] is False
    assert forecast(score, minutes_left=600)["fits"] is True


def test_runs_side_by_side_need_less_time(published: dict[str, Path]) -> None:
    runs, _ = replayed(published[MI355X], "5.1.0")
    told = []
    for shift in (1, 0):  # one after the other, and all four from the same moment on
        four = [
            one.replace(start=shift * k * 1e8, stop=shift * k * 1e8 + 6e6)
            for k, one in enumerate(runs[:4])
        ]
        told.append(_fit(score_runs("x", runs[:4], rules("5.1.0")), four, 6, None))
    assert told[0]["minutes_needed"] > 5 * told[0]["minutes_per_run"]
    assert told[1]["minutes_needed"] == 2 * told[1]["minutes_per_run"]


def test_fewer_and_more_files_than_needed(published: dict[str, Path], tmp_path: Path) -> None:
    nine = tmp_path / "nine"
    shutil.copytree(published[MI355X], nine)
    (nine / "result_3.txt").unlink()
    score = score_dir(str(nine))
    assert not score.valid and "9 of 10 runs finished" in score.verdict
    assert score.forecast is not None and score.forecast["runs_missing"] == 1


def with_seed(path: Path, seed: int) -> bytes:
    lines = path.read_bytes().split(b"\n")
    index = next(index for index, line in enumerate(lines) if b'"key": "seed"' in line)
    head, _, text = lines[index].partition(b":::MLLOG ")
    lines[index] = head + b":::MLLOG " + json.dumps({**json.loads(text), "value": seed}).encode()
    return b"\n".join(lines)


def shifted(data: bytes, minutes: float) -> bytes:
    """A log whose run_stop comes some minutes later: a slower run."""
    lines = data.split(b"\n")
    index = next(index for index, line in enumerate(lines) if b'"key": "run_stop"' in line)
    record = json.loads(lines[index].partition(b":::MLLOG ")[2])
    record["time_ms"] += int(minutes * 60000)
    lines[index] = b":::MLLOG " + json.dumps(record).encode()
    return b"\n".join(lines)


def test_the_median_window_in_launch_order(published: dict[str, Path], tmp_path: Path) -> None:
    """Twelve runs make three windows; the files' numbers are reversed against time on purpose."""
    folder = tmp_path / "twelve"
    folder.mkdir()
    runs, _ = replayed(published[MI355X], "5.1.0")
    for number, run in enumerate(runs):
        (folder / f"result_{20 - number}.txt").write_bytes(Path(run.path).read_bytes())
    last = Path(runs[-1].path)
    for number, later in ((10, 1.0), (9, 4.0)):
        text = shifted(with_seed(last, 99000 + number), later).replace(
            b'"time_ms": 17', b'"time_ms": 18'
        )
        (folder / f"result_{number}.txt").write_bytes(text)
    plain = score_dir(str(folder), ruleset="5.1.0")
    assert not plain.valid and "12 result files" in plain.verdict
    assert plain.window is not None and len(plain.window["windows"]) == 3
    minutes = [window["score_minutes"] for window in plain.window["windows"]]
    chosen = score_dir(str(folder), ruleset="5.1.0", window=True)
    assert chosen.valid
    assert chosen.minutes == sorted(minutes)[1]
    assert plain.window["windows"][0]["first"] == "result_20.txt"
    assert [run.use for run in chosen.runs].count("outside") == 2


def test_why_a_set_is_slow(published: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "slow"
    shutil.copytree(published[MI355X], folder)
    slow = folder / "result_4.txt"
    slow.write_bytes(shifted(slow.read_bytes(), 1.5))
    why = score_dir(str(folder), ruleset="5.1.0").why
    assert next(item["run"] for item in why if item["kind"] == "slow_run") == "result_4.txt"
    assert {"convergence", "throughput", "initialisation"} <= {item["kind"] for item in why}
    gaps = next(item for item in why if item["kind"] == "gaps")
    assert gaps["median_minutes"] > 0


def test_runs_side_by_side_have_no_time_between_them(published: dict[str, Path]) -> None:
    score = score_dir(str(published[MI355X]), ruleset="5.1.0")
    assert "gaps" in {item["kind"] for item in slowness.explain(score)}
    first, second, *rest = score.runs
    beside = second.replace(start=first.start + 1000, stop=first.stop + 1000)
    found = slowness.explain(score.replace(runs=[first, beside, *rest]))
    assert "throughput" in {item["kind"] for item in found}
    assert not [item for item in found if item["kind"] in ("gaps", "long_gap")]


def test_a_stretch_below_a_second_is_not_named(published: dict[str, Path]) -> None:
    score = score_dir(str(published[MI355X]), ruleset="5.1.0")

    def slow_stretches(scale: float) -> list[str]:
        points = [(0, 0), (60_000, 100), (120_000, 200), (300_000, 300), (360_000, 400)]
        evaluations = [(time_ms * scale, samples, 0.9) for time_ms, samples in points]
        run = score.runs[0].replace(evaluations=evaluations)
        found = slowness.explain(score.replace(runs=[run]))
        return [item["text"] for item in found if item["kind"] == "slow_interval"]

    [text] = slow_stretches(1)
    assert text.endswith("the stretch up to 300 samples took 3.00 x the usual time (3m)")
    assert slow_stretches(1 / 200) == []


def test_counts_at_the_ends_of_the_floats_name_no_run(published: dict[str, Path]) -> None:
    """Samples per second or minutes per sample that no float holds."""
    score = score_dir(str(published[MI355X]), ruleset="5.1.0")
    first, second, *_ = score.runs
    evaluations = [(k / 1e30, 1 + k * 10**306, 0.9) for k in range(1, 6)]
    for samples in (5e-324, 10**400):
        odd = second.replace(samples=samples, evaluations=evaluations)
        found = slowness.explain(score.replace(runs=[first, odd]))
        [rates] = [item["runs"] for item in found if item["kind"] == "throughput"]
        assert list(rates) == [first.file]
        slow = [item["run"] for item in found if item["kind"] in ("slow_run", "slow_interval")]
        assert odd.file not in slow


def command(*argv: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from orchestrator.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *argv],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
    )


KEYS = [
    "benchmark",
    "round",
    "runs",
    "olympic_mean_minutes",
    "rcp",
    "normalization_factor",
    "score_minutes",
    "compliant",
    "seeds_ok",
    "verdict",
]


def test_the_commands_and_their_exit_codes(published: dict[str, Path], tmp_path: Path) -> None:
    good = command("score", str(published[DELL]), "--ruleset", "5.0.0", "--json")
    assert good.returncode == 0 and good.stderr == ""
    document = outputs.checked(good.stdout)
    assert set(KEYS) <= set(document)
    assert {
        "file",
        "minutes",
        "samples",
        "status",
        "seed",
        "converged",
        "compliant",
        "findings",
    } <= set(document["runs"][0])
    assert {
        "pass",
        "message",
        "batch_size",
        "mean",
        "min_acceptable_mean",
        "submission_mean",
    } <= set(document["rcp"])
    text = command("score", str(published[DELL]))
    assert text.returncode == 0 and text.stdout.startswith("valid score: 2.999 min\n")
    two = command("score", str(published[DELL]), str(published[MI355X]), "--json")
    assert two.returncode == 0 and [
        len(item["runs"]) for item in outputs.checked(two.stdout)["scores"]
    ] == [10, 10]
    assert command("check", str(published[MI355X])).returncode == 0
    checked = command("check", str(published[DELL]), "--json")
    assert (
        checked.returncode == 1
        and outputs.checked(checked.stdout)["findings"][0]["file"] == "result_9.txt"
    )
    assert command("score", str(published[MI355X]), "--ruleset", "6.1").returncode == 1
    for argv, words in (
        (("score", str(tmp_path)), "no result_"),
        (("score", str(published[DELL]), "--ruleset", "9"), "9"),
        (("score", str(published[DELL].parent)), f"orchestrator score {published[DELL]}"),
    ):
        refused = command(*argv)
        assert (
            refused.returncode == 2
            and words in refused.stderr
            and "Traceback" not in refused.stderr
        )


def test_a_folder_that_is_no_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        score_dir(str(tmp_path / "nothing"))
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "result_0.txt.gz").write_bytes(b"\x1f\x8b not gzip")
    with pytest.raises(InputError, match="cannot be read"):
        score_dir(str(broken))
