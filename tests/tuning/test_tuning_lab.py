"""Eight nodes of a real Slurm with real containers: tuned before, put back after, whatever happens in between."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tuning_parts import STUBBORN, TOP, fill, snapshot, wait_for, watchdogs

from orchestrator.tuning.experiment import attempt_starts, drifts
from orchestrator.tuning.rows import parse_rows

if TYPE_CHECKING:
    from conftest import Lab

pytestmark = pytest.mark.lab

STATE = Path("/run/orchestrator-tunables")
KNOBS = [path for path in map(Path, (
    "/proc/sys/kernel/nmi_watchdog", "/proc/sys/kernel/numa_balancing", "/proc/sys/kernel/randomize_va_space",
    "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/mm/transparent_hugepage/defrag")) if path.exists()]
NMI = "proc/sys/kernel/nmi_watchdog"


class Place:
    """A folder on the lab's shared storage with a site file and, for rehearsals, one root folder per node."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder, self.log_dir, self.bundle = lab, folder, folder / "results", folder / "bundle"
        self.log_dir.mkdir(parents=True)
        self.site = folder / "site.yaml"
        text = lab.run(TOP / "lab/site").stdout
        self.site.write_text("".join(f"log_dir: {self.log_dir}\n" if line.startswith("log_dir:") else line
                                     for line in text.splitlines(keepends=True)) + "limits: {attempts: 2}\n")
        self.env = lab.env | {"PYTHONPATH": str(TOP), "ORCHESTRATOR_SITE": str(self.site)}

    def fake_roots(self) -> dict[str, Path]:
        self.env |= {"ORCH_TUNABLES_ROOT": str(self.folder / "host/%n"), "ORCH_TUNABLES_STATE": str(self.folder / "state/%n")}
        return {node: fill(self.folder / "host" / node, cpus=2, gpus=1) for node in self.lab.nodes}

    def orchestrator(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "orchestrator", *map(str, words)], env=self.env, text=True, cwd=self.folder,
                              capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)

    def submit(self, nexp: int, fault: str = "", tuning: str = "{lease_seconds: 60}") -> str:
        lines = [line for line in self.site.read_text().splitlines() if not line.startswith("tuning:")]
        self.site.write_text("\n".join([*lines, f"tuning: {tuning}", ""]))
        words = ["--env", f"BUILTIN_FAULT={fault}"] if fault else []
        answer = self.orchestrator("render", "MI325X_08x08x32", "flux1", "--nexp", str(nexp), "--force", "-o", self.bundle, *words)
        assert answer.returncode == 0, answer.stderr
        job = subprocess.run(["sbatch", "--parsable", "job.sh"], cwd=self.bundle, env=self.env, text=True, capture_output=True, check=True)
        return job.stdout.strip()

    def running(self) -> str:
        return self.lab.run("squeue", "--noheader", "--format=%i").stdout

    def end(self) -> None:
        self.set_dir()
        wait_for(lambda: not self.running(), 60)

    def set_dir(self) -> Path:
        wait_for(lambda: list(self.log_dir.glob("*/set.json")), 30)
        [record] = self.log_dir.glob("*/set.json")
        return record.parent

    def job(self) -> dict[str, Any]:
        [record] = (self.set_dir() / "jobs").glob("*.json")
        found: dict[str, Any] = json.loads(record.read_text())
        return found

    def in_run(self, run: int) -> Path:
        """Wait until the first attempt of a run trains; returns its folder."""
        folder = self.set_dir() / f"runs/{run}/attempt_1"
        wait_for(lambda: (folder / "node_0.log").exists() and "run_start" in (folder / "node_0.log").read_text(), 40)
        return folder

    def processes(self, *words: str) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                text = path.read_bytes().decode(errors="replace")
            except OSError:
                continue
            if all(word in text for word in words):
                found.append(int(path.parent.name))
        return found


@pytest.fixture
def place(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Place]:
    wait_for(lambda: not STATE.exists(), 30)
    before = [path.read_bytes() for path in KNOBS]
    made = Place(lab, lab.shared / f"tuning-{os.getpid()}-{request.node.name}")
    yield made
    for job in made.running().split():
        lab.run("scancel", job, check=False)
    wait_for(lambda: not made.running(), 30)
    wait_for(lambda: [path.read_bytes() for path in KNOBS] == before and not STATE.exists(), 20)
    wait_for(lambda: not watchdogs(STATE) and not watchdogs(made.folder), 5)
    shutil.rmtree(made.folder)


def test_drift_gate_and_a_second_attempt(place: Place) -> None:
    """Somebody changes a knob of one node during run 1: recorded at its end, refused before run 2, set again, and run 2 is good."""
    roots = place.fake_roots()
    before = {node: snapshot(root) for node, root in roots.items()}
    place.submit(2, "slow:run=1:attempt=1:ms=20")
    place.in_run(1)
    assert {(root / NMI).read_text() for root in roots.values()} == {"0\n"}
    (roots["lab3"] / NMI).write_text("1\n")
    place.end()
    set_dir = place.set_dir()
    assert place.job()["state"] == "complete", place.job()
    [drift] = drifts(set_dir)
    assert (drift.run, drift.attempt, drift.node, drift.knob, drift.wanted, drift.found) == (1, 1, "lab3", "nmi_watchdog", "0", "1")
    refused = json.loads((set_dir / "runs/2/attempt_1/state.json").read_text())
    assert refused["outcome"] == "infrastructure"
    assert refused["reason"] == "node lab3 (rank 2): nmi_watchdog wanted 0, found 1"
    assert json.loads((set_dir / "runs/2/attempt_2/state.json").read_text())["outcome"] == "success"
    starts = {(one.run, one.attempt): one for one in attempt_starts(set_dir)}
    assert set(starts) == {(1, 1), (2, 2)}
    for key, start in starts.items():
        attempt = set_dir / f"runs/{key[0]}/attempt_{key[1]}"
        log = "".join((attempt / name).read_text() for name in ("cache_clear.log", "node_0.log"))
        times = {word: json.loads(line.split(":::MLLOG ", 1)[1])["time_ms"] for line in log.splitlines() for word in ("cache_clear", "run_start")
                 if f'"key": "{word}"' in line}
        assert set(start.caches) == set(place.lab.nodes)
        assert all(cache.ready_ms <= times["cache_clear"] <= times["run_start"] for cache in start.caches.values())
        assert start.value("kernel", "lab5") == "6.8.0-60-generic" and start.value("gpu.firmware.smc", "lab1") == "0x00557101"
        assert start.value("image", "lab8").startswith("sha256:") and start.value("knob.nmi_watchdog", "lab3") == "0"
    for node, root in roots.items():
        assert (root / "proc/sys/vm/drop_caches").read_text() == "3\n"
        (root / "proc/sys/vm/drop_caches").write_text("0\n")
        assert snapshot(root) == before[node]
        rows = parse_rows((set_dir / f"nodes/{node}/tunables.tsv").read_text().splitlines())
        assert {row.action for row in rows} == {"apply", "revert"} and not [row for row in rows if row.broken]


def test_a_knob_that_refuses_and_nodes_that_differ(place: Place) -> None:
    roots = place.fake_roots()
    (roots["lab4"] / NMI).unlink()
    (roots["lab4"] / NMI).symlink_to(STUBBORN)
    before = {node: snapshot(root) for node, root in roots.items()}
    place.submit(1)
    place.end()
    record = place.job()
    assert record["state"] == "failed"
    assert record["reason"] == f"node lab4 (rank 3): tunables: nmi_watchdog wanted 0, found {STUBBORN.read_text().strip()}"
    assert {node: snapshot(root) for node, root in roots.items()} == before

    (roots["lab4"] / NMI).unlink()
    (roots["lab4"] / NMI).write_text("1\n")
    (roots["lab7"] / "sys/module/amdgpu/version").write_text("6.10.5\n")
    shutil.rmtree(place.set_dir())
    place.submit(1)
    place.end()
    assert place.job()["reason"].startswith("the nodes differ: node lab7 (rank 6): driver is 6.10.5, elsewhere 6.12.12")


def test_real_knobs_after_scancel(place: Place) -> None:
    before = [path.read_bytes() for path in KNOBS]
    job = place.submit(1, "slow:run=1:attempt=1:ms=50")
    place.in_run(1)
    assert [path.read_bytes() for path in KNOBS] != before
    place.lab.run("scancel", job)
    wait_for(lambda: [path.read_bytes() for path in KNOBS] == before, 15)
    wait_for(lambda: not STATE.exists(), 5)


@pytest.mark.parametrize("by", ["watchdog", "tune revert"])
def test_real_knobs_after_everything_was_killed(place: Place, by: str) -> None:
    """SIGKILL for the driver, its steps and the nodes' processes, as after a crash."""
    before = [path.read_bytes() for path in KNOBS]
    job = place.submit(1, "slow:run=1:attempt=1:ms=50", tuning="{lease_seconds: %d}" % (1 if by == "watchdog" else 60))
    place.in_run(1)
    set_dir = str(place.set_dir())
    # First those that would tidy up when the others are gone.
    for words in (("node.sh", "hold", set_dir), ("slurm_script",), ("node.sh", "run", set_dir), ("srun", set_dir)):
        for pid in place.processes(*words):
            os.kill(pid, signal.SIGKILL)
    place.lab.run("scancel", "--signal=KILL", job, check=False)
    if by == "tune revert":
        wait_for(lambda: not place.processes("node.sh", "hold", set_dir), 10)
        assert [path.read_bytes() for path in KNOBS] != before
        answer = place.orchestrator("tune", "revert", "--json")
        assert answer.returncode == 0, answer.stderr
        assert [path.read_bytes() for path in KNOBS] == before
    wait_for(lambda: [path.read_bytes() for path in KNOBS] == before and not STATE.exists(), 8)
    # What only the killed processes could have removed.
    wait_for(lambda: not place.running() and not place.processes(set_dir), 20)
    for channel in Path("/tmp").glob(f"orch-*-{job}-*"):
        shutil.rmtree(channel)
