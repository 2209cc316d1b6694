"""The deep step in an allocation of a real Slurm, with a real container on every node."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.model import load_entry
from orchestrator.render import render_bundle, write_bundle

if TYPE_CHECKING:
    from conftest import Lab

pytestmark = pytest.mark.lab

TOP = Path(__file__).resolve().parents[2]

JOB = r"""#!/bin/bash
set -uo pipefail
BUNDLE=$1 SET_DIR=$2 SCHEDULER=slurm
. "$BUNDLE/lib/common.sh"
. "$BUNDLE/settings.sh"
. "$BUNDLE/lib/steps_slurm.sh"
. "$BUNDLE/lib/deep.sh"
steps_begin
NODES=("${ALLOCATED[@]}")
export ORCH_SET_DIR=$SET_DIR ORCH_JOB_ID=$JOB_ID MASTER_ADDR=${NODES[0]} ORCH_PEER=${NODES[1]}
DEEP_TSV=$SET_DIR/preflight/deep-test.tsv
printf 'declare -x NCCL_SOCKET_IFNAME="lo"\n' >"$SET_DIR/environment.sh"
mkdir -p "$SET_DIR/nodes"
deep_step "${NODES[@]:1}" "${NODES[0]}"
echo "status $?"
printf 'row\t%s\n' "${DEEP_ROWS[@]}"
printf 'slow %s\n' "${DEEP_SLOW[*]}"
printf 'summary %s\n' "$DEEP_SUMMARY"
printf 'json %s\n' "$DEEP_JSON"
"""

# A node whose link carries 4 MB/s; all nodes of the lab have the same real one.
THROTTLE = r"""
[[ $node != SLOW ]] || sed -i 's|^    def send(self, data):|&\n        time.sleep(len(data) / 4e6)|' "$folder/all_reduce_tcp.py"
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


@pytest.fixture
def folder(lab: Lab) -> Iterator[Path]:
    """A folder on the lab's shared storage."""
    place = Path(tempfile.mkdtemp(prefix="deep-", dir=lab.shared))
    yield place
    shutil.rmtree(place)


def site(lab: Lab, folder: Path) -> Path:
    data = folder / "data"
    data.mkdir()
    path = folder / "site.yaml"
    path.write_text(
        f"kind: site\nname: lab\nscheduler: slurm\nlog_dir: {folder}\ndata: {{flux1: {{DATADIR: {data}}}}}\n"
        "network: {socket_ifname: lo, gloo_socket_ifname: lo}\ncontainer: {engine: docker, pull: never}\n"
    )
    return path


def measure(lab: Lab, folder: Path, slow: str) -> tuple[Outcome, str]:
    bundle, root = folder / "bundle", folder / "set"
    root.mkdir()
    entry = load_entry("MI325X_08x08x32", "flux1", site=site(lab, folder))
    write_bundle(render_bundle(entry, nexp=1), bundle)
    script = bundle / "lib/deep_node.sh"
    mark = "  if [[ $ENGINE == none ]]; then\n    deep_on_host"
    assert mark in script.read_text()
    script.write_text(script.read_text().replace(mark, THROTTLE.replace("SLOW", slow or "nobody") + mark))
    (folder / "job.sh").write_text(JOB)
    done = subprocess.run(
        ["sbatch", "--wait", "--nodes=8", "--time=10", f"--output={folder}/job.out", "job.sh", bundle, root],
        cwd=folder,
        env=lab.env,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    output = (folder / "job.out").read_text()
    assert done.returncode == 0, done.stderr + output
    return outcome(output, output, root / "preflight/deep-test.tsv"), output


def containers(lab: Lab) -> list[str]:
    return lab.run("docker", "ps", "--all", "--quiet", "--filter", "name=-deep-").stdout.split()


@pytest.fixture(autouse=True)
def _eight_nodes(lab: Lab) -> None:
    if len(lab.nodes) < 8:
        pytest.skip("it needs a lab of eight nodes")


def test_the_slow_node_of_eight_is_named(lab: Lab, folder: Path) -> None:
    slow = lab.nodes[4]

    found, output = measure(lab, folder, slow)

    assert found.slow == [slow], output
    assert found.rows[slow][2].startswith("slow: pairs with it reach 0.00")
    assert {row[0] for node, row in found.rows.items() if node != slow} == {"pass"}
    assert found.table[0]["round"] == "all"
    # The order that was given, not the one that Slurm gives the tasks.
    assert found.table[0]["nodes"].split(",") == [*lab.nodes[1:8], lab.nodes[0]]
    assert containers(lab) == []


def test_a_cancelled_job_leaves_no_container(lab: Lab, folder: Path) -> None:
    bundle, root = folder / "bundle", folder / "set"
    root.mkdir()
    entry = load_entry("MI325X_08x08x32", "flux1", site=site(lab, folder))
    write_bundle(render_bundle(entry, nexp=1), bundle)
    (folder / "job.sh").write_text(JOB)
    job = lab.run(
        "sbatch",
        "--parsable",
        "--nodes=8",
        "--time=10",
        f"--output={folder}/job.out",
        f"--chdir={folder}",
        folder / "job.sh",
        bundle,
        root,
    ).stdout.strip()
    deadline = time.monotonic() + 120
    while len(containers(lab)) < 8 and lab.run("squeue", "--noheader", f"--jobs={job}", check=False).stdout:
        assert time.monotonic() < deadline
    assert len(containers(lab)) == 8, (folder / "job.out").read_text()

    lab.run("scancel", job)

    while containers(lab) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert containers(lab) == []


def test_manifest_has_the_programs(lab: Lab, folder: Path) -> None:
    entry = load_entry("MI325X_08x08x32", "flux1", site=site(lab, folder))
    outputs = json.loads(render_bundle(entry, nexp=1)["manifest.json"])["outputs"]

    assert {"lib/all_reduce.py", "lib/rccl_tests.py", "lib/deep.sh"} <= set(outputs)


def test_preflight_measures_with_containers(lab: Lab, folder: Path) -> None:
    """The command as a user has it: an allocation, the checks, one container per node, and nothing left."""
    path = site(lab, folder)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "orchestrator",
            "preflight",
            "MI325X_08x08x32",
            "flux1",
            "--site",
            path,
            "--deep",
            "--json",
        ],
        env=lab.env | {"PYTHONPATH": str(TOP), "ORCH_DEEP_BYTES": "4194304"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    rows = [row for node in json.loads(done.stdout)["nodes"] for row in node["checks"] if row["check"] == "deep"]
    assert len(rows) == len(lab.nodes) and {row["verdict"] for row in rows} <= {"pass", "warn"}
    assert all("GB/s over 8 nodes" in row["text"] and row["ms"] > 0 for row in rows), rows
    assert lab.run("docker", "ps", "--all", "--quiet", "--filter", "label=orchestrator.job").stdout == ""
