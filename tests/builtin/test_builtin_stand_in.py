"""As a stand-in the program takes a published environment and passes the referee's checks; seen with the referee."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

FLUX1 = {
    "DGXNNODES": "8",
    "DGXNGPU": "8",
    "BATCHSIZE": "2048",
    "MBS": "32",
    "TARGET_ACCURACY": "0.586",
    "VAL_CHECK_INTERVAL": "262144",
    "LEARNING_RATE": "0.00025",
    "WARMUP_STEPS": "0",
    "MAX_STEPS": "-1",
    "MLLOG_TENSOR_PARALLELISM": "1",
    "MLLOG_PIPELINE_PARALLELISM": "1",
    "MLLOG_CONTEXT_PARALLELISM": "1",
    "MLPERF_SUBMISSION_ORG": "AMD",
    "MLPERF_SUBMISSION_PLATFORM": "MI325X",
    "CONFIG_FILENAME": "config_MI325X_08x08x32.sh",
}
LLAMA31_8B = {
    "NNODES": "1",
    "GPUS_PER_NODE": "8",
    "PRIMUS_MICRO_BATCH_SIZE": "2",
    "PRIMUS_GLOBAL_BATCH_SIZE": "32",
    "PRIMUS_LR": "8e-4",
    "PRIMUS_MIN_LR": "8e-5",
    "PRIMUS_TRAIN_ITERS": "1200000",
    "PRIMUS_LR_WARMUP_ITERS": "64",
    "EVAL_SAMPLES_INTERVAL": "12288",
    "TARGET_EVAL_LOSS": "3.3",
    "MLLOG_SUBMISSION_BENCHMARK": "llama31_8b",
    "MLLOG_SUBMISSION_ORG": "AMD",
    "MLLOG_SUBMISSION_PLATFORM": "MI355X",
}
LLAMA2 = {
    "NNODES": "1",
    "GPUS_PER_NODE": "8",
    "MBS": "1",
    "MINIBS": "1",
    "LR": "0.0006",
    "SKIP_EVALS": "3",
    "TP": "1",
    "PP": "1",
    "CP": "1",
    "VAL_CHECK_INTERVAL": "384",
    "MAX_STEPS": "550",
    "MLLOG_TARGET_EVAL_LOSS": "0.925",
    "MLLOG_SUBMISSION_BENCHMARK": "llama2_70b_lora",
    "MLLOG_SUBMISSION_ORG": "AMD",
    "MLLOG_SUBMISSION_PLATFORM": "MI355X",
}
# nodes, environment, evaluation interval, reference mean and standard deviation of samples to converge (6.0.0)
PUBLISHED = [
    pytest.param(8, FLUX1, 262_144, 10_296_434, 700_960, id="flux1"),
    pytest.param(1, LLAMA31_8B, 12_288, 178_859, 7_165, id="llama31_8b"),
    pytest.param(1, LLAMA2, 384, 3_179, 300, id="llama2_70b_lora"),
]
# The launcher, which clears the caches, logs this line before the run.
CACHE_CLEAR = (
    ':::MLLOG {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": "cache_clear", "value": true, '
    '"metadata": {"file": "set_loop.sh", "lineno": 1}}\n'
)


def referee(folder: Path, text: str) -> tuple[int, str]:
    """Exit code and output of the compliance checker for a log with this text."""
    log = folder / "result_0.txt"
    log.write_text(CACHE_CLEAR + text)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mlperf_logging.compliance_checker",
            "--usage",
            "training",
            "--ruleset",
            "6.0.0",
            str(log),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("nodes", "environment", "interval", "mean", "spread"), PUBLISHED)
def test_a_stand_in_passes_the_referee(
    run: Callable,
    tmp_path: Path,
    nodes: int,
    environment: dict[str, str],
    interval: int,
    mean: int,
    spread: int,
) -> None:
    ended = run(nodes, **environment)
    assert (ended.codes, ended.status) == ([0] * nodes, "success")
    code, output = referee(tmp_path, ended.outputs[0])
    assert code == 0, output
    assert "SUCCESS" in output and "ERROR" not in output and "WARNING" not in output, output
    counts = [record["metadata"]["samples_count"] for record in ended.of("eval_accuracy")]
    assert all(count % interval == 0 for count in counts)
    assert abs(ended.samples - mean) < 3 * spread


@pytest.mark.parametrize(("nodes", "environment", "interval", "mean", "spread"), PUBLISHED)
def test_a_stand_in_says_so(
    run: Callable, nodes: int, environment: dict[str, str], interval: int, mean: int, spread: int
) -> None:
    ended = run(1, **(environment | {"BATCHSIZE": "256", "BUILTIN_MAX_SAMPLES": "1"}))
    assert ended.of("submission_benchmark")[0]["metadata"]["stand_in"] is True
    assert any(line.startswith("stand-in for ") for line in ended.outputs[0].splitlines())
    assert ended.of("submission_org")[0]["value"] == "AMD"


def test_the_referee_notices_a_missing_key(run: Callable, tmp_path: Path) -> None:
    ended = run(1, **LLAMA2)
    text = "".join(line for line in ended.outputs[0].splitlines(True) if '"lora_rank"' not in line)
    code, output = referee(tmp_path, text)
    assert code == 1 and "lora_rank" in output


def test_convergence_of_a_stand_in_varies_with_the_seed(run: Callable) -> None:
    samples = [run(1, SEED=str(seed), **LLAMA31_8B).samples for seed in (11, 12, 13, 14)]
    assert len(set(samples)) > 1 and max(samples) - min(samples) <= 4 * 12_288


def test_a_stricter_target_takes_longer_and_an_impossible_one_ends(run: Callable) -> None:
    usual, stricter, impossible = [
        run(1, **(LLAMA2 | {"MLLOG_TARGET_EVAL_LOSS": target}))
        for target in ("0.925", "0.92", "0.1")
    ]
    assert usual.samples < stricter.samples
    assert (impossible.codes, impossible.status) == ([0], "aborted")
    assert impossible.samples >= 550 * 8


def test_batch_and_accumulation_follow_the_descriptor(run: Callable) -> None:
    limit = {"BUILTIN_MAX_SAMPLES": "1"}
    flux = run(2, **(FLUX1 | {"BATCHSIZE": "1024"} | limit))
    assert (
        flux.of("global_batch_size")[0]["value"],
        flux.of("gradient_accumulation_steps")[0]["value"],
    ) == (1024, 2)
    assert flux.of("submission_platform")[0]["value"] == "2xMI325X"
    split = run(2, **(LLAMA2 | {"CP": "2"} | limit))
    assert split.of("global_batch_size")[0]["value"] == 8


def test_llama2_skips_its_first_evaluations(run: Callable) -> None:
    ended = run(1, **LLAMA2)
    assert [r["metadata"]["samples_count"] for r in ended.of("eval_accuracy")][:3] == [
        1536,
        1920,
        2304,
    ]


def test_the_builtin_benchmark_meets_the_common_rules(run: Callable, tmp_path: Path) -> None:
    """The referee has rules for listed benchmarks only, so its log is shown under a listed name."""
    ended = run(1, BUILTIN_RANKS_PER_NODE="2")
    code, output = referee(tmp_path, ended.outputs[0].replace('"builtin"', '"llama2_70b_lora"'))
    assert code == 0 and "ERROR" not in output, output
