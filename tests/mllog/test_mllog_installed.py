"""Rules of a round that is not built in, from an installed mlperf-logging with such a round."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mlperf_logging
import pytest

from orchestrator.mllog.installed import check_equal, installed_rounds
from orchestrator.mllog.rounds import ruleset_problem

ROOT = Path(__file__).resolve().parents[2]
Command = Callable[..., subprocess.CompletedProcess[str]]


def new_package(folder: Path) -> Path:
    """Copy the installed package, with a round 7.0.0 made from its newest."""
    package = folder / "mlperf_logging"
    shutil.copytree(next(iter(mlperf_logging.__path__)), package)
    for part, names in (("compliance_checker", "*.yaml"), ("rcp_checker", "*.json")):
        new = package / part / "training_7.0.0"
        shutil.copytree(package / part / "training_6.1.0", new)
        for path in new.glob(names):
            path.write_text(path.read_text().replace("6.1.0", "7.0.0"))
    meta = package / "benchmark_meta.py"
    text = meta.read_text()
    assert text.count("'6.1': [") == 1
    meta.write_text(text.replace("'6.1': [", "'7.0': ['llama31_8b', 'flux1'],\n    '6.1': ["))
    info = folder / "mlperf_logging-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mlperf-logging\nVersion: 9.9\n")
    return package


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return new_package(tmp_path / "site")


@pytest.fixture
def command(tmp_path: Path, package: Path) -> Command:
    def run(*words: str, installed: bool = True) -> subprocess.CompletedProcess[str]:
        path = [str(ROOT), *([str(package.parent)] if installed else [])]
        program = (
            f"import sys; sys.path[:0] = {path!r}; from orchestrator.cli import main; "
            "sys.exit(main(sys.argv[1:]))"
        )
        return subprocess.run(
            [sys.executable, "-c", program, *words],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )

    return run


def logs(folder: Path, ruleset: str) -> Path:
    """Write ten logs, which differ from published ones in their seeds alone."""
    folder.mkdir()
    for number in range(10):
        start = 1_900_000_000_000 + number * 10_000_000
        lines = [
            ("POINT_IN_TIME", "submission_benchmark", "llama31_8b", {}, 0),
            ("POINT_IN_TIME", "submission_division", "closed", {}, 0),
            ("POINT_IN_TIME", "seed", number + 1, {}, 1),
            ("POINT_IN_TIME", "global_batch_size", 32, {}, 2),
            ("INTERVAL_START", "run_start", None, {}, 1000),
            ("POINT_IN_TIME", "eval_accuracy", 3.2, {"samples_count": 196608}, 6_000_000),
            ("INTERVAL_END", "run_stop", None, {"status": "success"}, 6_001_000 + number),
        ]
        text = "".join(
            ":::MLLOG "
            + json.dumps(
                {
                    "namespace": "",
                    "time_ms": start + offset,
                    "event_type": event,
                    "key": key,
                    "value": value,
                    "metadata": {"file": "train.py", "lineno": 1, **metadata},
                }
            )
            + "\n"
            for event, key, value, metadata, offset in lines
        )
        (folder / f"result_{number}.txt").write_text(text)
    return folder


def test_the_pinned_package_gives_the_built_in_rules() -> None:
    assert check_equal() == "mlperf-logging 4.1.68"
    assert installed_rounds() == ()
    problem = ruleset_problem("7.0.0")
    assert "there are no rules for round '7.0.0'" in problem and "pip install" in problem
    assert ruleset_problem("6.1.0") == ruleset_problem("own") == ""


def test_a_round_that_only_the_installed_package_has_is_scored_by_its_rules(
    command: Command, tmp_path: Path
) -> None:
    folder = logs(tmp_path / "logs", "7.0.0")
    built_in = json.loads(command("score", str(folder), "--ruleset", "6.1", "--json").stdout)
    done = command("score", str(folder), "--ruleset", "7.0", "--json")
    score = json.loads(done.stdout)
    assert (score["round"], built_in["round"]) == ("7.0.0", "6.1.0"), done.stderr
    # 7.0.0 is a copy of 6.1.0: the same verdicts, run by run and in all
    same = ("score_minutes", "rcp", "normalization_factor", "valid")
    assert {name: score[name] for name in same} == {name: built_in[name] for name in same}
    assert [len(run["findings"]) for run in score["runs"]] == [
        len(run["findings"]) for run in built_in["runs"]
    ]
    text = command("score", str(folder), "--ruleset", "7.0")
    assert "rules of the installed mlperf-logging 9.9, equal for 5.0.0" in text.stdout


@pytest.mark.long
def test_an_option_compares_the_installed_rules_first(command: Command, tmp_path: Path) -> None:
    folder = logs(tmp_path / "logs", "7.0.0")
    words = ("score", str(folder), "--ruleset", "6.0", "--rules-from", "mlperf_logging")
    assert "mlperf-logging 9.9: its rules of the built-in rounds equal the built-in rules" in (
        command(*words).stderr
    )


@pytest.mark.parametrize(
    ("part", "old", "new", "expected"),
    [
        pytest.param(
            "compliance_checker/training_6.0.0/closed_flux1.yaml",
            "0.586",
            "0.686",
            "rules of 6.0.0",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "rcp_checker/training_6.0.0/rcps_flux1.json",
            '"BS"',
            '"BS": 1, "B"',
            "rcp of 6.0.0",
            marks=pytest.mark.long,
        ),
        (
            "compliance_checker/training_7.0.0/closed_flux1.yaml",
            "v['value']",
            "v['value'].lower()",
            "has a rule of round 7.0.0 that is not understood here",
        ),
    ],
)
def test_a_package_that_gives_other_rules_is_refused_with_the_differences(
    command: Command, package: Path, tmp_path: Path, part: str, old: str, new: str, expected: str
) -> None:
    path = package / part
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    done = command("score", str(logs(tmp_path / "logs", "7.0.0")), "--ruleset", "7.0")
    assert done.returncode == 2
    assert expected in done.stderr and "Traceback" not in done.stderr
    assert "hint: " in done.stderr


SYSTEM = """kind: system
name: mine
accelerator: MI355X
nodes: 1
gpus_per_node: 8
workloads: {llama31_8b: {"7.0": {micro_batch: 2, global_batch: 32}}}
"""
WORKLOAD = """kind: workload
name: llama31_8b
extends: llama31_8b
rounds:
  "7.0":
    extends: "6.0"
    ruleset: "7.0.0"
"""
SITE = """kind: site
log_dir: {0}
systems_dirs: [{0}]
data: {{llama31_8b: {{DATADIR: /data, MODEL: /model}}}}
"""


@pytest.mark.long
def test_every_command_before_a_run_refuses_rules_that_score_would_refuse(
    command: Command, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    (mine / "workloads").mkdir(parents=True)
    (mine / "mine.yaml").write_text(SYSTEM)
    workload = mine / "workloads/llama31_8b.yaml"
    workload.write_text(WORKLOAD)
    site = tmp_path / "own.yaml"
    site.write_text(SITE.format(mine))
    named = ("mine", "llama31_8b", "--site", str(site))
    commands = (
        ("systems", "validate", str(workload)),
        ("render", *named, "-o", str(tmp_path / "bundle")),
        ("submit", *named, "--dry-run"),
    )
    for words in commands:
        refused = command(*words, installed=False)
        assert refused.returncode == 2, words
        assert "llama31_8b.yaml:7: rounds.7.0.ruleset: there are no rules for" in refused.stderr
        assert "pip install --upgrade mlperf-logging" in refused.stderr
    accepted = command(*commands[1])
    assert accepted.returncode == 0, accepted.stderr
