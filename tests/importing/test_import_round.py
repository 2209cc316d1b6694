"""`systems import` as a command: a round that nobody knows, and what people get wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from orchestrator.model import load_entry

ROOT = Path(__file__).resolve().parents[2]

CONFIG = """#!/bin/bash
export DGXSYSTEM=MI355X_2x8x1
export GPUS_PER_NODE=8 NNODES=2 MASTER_PORT=29502
export PRIMUS_MICRO_BATCH_SIZE=2
export PRIMUS_GLOBAL_BATCH_SIZE=64
export PRIMUS_LR=9e-4
export EVAL_SAMPLES_INTERVAL=12288
export PRIMUS_EVAL_INTERVAL=$((EVAL_SAMPLES_INTERVAL / PRIMUS_GLOBAL_BATCH_SIZE))
export PRIMUS_TRAIN_ITERS=1200000 PRIMUS_APPLY_ROPE_FUSION=True FP4=true
export NCCL_SOCKET_IFNAME=ens1 NCCL_IB_HCA=ionic_0 NCCL_IB_GID_INDEX=1
export MLLOG_SUBMISSION_BENCHMARK=llama31_8b MLLOG_SUBMISSION_ORG=Us MLLOG_SUBMISSION_PLATFORM=MI355X
export HF_TOKEN=hf_secret
export NEXP=1 SEED=$RANDOM
export PYTHONPATH="/workspace/Primus:/workspace/Primus/third_party/Megatron-LM:${PYTHONPATH}"
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "config_MI355X_2x8x1.sh"
    path.write_text(CONFIG)
    return path


def output_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_an_invented_round_needs_three_commands_and_no_copied_line() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/new_round.py"), "--json"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    )
    result = json.loads(done.stdout)
    assert (result["failed"], result["copied"], result["differing"]) == ([], [], [])
    assert len(result["commands"]) == 3
    assert sum(result["lines"].values()) < 40


def test_variables_go_where_the_catalogue_has_them(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["systems", "import", str(config), "--round", "7.0", "--json"]) == 0
    result = output_of(capsys)
    assert (result["system"], result["workload"], result["nearest_round"]) == (
        "MI355X_2x8x1",
        "llama31_8b",
        "6.0",
    )
    part = {row["name"]: row["part"] for row in result["variables"]}
    assert part["PRIMUS_LR"] == part["MLLOG_SUBMISSION_ORG"] == "system"
    assert part["NCCL_SOCKET_IFNAME"] == part["NCCL_IB_HCA"] == part["HF_TOKEN"] == "site"
    assert part["SEED"] == "run" and part["NVTE_FLASH_ATTN"] == "workload"
    assert "hf_secret" not in json.dumps(result)
    why = {row["name"]: row["why"] for row in result["differences"]}
    assert why["PYTHONPATH"].startswith("the config appends the caller's value")
    assert {"SEED", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "HF_TOKEN"} <= set(why)
    assert all(why.values())
    entry = load_entry("MI355X_2x8x1", "llama31_8b", systems_dirs=[Path("mine")])
    assert (entry.round, entry.global_batch, entry.accumulation) == ("7.0", 64, 2)
    assert str(entry.env["PRIMUS_LR"]) == "9e-4" and "NVTE_FLASH_ATTN" not in entry.env
    assert entry.image.endswith(":llama31_8b_training_7.0")
    assert any("is assumed" in text for text in result["notes"])
    assert any("no rules for round '7.0.0'" in text for text in result["notes"])


def test_a_second_system_of_the_round_needs_one_document(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["systems", "import", str(config), "--round", "7.0", "-o", "mine"]) == 0
    capsys.readouterr()
    other = config.with_name("config_MI350X_1x8x1.sh")
    text = CONFIG.replace("MI355X_2x8x1", "MI350X_1x8x1").replace("MI355X", "MI350X")
    text = text.replace("NNODES=2", "NNODES=1").replace("BATCH_SIZE=64", "BATCH_SIZE=32")
    other.write_text(text)
    words = ["systems", "import", str(other), "--round", "7.0", "-o", "mine", "--json"]
    assert main(words) == 0
    result = output_of(capsys)
    assert [row["path"] for row in result["documents"]] == ["MI350X_1x8x1_7.0.yaml"]
    assert (result["nearest_round"], result["new_round"]) == ("7.0", False)
    changed = {row["name"] for row in result["variables"] if row["part"] == "workload"}
    assert changed == set()


def test_dry_run_writes_nothing_and_prints_the_documents(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["systems", "import", str(config), "--round", "7.0", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert 'extends: "6.0"' in text and "read, not executed" in text
    assert not Path("mine").exists()


def test_nothing_that_exists_is_overwritten(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["systems", "import", str(config), "--round", "7.0", "--as", "first"]
    assert main(words) == 0
    before = {path: path.read_text() for path in Path("mine").rglob("*.yaml")}
    assert main(words) == 2
    assert "is there already" in capsys.readouterr().err
    assert {path: path.read_text() for path in Path("mine").rglob("*.yaml")} == before


@pytest.mark.parametrize(
    ("old", "new", "more", "expected"),
    [
        (
            "GLOBAL_BATCH_SIZE=64",
            "GLOBAL_BATCH_SIZE=40",
            [],
            "is no multiple of micro batch 2 x 16",
        ),
        ("MI355X", "MI999X", [], "names no known GPU"),
        ("MICRO_BATCH_SIZE=2", "MICRO_BATCH_SIZE=two", [], "--micro-batch N"),
        ("NNODES=2", "NNODES=$(nproc)", [], "--execute"),
        ("NNODES=2", "NNODES=2", ["--ruleset", "7.0.0"], "no rules for round '7.0.0'"),
        ("NNODES=2", "NNODES=2", ["--round", "seven"], "is not a round"),
        ("NNODES=2", "NNODES=2", ["--as", "a b"], "is not a name"),
        ("NNODES=2", "NNODES=2", ["--workload", "llama"], "llama"),
        (CONFIG, "export A=1\n", [], "is like no known workload"),
        (CONFIG, "# nothing\n", [], "exports no variable"),
    ],
)
def test_what_cannot_be_imported_says_why(
    config: Path,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    more: list[str],
    expected: str,
) -> None:
    config.write_text(CONFIG.replace(old, new).replace("MI355X_2x8x1", "box_2x8x1" if "MI9" in new
                                                       else "MI355X_2x8x1"))  # fmt: skip
    if "MI9" in new:
        config = config.rename("config_box.sh")
    assert main(["systems", "import", str(config), "--round", "7.0", *more]) == 2
    assert expected in capsys.readouterr().err
    assert not Path("mine").exists()


def test_an_invalid_import_names_no_file_that_is_gone(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(CONFIG.replace("GLOBAL_BATCH_SIZE=64", "GLOBAL_BATCH_SIZE=40"))
    assert main(["systems", "import", str(config), "--round", "7.0"]) == 2
    message = capsys.readouterr().err
    assert "MI355X_2x8x1.yaml" in message and "correct it, or give the facts" in message
    assert "/tmp" not in message and "/dev/shm" not in message


def test_a_line_feed_in_the_name_of_a_config_adds_no_keys(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = config.rename(config.with_name("config_x\nnodes: 99\n#.sh"))
    odd.write_text(CONFIG.replace("export DGXSYSTEM=MI355X_2x8x1\n", ""))
    assert main(["systems", "import", str(odd), "--round", "7.0", "--as", "a"]) == 2
    message = capsys.readouterr().err
    assert "published_as: 'x\\nnodes: 99\\n#' is not a name" in message
    assert not Path("mine").exists()


def test_of_several_configs_in_an_image_one_is_chosen(tmp_path: Path) -> None:
    from argparse import Namespace

    from orchestrator.cli.importing import _config_in
    from orchestrator.errors import UsageError

    for name in ("config_common.sh", "config_a.sh", "config_b.sh"):
        (tmp_path / name).write_text("export A=1\n")
    args = Namespace(config="image:1", code_dir="/workspace/code", file="")
    with pytest.raises(UsageError, match="config_a.sh, config_b.sh"):
        _config_in(tmp_path, args)
    args.file = "config_b.sh"
    assert _config_in(tmp_path, args).name == "config_b.sh"
