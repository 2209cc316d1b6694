"""From nothing to what would be submitted, on a real Slurm: `init`, `doctor`, `submit --dry-run` and `--test-only`; no document opened."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_line import call

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab


def orchestrator(lab: Lab, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return call(arguments, {**lab.env, "HOME": str(folder)}, cwd=folder)


def test_the_first_hour(lab: Lab) -> None:
    folder = lab.shared / f"first-{os.getpid()}"
    folder.mkdir()
    made = orchestrator(lab, folder, "init", "--yes")
    assert made.returncode == 0, made.stderr
    text = (folder / "site.yaml").read_text()
    for sentence in (
        "partition: batch\n",
        "8 GPUs each (GRES)",
        "  engine: docker\n",
        f"log_dir: {folder}/results\n",
    ):
        assert sentence in text, text
    checked = orchestrator(lab, folder, "doctor", "--json")
    verdicts = {row["check"]: row["verdict"] for row in json.loads(checked.stdout)["checks"]}
    assert checked.returncode == 0, checked.stdout
    assert (verdicts["slurm"], verdicts["engine"], verdicts["log_dir"]) == ("pass", "pass", "pass")
    arguments = ("submit", "MI300X_1x8x1", "llama2_70b_lora", "--nexp", "1")
    key = "data.llama2_70b_lora.DATADIR"
    shown = orchestrator(lab, folder, *arguments, "--dry-run")
    assert shown.returncode == 0 and "sbatch --parsable" in shown.stdout, shown.stderr
    refused = orchestrator(lab, folder, *arguments)
    assert refused.returncode == 2 and key in shown.stderr and key in refused.stderr
    (folder / "data").mkdir()
    arguments = (*arguments, "--override", f"{key}={folder}/data")
    shown = orchestrator(lab, folder, *arguments, "--dry-run")
    assert shown.returncode == 0 and key not in shown.stderr, shown.stderr
    asked = orchestrator(lab, folder, *arguments, "--test-only")
    assert asked.returncode == 0 and "to start at" in asked.stdout, asked.stderr
    refused = orchestrator(lab, folder, *arguments, "--test-only", "--sbatch=--constraint=nosuch")
    assert refused.returncode == 3 and "Invalid feature specification" in refused.stderr
    assert list((folder / "results").iterdir()) == []
