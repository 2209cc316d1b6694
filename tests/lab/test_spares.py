"""Ten nodes of a real Slurm for a set that needs eight: one has no image, one a host setting that refuses, one loses power."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from replayed import differences
from run_sets import Set
from until import LIMIT_S, until

if TYPE_CHECKING:
    from labs import Lab

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tuning"))
from tuning_parts import STUBBORN, fill, snapshot

pytestmark = pytest.mark.lab

TOP = Path(__file__).resolve().parents[2]

NMI = "proc/sys/kernel/nmi_watchdog"
NO_IMAGE, STUBBORN_KNOB, LOSES_POWER = "sp3", "sp6", "sp5"
# An engine that has no image on one node: all nodes of the lab share one store.
ENGINE = f"""#!/bin/sh
if [ "$SLURMD_NODENAME" = {NO_IMAGE} ] && [ "$1" = image ]; then echo 'Error: No such image' >&2; exit 1; fi
exec docker "$@"
"""


class Batch:
    """One set of ten runs, started with `sbatch job.sh` as a user without our command would."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.folder = lab, lab.shared / "spares"
        self.log_dir, self.bundle = self.folder / "results", self.folder / "bundle"
        self.log_dir.mkdir(parents=True)
        (self.folder / "engine").write_text(ENGINE)
        (self.folder / "engine").chmod(0o755)
        site = lab.run(TOP / "lab/site").stdout.replace(
            "  engine: docker\n", f"  engine: docker\n  command: [{self.folder}/engine]\n"
        )
        lines = [f"log_dir: {self.log_dir}" if line.startswith("log_dir:") else line for line in site.splitlines()]
        (self.folder / "site.yaml").write_text("\n".join([*lines, "spares: 2", "limits: {attempts: 1}", ""]))
        self.roots = {node: fill(self.folder / "host" / node, cpus=2, gpus=1) for node in lab.nodes}
        (self.roots[STUBBORN_KNOB] / NMI).unlink()
        (self.roots[STUBBORN_KNOB] / NMI).symlink_to(STUBBORN)
        self.before = {node: snapshot(root) for node, root in self.roots.items()}
        self.env = lab.env | {
            "PYTHONPATH": str(TOP),
            "ORCHESTRATOR_SITE": str(self.folder / "site.yaml"),
            "ORCH_TUNABLES_ROOT": str(self.folder / "host/%n"),
            "ORCH_TUNABLES_STATE": str(self.folder / "state/%n"),
        }

    def orchestrator(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "orchestrator", *map(str, words)],
            env=self.env,
            text=True,
            cwd=self.folder,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )

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

    def idle(self) -> bool:
        return not self.lab.run("squeue", "--noheader", "--format=%i").stdout

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
            words, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes().split(b"\0")
            conf = f"SLURM_CONF={lab.env['SLURM_CONF']}".encode()
            # A step's daemon carries its node in its title only.
            if (name in environ and conf in environ) or (words.startswith(b"slurmstepd:") and _parent(entry) == pid):
                victims.append(int(entry.name))
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    for container in lab.run("docker", "ps", "--quiet", "--filter", f"label=orchestrator.node={node}").stdout.split():
        lab.run("docker", "kill", container, check=False)


def _parent(entry: Path) -> int:
    return int((entry / "stat").read_text().rpartition(")")[2].split()[1])


def test_three_bad_nodes_of_ten(another_lab: Callable[[int, str], Lab]) -> None:
    ten = another_lab(10, "sp")
    one = Batch(ten)
    fault = "slow:run=4:attempt=1:ms=100"
    answer = one.orchestrator(
        "render", "MI325X_08x08x32", "flux1", "--nexp", "10", "-o", one.bundle, "--env", f"BUILTIN_FAULT={fault}"
    )
    assert answer.returncode == 0, answer.stderr
    assert "#SBATCH --nodes=10\n" in (one.bundle / "job.sh").read_text()
    first = one.submit()
    until(lambda: list(one.log_dir.glob("*/runs/4/attempt_1/node_0.log")))
    log = one.root / "runs/4/attempt_1/node_0.log"
    until(lambda: "run_start" in log.read_text())
    cut_power(ten, LOSES_POWER)
    until(lambda: not ten.run("squeue", "--noheader", "--states=running").stdout)
    record = one.job(first)
    # Seven of ten are left: the set pauses, and says why.
    assert record["state"] == "paused", record
    assert "7 of 10 nodes are fit, 8 are needed" in record["reason"]
    aside = {entry["node"]: (entry["run"], entry["reason"]) for entry in record["set_aside"]}
    assert set(aside) == {NO_IMAGE, STUBBORN_KNOB, LOSES_POWER}
    assert aside[NO_IMAGE][0] == 0 and "image" in aside[NO_IMAGE][1]
    assert aside[STUBBORN_KNOB][0] == 0 and "nmi_watchdog wanted 0" in aside[STUBBORN_KNOB][1]
    assert aside[LOSES_POWER][0] == 4
    for node in aside:
        assert f"node {node}: " in record["reason"]

    # Slurm itself waits another minute for words of the dead node before it lets go of the job; an administrator need not.
    for state in ("down", "resume"):
        ten.run("scontrol", "update", f"nodename={','.join(ten.nodes)}", f"state={state}", "reason=lost power")
    # The node comes back, and another allocation goes on where the first one stopped.
    env = os.environ | {"ORCHESTRATOR_LAB": str(ten.state)}
    subprocess.run(
        [TOP / "lab/up"],
        env={k: v for k, v in env.items() if k not in ("SLURM_CONF", "DOCKER_HOST")},
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_S,
    )
    shutil.rmtree(one.folder / f"state/{LOSES_POWER}", ignore_errors=True)  # /run is empty after a power cut
    for path, content in one.before[LOSES_POWER].items():
        (one.roots[LOSES_POWER] / path).write_bytes(content)
    second = one.submit(ORCH_SET_DIR=str(one.root))
    until(one.idle)
    record = one.job(second)
    assert record["state"] == "complete", record
    assert {entry["node"] for entry in record["set_aside"]} == {NO_IMAGE, STUBBORN_KNOB}
    assert len(list((one.root / "results").glob("result_*.txt"))) == 10
    states = [Set(one.root).run(run) for run in range(1, 11)]
    assert {state["state"] for state in states} == {"success"}
    assert [state["attempt"] for state in states] == [1, 1, 1, 2, 1, 1, 1, 1, 1, 1]
    assert all(not {NO_IMAGE, STUBBORN_KNOB} & set(state["nodes"]) for state in states)
    assert len({state["seed"] for state in states}) == 10

    table = json.loads(one.orchestrator("nodes", one.root, "--json").stdout)
    named = {node["node"] for node in table["nodes"] if node["set_aside"]}
    assert named == {NO_IMAGE, STUBBORN_KNOB, LOSES_POWER}
    assert one.orchestrator("score", one.root).returncode == 0
    assert ten.run("docker", "ps", "--all", "--quiet", "--filter", "label=orchestrator.job").stdout == ""
    assert one.clean()
    assert differences(one.root) == []
