"""Five nodes of a real Slurm for a set that needs two: one has no image, one a host setting that refuses, one speaks for another
one, and one loses power."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from command_line import call
from replayed import differences
from run_sets import Set
from sites import write_code
from until import LIMIT_S, until

if TYPE_CHECKING:
    from labs import Lab

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tuning"))
from tuning_parts import STUBBORN, fill, snapshot

pytestmark = pytest.mark.lab

TOP = Path(__file__).resolve().parents[2]

NMI = "proc/sys/kernel/nmi_watchdog"
# An engine that has no image on one node: all nodes of the lab share one store.
ENGINE = """#!/bin/sh
if [ "$SLURMD_NODENAME" = %s ] && [ "$1" = image ]; then echo 'Error: No such image' >&2; exit 1; fi
exec docker "$@"
"""
# An interpreter that is a script, which writes to the agent's output first.
PYTHON = """#!/bin/sh
[ "$SLURMD_NODENAME" != %s ] || printf 'left\\t%s\\t\\n'
exec python3 "$@"
"""
# Training that would end before its node is set down waits for that.
AFTER_THE_FIRST = '[ "$ORCH_RUN" = 1 ] || until [ -e goes_on ]; do sleep 0.05; done'


class Batch:
    """One set of three runs, started with `sbatch job.sh` as a user without our command would."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder, self.nodes = lab, folder, lab.nodes[:5]
        self.good, self.no_image, self.stubborn, self.liar, self.loses_power = self.nodes
        self.log_dir, self.bundle = self.folder / "results", self.folder / "bundle"
        self.log_dir.mkdir(parents=True)
        self.script("engine", ENGINE % self.no_image)
        self.script("python", PYTHON % (self.liar, self.good))
        site = yaml.safe_load(lab.run(TOP / "lab/site").stdout)
        site |= {
            "log_dir": str(self.log_dir),
            "nodelist": [*self.nodes],
            "spares": 3,
            "limits": {"attempts": 1},
        }
        site |= {"python": str(self.folder / "python"), "tuning": {"profile": "published"}}
        site["container"] |= {"command": [str(self.folder / "engine")]}
        (self.folder / "site.yaml").write_text(yaml.safe_dump(site))
        self.roots = {
            node: fill(self.folder / "host" / node, cpus=2, gpus=1) for node in self.nodes
        }
        (self.roots[self.stubborn] / NMI).unlink()
        (self.roots[self.stubborn] / NMI).symlink_to(STUBBORN)
        self.before = {node: snapshot(root) for node, root in self.roots.items()}
        self.env = lab.env | {
            "PYTHONPATH": str(TOP),
            "ORCHESTRATOR_SITE": str(self.folder / "site.yaml"),
            "ORCH_TUNABLES_ROOT": str(self.folder / "host/%n"),
            "ORCH_TUNABLES_STATE": str(self.folder / "state/%n"),
        }

    def script(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def orchestrator(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return call(arguments, self.env, cwd=self.folder)

    def submit(self, **env: str) -> str:
        job = subprocess.run(
            ["sbatch", "--parsable", "job.sh"],
            cwd=self.bundle,
            env=self.env | env,
            text=True,
            capture_output=True,
            check=True,
        )
        return job.stdout.strip()

    @property
    def root(self) -> Path:
        [record] = self.log_dir.glob("*/set.json")
        return record.parent

    def job(self, number: str) -> dict[str, Any]:
        return Set(self.root).json(f"jobs/{number}.json")

    def clean(self) -> bool:
        """The fake hosts are as they were; what dropping the caches wrote is an action and no state."""
        for root in self.roots.values():
            (root / "proc/sys/vm/drop_caches").write_text("0\n")
        return {node: snapshot(root) for node, root in self.roots.items()} == self.before


def cut_power(lab: Lab, node: str) -> None:
    """End everything of one node at once: its slurmd, its steps, its container."""
    name = f"SLURMD_NODENAME={node}".encode()
    pid = int((lab.state / f"pids/slurmd-{node}").read_text().split()[0])
    victims = [pid]
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            argv, environ = (
                (entry / "cmdline").read_bytes(),
                (entry / "environ").read_bytes().split(b"\0"),
            )
            conf = f"SLURM_CONF={lab.env['SLURM_CONF']}".encode()
            # A step's daemon carries its node in its title only.
            if (name in environ and conf in environ) or (
                argv.startswith(b"slurmstepd:") and _parent(entry) == pid
            ):
                victims.append(int(entry.name))
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    for container in lab.run(
        "docker", "ps", "--quiet", "--filter", f"label=orchestrator.node={node}"
    ).stdout.split():
        lab.run("docker", "kill", container, check=False)


def _parent(entry: Path) -> int:
    return int((entry / "stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def batch(lab: Lab) -> Iterator[Batch]:
    folder = lab.shared / f"spares-{os.getpid()}"
    yield Batch(lab, folder)
    for job in lab.queue():
        lab.run("scancel", job)
    if [
        line
        for line in lab.run("sinfo", "--noheader", "--Node", "--format=%T").stdout.split()
        if line.startswith("down")
    ]:
        power_on(lab)
    shutil.rmtree(folder)


def power_on(lab: Lab) -> None:
    """Have every node back, and the job of one that lost power over."""
    # Slurm itself waits another minute for words of the dead node before it lets go of the job; an administrator need not.
    for state in ("down", "resume"):
        lab.run(
            "scontrol",
            "update",
            f"nodename={','.join(lab.nodes)}",
            f"state={state}",
            "reason=lost power",
        )
    env = {
        name: value for name, value in lab.env.items() if name not in ("SLURM_CONF", "DOCKER_HOST")
    }
    subprocess.run(
        [TOP / "lab/up"],
        env=env,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_S,
    )


@pytest.mark.long
def test_four_bad_nodes_of_five(batch: Batch) -> None:
    options = ("--nexp", "3", "--env", "BUILTIN_FAULT=hang:run=2:attempt=1")
    answer = batch.orchestrator("render", "local_2x2x8", "builtin", *options, "-o", batch.bundle)
    assert answer.returncode == 0, answer.stderr
    assert "#SBATCH --nodes=5\n" in (batch.bundle / "job.sh").read_text()
    first = batch.submit()
    until(lambda: list(batch.log_dir.glob("*/runs/2/attempt_1/node_0.log")))
    log = batch.root / "runs/2/attempt_1/node_0.log"
    until(lambda: "run_start" in log.read_text())
    cut_power(batch.lab, batch.loses_power)
    until(lambda: not batch.lab.run("squeue", "--noheader", "--states=running").stdout)
    record = batch.job(first)
    # One of five is left: the set pauses, and says why.
    assert record["state"] == "paused", record
    assert "1 of 5 nodes fit, 2 needed" in record["reason"]
    aside = {entry["node"]: (entry["run"], entry["reason"]) for entry in record["set_aside"]}
    assert set(aside) == {batch.no_image, batch.stubborn, batch.liar, batch.loses_power}
    assert {node: run for node, (run, _) in aside.items() if run} == {batch.loses_power: 2}
    assert (
        "image" in aside[batch.no_image][1] and "nmi_watchdog wanted 0" in aside[batch.stubborn][1]
    )
    assert f"it sends lines in the name of node {batch.good}" in aside[batch.liar][1]
    assert all(f"node {node}: " in record["reason"] for node in aside)
    assert [(event.node, event.detail) for event in Set(batch.root).events("forged")] == [
        (batch.liar, f"left {batch.good} ")
    ]

    # The node comes back, and another allocation goes on where the first one stopped.
    power_on(batch.lab)
    shutil.rmtree(
        batch.folder / f"state/{batch.loses_power}", ignore_errors=True
    )  # /run is empty after a power cut
    for path, content in batch.before[batch.loses_power].items():
        (batch.roots[batch.loses_power] / path).write_bytes(content)
    second = batch.submit(ORCH_SET_DIR=str(batch.root))
    batch.lab.free()
    record = batch.job(second)
    assert record["state"] == "complete", record
    assert {entry["node"] for entry in record["set_aside"]} == {
        batch.no_image,
        batch.stubborn,
        batch.liar,
    }
    assert Set(batch.root).results() == [1, 2, 3]
    states = [Set(batch.root).run(run) for run in (1, 2, 3)]
    assert [state["attempt"] for state in states] == [1, 2, 1]
    assert all(state["nodes"] == [batch.good, batch.loses_power] for state in states)

    table = json.loads(batch.orchestrator("nodes", batch.root, "--json").stdout)
    assert {node["node"] for node in table["nodes"] if node["set_aside"]} == set(aside)
    assert (
        batch.lab.run(
            "docker", "ps", "--all", "--quiet", "--filter", "label=orchestrator.job"
        ).stdout
        == ""
    )
    assert batch.clean()
    assert differences(batch.root) == []


@pytest.mark.long
def test_a_node_set_down_between_two_runs(batch: Batch) -> None:
    """Slurm takes it out of the job, and has it idle again within a second (ReturnToService=2)."""
    nodes = batch.nodes[:3]
    code = write_code(batch.folder / "code", AFTER_THE_FIRST)
    site = yaml.safe_load(batch.lab.run(TOP / "lab/site").stdout)
    site |= {"log_dir": str(batch.log_dir), "nodelist": [*nodes], "spares": 1}
    site |= {"code": {"builtin": str(code)}}
    (batch.folder / "site.yaml").write_text(yaml.safe_dump(site))
    answer = batch.orchestrator(
        "render", "local_2x2x8", "builtin", "--nexp", "2", "-o", batch.bundle
    )
    assert answer.returncode == 0, answer.stderr
    job = batch.submit()
    until(lambda: list(batch.log_dir.glob("*/set.json")))
    until(lambda: Set(batch.root).results() == [1])
    batch.lab.run("scontrol", "update", f"nodename={nodes[1]}", "state=down", "reason=fan")
    (code / "goes_on").touch()
    until(lambda: batch.lab.has_ended(job))
    batch.lab.free()
    record = batch.job(job)
    assert record["state"] == "complete", record
    assert Set(batch.root).results() == [1, 2]
    assert Set(batch.root).run(1)["attempt"] == 1
    assert Set(batch.root).run(2)["nodes"] == [nodes[0], nodes[2]]
    assert differences(batch.root) == []
