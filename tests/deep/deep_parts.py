"""The deep step as the loop calls it: the scripts of templates/lib with settings of the test."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.resources import data_dir

SETTINGS = """
NNODES=2 GPUS_PER_NODE=8 ENGINE=none ENGINE_COMMAND=() CONT="" PULL=never CONTAINER_OPTIONS=() MOUNTS=() PASS_ENV=()
CODE_SOURCE="" CODE_DIR="" CONTAINER_START_S=20 WORKLOAD=test SYSTEM=test SUDO=() RUNTIME_TUNABLES=0
FABRIC=none FABRIC_DRIVERS=() FABRIC_NAMES=() FABRIC_LINK_LAYER="" FABRIC_GBPS=0 FABRIC_DEVICES=0 NETWORK_RDMA=preferred
NETWORK_ORIGINS=() NETWORK_REMOVED=() PREFLIGHT_DEEP_GBPS="" PREFLIGHT_WARN=()
"""

# What the loop does around the deep step. HOOK may replace functions: how a step starts, how a round is measured.
DRIVER = r"""
set -uo pipefail
BUNDLE=$1 SET_DIR=$2 JOB_ID=test SCHEDULER=local
export ORCH_SET_DIR=$SET_DIR ORCH_JOB_ID=$JOB_ID
. "$BUNDLE/lib/common.sh"
. "$BUNDLE/settings.sh"
. "$BUNDLE/lib/steps_local.sh"
. "$BUNDLE/lib/deep.sh"
eval "${HOOK:-}"
deep_step "${@:3}"
echo "status $?"
printf 'row\t%s\n' "${DEEP_ROWS[@]}"
printf 'slow %s\n' "${DEEP_SLOW[*]}"
printf 'summary %s\n' "$DEEP_SUMMARY"
printf 'json %s\n' "$DEEP_JSON"
"""


@dataclass
class Outcome:
    """What deep_step left behind."""

    status: int
    rows: dict[str, tuple[str, str, str, str]]
    """Node: verdict, milliseconds, text, remedy."""
    slow: list[str]
    summary: str
    json: dict[str, Any] | None
    table: list[dict[str, str]]
    """The lines of deep-<job>.tsv."""

    def verdicts(self) -> dict[str, str]:
        return {node: row[0] for node, row in self.rows.items()}


class Bundle:
    """A folder that stands for a bundle, and one that stands for its set."""

    def __init__(self, folder: Path) -> None:
        self.path, self.set_dir, self.folder = folder / "bundle", folder / "set", folder
        shutil.copytree(data_dir("templates") / "lib", self.path / "lib")
        self.set_dir.mkdir()
        self.settings()

    def settings(self, **values: str) -> None:
        lines = "".join(f"{name}={value}\n" for name, value in values.items())
        (self.path / "settings.sh").write_text(SETTINGS + lines)

    def step(self, *nodes: str, hook: str = "", timeout: float = 120, **env: str) -> Outcome:
        """Run deep_step over the nodes, on this host."""
        done = subprocess.run(
            ["bash", "-c", DRIVER, "driver", self.path, self.set_dir, *nodes],
            env={**os.environ, "HOOK": hook, "ORCH_CHANNELS": str(self.folder), **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return outcome(done.stdout, done.stderr, self.set_dir / "preflight/deep-test.tsv")


def outcome(output: str, errors: str, table: Path) -> Outcome:
    """Read what the driver printed."""
    assert "status " in output, output + errors
    lines = [line.partition(" ") for line in output.splitlines()]
    said = {word: rest for word, _, rest in lines}
    rows = {}
    for line in output.splitlines():
        if line.startswith("row\t"):
            _, node, *cells = line.split("\t")
            rows[node] = (cells[0], cells[1], cells[2], cells[3])
    with table.open() as stream:
        measured = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    found = json.loads(said["json"])
    return Outcome(int(said["status"]), rows, said["slow"].split(), said["summary"], found, measured)
