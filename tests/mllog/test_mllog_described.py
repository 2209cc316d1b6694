"""What ran is what was described: logs against the environment that was given, and against the descriptor."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import outputs
import pytest
import set_of_logs as sets
from own_logs import WORKLOAD, own_log, own_set

from orchestrator.cli import main
from orchestrator.evidence.bundle import evaluated
from orchestrator.evidence.sets import SetEvidence
from orchestrator.mllog.score import score_dir
from orchestrator.model import load_entry

SYSTEM = """
kind: system
name: box
accelerator: {title: none}
nodes: 1
gpus_per_node: 2
workloads: {tiny_gpt: {"1.0": {micro_batch: 32, global_batch: 64}}}
"""


@pytest.fixture
def entries(tmp_path: Path) -> list[dict[str, str]]:
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads/tiny_gpt.yaml").write_text(WORKLOAD)
    (tmp_path / "box.yaml").write_text(SYSTEM)
    entry = load_entry("box", "tiny_gpt", systems_dirs=[tmp_path])
    return [asdict(one) for one in entry.logged]


def test_what_an_entry_says_that_its_logs_should_say(entries: list[dict[str, str]]) -> None:
    assert entries == [
        {
            "key": "global_batch_size",
            "env": "BATCH",
            "fact": "global_batch",
            "value": "64",
            "form": "{}",
        },
        {"key": "opt_base_learning_rate", "env": "LR", "fact": "", "value": "", "form": "{}"},
        {"key": "seed", "env": "SEED", "fact": "", "value": "", "form": "{}"},
        {"key": "submission_platform", "env": "PLATFORM", "fact": "", "value": "", "form": "1x{}"},
    ]


def differing(tmp_path: Path, entries: list[dict[str, str]], **said: Any) -> list[str]:
    logs = [own_log(index) for index in range(3)] + [own_log(3, **said)]
    score = score_dir(str(own_set(tmp_path / "set", logs, entries=entries)))
    assert score.valid, "a difference is no reason against a score"
    assert {one.severity for one in score.differences} <= {"differs"}
    assert all(one.message.isprintable() and len(one.message) < 200 for one in score.differences)
    return [f"{one.file}: {one.key}: {one.message}" for one in score.differences]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, []),
        ({"opt_base_learning_rate": "0.0010"}, []),
        ({"opt_base_learning_rate": None}, []),
        (
            {"opt_base_learning_rate": 0.002},
            [
                "opt_base_learning_rate: logged is 0.002, and the environment says LR=1e-3 (in 1 of 4 runs)"
            ],
        ),
        ({"seed": 7}, ["seed: logged is 7, and the run was given the seed 4001 (in 1 of 4 runs)"]),
        (
            {"submission_platform": "2xbox"},
            [
                "submission_platform: logged is 2xbox, and the environment says PLATFORM=box (in 1 of 4 runs)"
            ],
        ),
        (
            {"global_batch_size": 128},
            [
                "global_batch_size: logged is 128, and the environment says BATCH=64 (in 1 of 4 runs)",
                "global_batch_size: logged is 128, and the descriptor says global_batch 64 (in 1 of 4 runs)",
            ],
        ),
        ({"global_batch_size": [64]}, 2),
        ({"submission_platform": "\x1b[2J" + "x" * 500}, 1),
    ],
)
def test_each_kind_of_difference(
    tmp_path: Path, entries: list[dict[str, str]], said: dict[str, Any], expected: list[str] | int
) -> None:
    found = differing(tmp_path, entries, **said)
    assert (
        found == [f"result_4.txt: {one}" for one in expected]
        if isinstance(expected, list)
        else len(found) == expected
    )


def test_a_value_of_the_command_line_differs_from_the_descriptor_only(
    tmp_path: Path, entries: list[dict[str, str]]
) -> None:
    folder = own_set(
        tmp_path / "set",
        [own_log(index, global_batch_size=32) for index in range(4)],
        entries=entries,
    )
    (folder / "environment.sh").write_text('declare -x BATCH="32"\n')
    [one] = score_dir(str(folder)).differences
    assert (
        one.message == "logged is 32, and the descriptor says global_batch 64 (in 4 of 4 runs)"
        and one.line > 0
    )


def test_a_long_environment_is_compared_whole(
    tmp_path: Path, entries: list[dict[str, str]]
) -> None:
    """Linux passes up to 6 MiB to a program."""
    folder = own_set(tmp_path / "set", [own_log(index) for index in range(4)], entries=entries)
    (folder / "environment.sh").write_text(f'declare -x A="{"a" * (5 << 20)}"\ndeclare -x LR="7"\n')
    assert "LR" in evaluated(SetEvidence(folder))
    score = score_dir(str(folder))
    [difference] = score.differences
    assert difference.message.endswith("the environment says LR=7 (in 4 of 4 runs)")
    assert not any("longer than" in note for note in score.notes)


@pytest.mark.parametrize(
    "damage", [b"\xff{", b"[]", b'{"logged": {}}', b'{"logged": [1, {"key": 3}, {}]}']
)
def test_records_that_cannot_be_used_compare_nothing(tmp_path: Path, damage: bytes) -> None:
    folder = own_set(tmp_path / "set", [own_log(index) for index in range(4)])
    (folder / "bundle/workload.json").write_bytes(damage)
    (folder / "environment.sh").unlink()
    (folder / "environment.sh").mkdir()
    assert score_dir(str(folder)).differences == ()


def test_check_and_score_say_it(
    tmp_path: Path, entries: list[dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = own_set(
        tmp_path / "set", [own_log(index, seed=index) for index in range(4)], entries=entries
    )
    assert main(["check", str(folder)]) == 1
    text = capsys.readouterr().out
    assert (
        "result_1.txt:3: differs: seed: logged is 0, and the run was given the seed 1001 (in 1 of 4 runs)"
        in text
    )
    assert text.rstrip().endswith("4 files, 0 bad, seeds ok, 4 differing values")
    assert main(["check", str(folder), "--json"]) == 1
    assert outputs.checked(capsys.readouterr().out)["as_described"] is False
    assert main(["score", str(folder)]) == 0
    assert "differs: seed: logged is 3" in capsys.readouterr().out
    assert main(["score", str(folder), "--json"]) == 0
    assert [one["key"] for one in outputs.checked(capsys.readouterr().out)["differences"]] == [
        "seed"
    ] * 4


@pytest.mark.parametrize(
    ("logs", "system", "workload"),
    [
        (sets.MI355X, "MI355X_1x8x1", "llama2_70b_lora"),
        (sets.MI325X, "MI325X_1x8x1", "llama2_70b_lora"),
        (sets.MI350X, "MI350X_1x8x1", "llama31_8b"),
    ],
)
def test_published_logs_are_what_the_catalogue_describes(
    logs: Path, system: str, workload: str, tmp_path: Path
) -> None:
    entry = load_entry(system, workload, round="5.1")
    root = sets.make_set(tmp_path, sets.logs(logs), system=system, workload=workload)
    described = {"logged": [asdict(one) for one in entry.logged if one.env != "SEED"]}
    (root / "bundle/workload.json").write_text(json.dumps(described))
    lines = [
        f'declare -x {name}="{value}"\n'
        for name, value in entry.whole_env.items()
        if '"' not in str(value)
    ]
    (root / "environment.sh").write_text("".join(lines))
    assert score_dir(str(root)).differences == ()
    told = (
        (root / "environment.sh")
        .read_text()
        .replace('LR="0.0004"', 'LR="0.00055"')
        .replace('"1e-3"', '"8e-4"')
    )
    (root / "environment.sh").write_text(told)
    [one] = score_dir(str(root)).differences
    assert one.key == "opt_base_learning_rate" and one.message.endswith("(in 10 of 10 runs)")


def test_every_workload_of_the_catalogue_with_rules_says_where_the_values_of_its_logs_come_from() -> (
    None
):
    from orchestrator.model.catalogue import Catalogue

    for workload in Catalogue().workloads():
        if any(one.env for one in workload.rounds.values()):
            assert {"global_batch_size", "opt_base_learning_rate", "seed", "submission_org"} <= set(
                workload.logged
            )
