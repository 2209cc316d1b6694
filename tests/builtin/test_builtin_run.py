"""The built-in workload as a launcher sees it: real processes, real exchange, real convergence."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from until import LIMIT_S

CODE = Path(__file__).parents[2] / "workloads" / "builtin"
ORDER = [
    "init_start",
    "seed",
    "init_stop",
    "run_start",
    "block_start",
    "block_stop",
    "eval_start",
    "eval_accuracy",
    "eval_stop",
    "run_stop",
]


def test_one_node_trains_to_its_target(run: Callable) -> None:
    ended = run(1, BUILTIN_RANKS_PER_NODE="4")
    assert (ended.codes, ended.status) == ([0], "success")
    keys = [record["key"] for record in ended.records]
    assert [keys.index(key) for key in ORDER] == sorted(keys.index(key) for key in ORDER)
    assert ended.losses[-1] <= 0.045 < ended.losses[-2] < ended.losses[0]
    assert ended.of("seed")[0]["value"] == 7
    assert all(
        set(r) == {"namespace", "time_ms", "event_type", "key", "value", "metadata"}
        for r in ended.records
    )
    times = [record["time_ms"] for record in ended.records]
    assert times == sorted(times)


def test_defaults_suit_two_nodes_of_two_ranks(run: Callable) -> None:
    ended = run(2, BUILTIN_RANKS_PER_NODE="2")
    assert (ended.codes, ended.status) == ([0, 0], "success")
    assert 9_000 < ended.samples < 18_000
    assert ended.outputs[1] == "", "only global rank 0 logs"


def test_losses_do_not_depend_on_the_layout(run: Callable) -> None:
    losses = [
        run(nodes, BUILTIN_RANKS_PER_NODE=str(8 // nodes), BUILTIN_MAX_SAMPLES="6000").losses
        for nodes in (1, 2, 4, 8)
    ]
    assert len(losses[0]) > 4
    assert losses[0] == losses[1] == losses[2] == losses[3], "to the last bit"


def test_same_seed_same_run_and_other_seeds_other_convergence(run: Callable) -> None:
    runs = {seed: run(1, BUILTIN_RANKS_PER_NODE="2", SEED=str(seed)) for seed in (1, 2, 3)}
    assert run(1, BUILTIN_RANKS_PER_NODE="2", SEED="1").losses == runs[1].losses
    assert len({ended.samples for ended in runs.values()}) > 1
    assert len({tuple(ended.losses) for ended in runs.values()}) == 3


def test_a_target_out_of_reach_ends_as_aborted_at_the_limit(run: Callable) -> None:
    ended = run(1, BUILTIN_RANKS_PER_NODE="2", BUILTIN_TARGET="1e-9", BUILTIN_MAX_SAMPLES="1000")
    assert (ended.codes, ended.status, ended.samples) == ([0], "aborted", 1024)


def test_an_absurd_learning_rate_diverges_on_all_nodes(run: Callable) -> None:
    ended = run(2, BUILTIN_RANKS_PER_NODE="2", BUILTIN_LR="1e6")
    assert (ended.codes, ended.status) == ([0, 0], "aborted")
    assert math.isnan(ended.losses[-1])


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"BUILTIN_RANKS_PER_NODE": ""},
            "BUILTIN_RANKS_PER_NODE or GPUS_PER_NODE or DGXNGPU is not set",
        ),
        (
            {"BUILTIN_RANKS_PER_NODE": "two"},
            "BUILTIN_RANKS_PER_NODE or GPUS_PER_NODE or DGXNGPU='two': expected",
        ),
        ({"BUILTIN_RANKS_PER_NODE": "2000"}, "expected 1 .. 1024"),
        ({"SEED": "-3"}, "SEED='-3': expected 0 .."),
        ({"SLURM_NODEID": "4"}, "SLURM_NODEID='4': expected 0 .. 0"),
        ({"BUILTIN_LR": "nan"}, "BUILTIN_LR='nan': expected a positive number"),
        ({"BUILTIN_TARGET": "low"}, "BUILTIN_TARGET='low': expected a number"),
        (
            {"BUILTIN_BENCHMARK": "resnet"},
            "no stand-in for benchmark 'resnet'; known are builtin, flux1",
        ),
        ({"BUILTIN_FAULT": "explode"}, "BUILTIN_FAULT: 'explode': expected KIND"),
        ({"BUILTIN_FAULT": "die:run=1"}, "ORCH_RUN is not set"),
        (
            {"BUILTIN_BENCHMARK": "flux1", "BATCHSIZE": "100", "MBS": "32"},
            "100 is not a multiple of 32 x 2 ranks",
        ),
    ],
)
def test_bad_settings_are_one_clear_line(
    run: Callable, variables: dict[str, str], message: str
) -> None:
    ended = run(1, **({"BUILTIN_RANKS_PER_NODE": "2"} | variables))
    assert ended.codes == [2]
    assert message in ended.errors[0] and ended.errors[0].count("\n") == 1


def test_the_entry_point_asks_for_a_seed(run: Callable) -> None:
    ended = run(1, SEED="", BUILTIN_RANKS_PER_NODE="2")
    assert ended.codes[0] != 0 and "SEED is not set" in ended.errors[0]


def test_a_closed_standard_output_is_an_error_without_a_traceback(launcher) -> None:
    endless = {"BUILTIN_TARGET": "1e-9", "BUILTIN_MAX_SAMPLES": "1000000000"}
    process = launcher.start(0, 1, launcher.port(), BUILTIN_RANKS_PER_NODE="2", **endless)
    process.stdout.close()
    assert process.wait(LIMIT_S) == 6
    assert process.stderr.read().count("\n") == 1


def test_start_up_imports_nothing_heavy() -> None:
    script = "import sys, train; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-E", "-s", "-S", "-c", script],
        cwd=CODE,
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {
        "re",
        "enum",
        "socket",
        "json",
        "random",
        "typing",
        "dataclasses",
        "argparse",
        "subprocess",
        "site",
    }
    assert not heavy & set(done.stdout.split())


@pytest.fixture
def training_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CODE))


@pytest.mark.usefixtures("training_modules")
def test_records_are_what_json_would_write() -> None:
    from training.mllog import written

    values = [
        'a "b" \\ \n\t\x00\x7f',
        "ü € 𝄞",
        "",
        True,
        False,
        None,
        0,
        -3,
        1e-08,
        0.00025,
        1e300,
        float("inf"),
        {"throughput": 2.5, "unit": "samples/s", "nothing": {}},
    ]
    for value in values:
        assert json.loads(written(value)) == value
    assert math.isnan(json.loads(written(float("nan"))))


@pytest.mark.usefixtures("training_modules")
def test_the_gradient_is_the_slope_of_the_loss() -> None:
    from training.network import HIDDEN, INPUTS, Shard, starting_point

    network, samples = starting_point(3), Shard(0, 8, 3).draw(5)
    gradient = network.gradient(samples)
    assert len(gradient) == network.size
    for index, slope in enumerate(gradient):
        row, column = divmod(index, INPUTS + 1)
        layer = network.hidden[row] if row < HIDDEN else network.output
        column = column if row < HIDDEN else index - HIDDEN * (INPUTS + 1)
        kept, losses = layer[column], []
        for move in (1e-5, -1e-5):
            layer[column] = kept + move
            losses.append(network.loss(samples) / 2)
        layer[column] = kept
        assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(slope, rel=1e-4, abs=1e-6)


@pytest.mark.usefixtures("training_modules")
def test_every_sample_belongs_to_exactly_one_rank() -> None:
    from training.network import EVAL_SAMPLES, TRAIN_SAMPLES, Shard

    shards = [Shard(rank, 7, 1) for rank in range(7)]
    train = {tuple(inputs) for shard in shards for inputs, _ in shard.train}
    evaluation = {tuple(inputs) for shard in shards for inputs, _ in shard.eval}
    assert (len(train), len(evaluation)) == (TRAIN_SAMPLES, EVAL_SAMPLES)
    assert not train & evaluation
    assert sum(len(shard.train) for shard in shards) == TRAIN_SAMPLES


def test_the_code_folder_may_be_read_only(tmp_path: Path) -> None:
    for source in [*CODE.glob("*.py"), *CODE.glob("*.sh"), *CODE.glob("training/*.py")]:
        copy = tmp_path / source.relative_to(CODE)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(source.read_bytes())
    (tmp_path / "training" / "__pycache__").write_text("a file where the folder would be")
    variables = {
        "PATH": os.environ["PATH"],
        "SEED": "1",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "BUILTIN_RANKS_PER_NODE": "2",
        "BUILTIN_MAX_SAMPLES": "512",
    }
    done = subprocess.run(
        ["bash", str(tmp_path / "run_and_time.sh")], env=variables, capture_output=True, check=True
    )
    assert b"run_stop" in done.stdout


def test_ranks_by_the_nodes_names_whatever_the_launcher_says(launcher: Any) -> None:
    """As torchrun's c10d rendezvous numbers them: node10 before node9, and the records come from there."""
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True).returncode:
        pytest.skip("a host name of one's own needs root")
    port, names = launcher.port(), {"BUILTIN_RANKS_PER_NODE": "2", "BUILTIN_RANKS_BY_NAME": "1"}
    hosts = ("node9", "node10", "node11")
    plain = launcher.run(3, BUILTIN_RANKS_PER_NODE="2")
    ended = launcher.finish(
        [launcher.start(k, 3, port, host=host, **names) for k, host in enumerate(hosts)]
    )
    assert ended.codes == [0, 0, 0]
    keys = [
        [json.loads(line[9:])["key"] for line in out.splitlines() if line[:8] == ":::MLLOG"]
        for out in ended.outputs
    ]
    assert [one[-1:] for one in keys] == [[], ["run_stop"], []] and keys[1][0] == "init_start"
    losses = [
        json.loads(line[9:])["value"]
        for line in ended.outputs[1].splitlines()
        if '"eval_accuracy"' in line
    ]
    assert losses == plain.losses, "who is where does not change what is trained"
    more, port = {**names, "BUILTIN_ALL_RANKS_START": "1"}, launcher.port()
    ended = launcher.finish(
        [launcher.start(k, 2, port, host=host, **more) for k, host in enumerate(hosts[:2])]
    )
    assert [out.count('"init_start"') for out in ended.outputs] == [2, 2]
