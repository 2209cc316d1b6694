"""Two nodes of a real Slurm with real containers: tuned before, always reverted after."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine
import pytest
from command_line import call
from machine import TUNABLES_STATE
from replayed import differences
from sites import write_code
from tuning_parts import (
    TOP,
    channels_of,
    fill,
    loops,
    processes,
    snapshot,
    watchdogs,
)
from until import until

from orchestrator.cli import main
from orchestrator.evidence.attempts import drifts
from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.starts import attempt_starts
from orchestrator.tuning.rows import parse_rows

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab

NMI = "proc/sys/kernel/nmi_watchdog"
SLOW = "slow:run=1:attempt=1:ms=100"


class Place:
    """A folder on shared storage with a site file and, for rehearsals, a root for each node."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.log_dir = folder / "results"
        self.bundle = folder / "bundle"
        self.jobs = set[str]()
        self.log_dir.mkdir(parents=True)
        self.nodes = lab.nodes[:2]
        self.site = folder / "site.yaml"
        text = lab.run(TOP / "lab/site").stdout
        self.site.write_text(
            "".join(
                f"log_dir: {self.log_dir}\n" if line.startswith("log_dir:") else line
                for line in text.splitlines(keepends=True)
            )
            + f"limits: {{attempts: 2}}\nnodelist: [{', '.join(self.nodes)}]\n"
        )
        self.env = lab.env | {"PYTHONPATH": str(TOP), "ORCHESTRATOR_SITE": str(self.site)}
        self.machine: dict[str, bytes] | None = None
        """The machine's own settings before a test that changes them."""

    def real_knobs(self) -> None:
        """Wait until no other set holds the machine's own settings."""
        until(lambda: not TUNABLES_STATE.exists())
        self.machine = machine.knobs()

    def fake_roots(self) -> dict[str, Path]:
        self.env |= {
            "ORCH_TUNABLES_ROOT": str(self.folder / "host/%n"),
            "ORCH_TUNABLES_STATE": str(self.folder / "state/%n"),
        }
        return {node: fill(self.folder / "host" / node, cpus=2, gpus=1) for node in self.nodes}

    def orchestrator(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return call(arguments, self.env, cwd=self.folder)

    def gate(self) -> Path:
        """Have run 1 wait, once it prints `waits`, until the file that this returns is there."""
        waits = '[ "$ORCH_RUN" != 1 ] || { echo waits; until [ -e go ]; do sleep 0.05; done; }'
        code = write_code(self.folder / "code", waits)
        with self.site.open("a") as file:
            file.write(f"code: {{builtin: {code}}}\n")
        return code / "go"

    def submit(self, nexp: int = 1, fault: str = "", lease_s: int = 3600) -> str:
        with self.site.open("a") as file:
            file.write(f"tuning: {{profile: recommended, lease_seconds: {lease_s}}}\n")
        arguments = ("--nexp", str(nexp), *(("--env", f"BUILTIN_FAULT={fault}") if fault else ()))
        answer = self.orchestrator(
            "render", "local_2x2x8", "builtin", *arguments, "-o", self.bundle
        )
        assert answer.returncode == 0, answer.stderr
        return self.sbatch("job.sh")

    def sbatch(self, *arguments: str) -> str:
        job = subprocess.run(
            ["sbatch", "--parsable", *arguments],
            cwd=self.bundle,
            env=self.env,
            text=True,
            capture_output=True,
            check=True,
        ).stdout.strip()
        self.jobs.add(job)
        return job

    def running(self) -> list[str]:
        """Return this place's jobs in the queue: other tests may leave theirs."""
        return [job for job in self.lab.queue() if job in self.jobs]

    def end(self) -> None:
        self.set_dir()
        until(lambda: not self.running())

    def set_dir(self) -> Path:
        until(lambda: list(self.log_dir.glob("*/set.json")))
        [record] = self.log_dir.glob("*/set.json")
        return record.parent

    def job(self) -> dict[str, Any]:
        [record] = (self.set_dir() / "jobs").glob("*.json")
        return dict(json.loads(record.read_text()))

    def in_run(self, prints: str = "run_start") -> Path:
        """Wait until the first attempt of run 1 prints this; returns its folder."""
        folder = self.set_dir() / "runs/1/attempt_1"
        log = folder / "node_0.log"
        until(lambda: log.exists() and prints in log.read_text())
        return folder

    def has_reverted(self, node: str) -> bool:
        """Whether the agent has put everything back, and not a watchdog."""
        rows = (self.set_dir() / f"nodes/{node}/tunables.tsv").read_text().splitlines()
        return rows[-1].split("\t")[4:7] == ["complete", "-", "revert"]

    def revert(self) -> None:
        """`tune revert` on every node. In a rehearsal the environment names its folder."""
        for node in self.nodes if "ORCH_TUNABLES_ROOT" in self.env else [""]:
            with pytest.MonkeyPatch.context() as patch:
                for name, text in self.env.items():
                    is_folder = name.startswith("ORCH_TUNABLES_")
                    patch.setenv(name, text.replace("%n", node) if is_folder else text)
                assert main(["tune", "revert", "--json"]) == 0

    def is_back(self) -> bool:
        """Whether the machine's own settings are as before a test that changes them."""
        if self.machine is None:
            return True
        return machine.knobs() == self.machine and not TUNABLES_STATE.exists()


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # another one took it along
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def host_as_it_was() -> None:
    """Most tests do not touch the machine's settings; `place` checks them otherwise."""


@pytest.fixture
def place(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Place]:
    place = Place(lab, lab.shared / f"tuning-{os.getpid()}-{request.node.name}")
    yield place
    for job in place.running():
        lab.run("scancel", job, check=False)
    until(lambda: not place.running())
    until(place.is_back)
    until(lambda: not watchdogs(place.folder) and not (place.machine and watchdogs(TUNABLES_STATE)))
    assert differences(place.folder) == []
    shutil.rmtree(place.folder)


@pytest.mark.long
def test_drift_gate_and_a_second_attempt(place: Place) -> None:
    """A setting changes during run 1: recorded at its end, and set again before run 2."""
    roots = place.fake_roots()
    before = {node: snapshot(root) for node, root in roots.items()}
    go = place.gate()
    place.submit(2)
    place.in_run("waits")
    assert {(root / NMI).read_text() for root in roots.values()} == {"0\n"}
    first, second = place.nodes
    (roots[second] / NMI).write_text("1\n")
    go.touch()
    place.end()
    set_dir = place.set_dir()
    assert place.job()["state"] == "complete", place.job()
    [drift] = drifts(SetEvidence(set_dir))
    assert (drift.run, drift.attempt, drift.node, drift.knob, drift.wanted, drift.found) == (
        1,
        1,
        second,
        "nmi_watchdog",
        "0",
        "1",
    )
    refused = json.loads((set_dir / "runs/2/attempt_1/state.json").read_text())
    assert refused["outcome"] == "infrastructure"
    assert refused["reason"] == f"node {second} (rank 1): nmi_watchdog wanted 0, found 1"
    assert json.loads((set_dir / "runs/2/attempt_2/state.json").read_text())["outcome"] == "success"
    starts = {(one.run, one.attempt): one for one in attempt_starts(SetEvidence(set_dir))}
    assert set(starts) == {(1, 1), (2, 2)}
    for key, start in starts.items():
        attempt = set_dir / f"runs/{key[0]}/attempt_{key[1]}"
        log = "".join((attempt / name).read_text() for name in ("cache_clear.log", "node_0.log"))
        times = {
            word: json.loads(line.split(":::MLLOG ", 1)[1])["time_ms"]
            for line in log.splitlines()
            for word in ("cache_clear", "run_start")
            if f'"key": "{word}"' in line
        }
        assert set(start.caches) == set(place.nodes)
        assert all(
            cache.ready_ms <= times["cache_clear"] <= times["run_start"]
            for cache in start.caches.values()
        )
        assert (
            start.value("kernel", second) == "6.8.0-60-generic"
            and start.value("gpu.firmware.smc", first) == "0x00557101"
        )
        assert (
            start.value("image", second).startswith("sha256:")
            and start.value("knob.nmi_watchdog", second) == "0"
        )
    for node, root in roots.items():
        assert (root / "proc/sys/vm/drop_caches").read_text() == "3\n"
        (root / "proc/sys/vm/drop_caches").write_text("0\n")
        assert snapshot(root) == before[node]
        rows = parse_rows((set_dir / f"nodes/{node}/tunables.tsv").read_text().splitlines())
        assert {row.action for row in rows} == {"apply", "revert"} and not [
            row for row in rows if row.broken
        ]


# ---- endings: the values before and after are the same, byte for byte ----


class Knobs:
    """The settings that a set tunes: those of this machine for all nodes, or a folder per node."""

    def __init__(self, place: Place, real: bool) -> None:
        self.place = place
        if real:
            place.real_knobs()
        self.roots = {} if real else place.fake_roots()
        self.before = self.now()

    def now(self) -> dict[str, bytes]:
        if not self.roots:
            return machine.knobs()
        # drop_caches is a command, not a setting.
        return {
            f"{node} {name}": text
            for node, root in self.roots.items()
            for name, text in snapshot(root).items()
            if name != "proc/sys/vm/drop_caches"
        }

    def changed_nodes(self) -> set[str]:
        """The nodes with changed values; this machine's settings belong to all."""
        values = self.now().items()
        changed = {name.split()[0] for name, text in values if text != self.before[name]}
        return changed if self.roots or not changed else set(self.place.nodes)

    def held(self) -> bool:
        if not self.roots:
            return TUNABLES_STATE.exists()
        return any((self.place.folder / "state").glob("*/*"))

    def put_back(self) -> bool:
        return self.now() == self.before and not self.held()


def knobs_of(place: Place, kind: str) -> Knobs:
    if kind == "real knobs" and not machine.KNOBS:
        pytest.skip("this kernel has none of the knobs")
    return Knobs(place, kind == "real knobs")


def tuned(knobs: Knobs) -> bool:
    return knobs.changed_nodes() == set(knobs.place.nodes)


@pytest.mark.parametrize(
    ("how", "kind", "state"),
    [
        pytest.param("scancel", "real knobs", "cancelled", marks=pytest.mark.long),
        ("pre-empted", "two roots", "paused"),
    ],
)
def test_nothing_is_left_soon_after_the_job_is_ended(
    place: Place, request: pytest.FixtureRequest, how: str, kind: str, state: str
) -> None:
    knobs = knobs_of(place, kind)
    job = place.submit(fault=SLOW)
    attempt = place.in_run()
    label = f"label=orchestrator.set={place.set_dir().name}"

    def containers() -> list[str]:
        return place.lab.run("docker", "ps", "--all", "--quiet", "--filter", label).stdout.split()

    assert len(containers()) == 2 and tuned(knobs)
    if how == "scancel":
        place.lab.run("scancel", job)
    else:
        delete = ("scontrol", "delete", "partition=urgent")
        request.addfinalizer(lambda: place.lab.run(*delete, check=False))
        partition = ("partition=urgent", "nodes=ALL", "prioritytier=100", "maxtime=10")
        place.lab.run("scontrol", "create", *partition)
        options = ("--partition=urgent", "--exclusive", f"--nodelist={','.join(place.nodes)}")
        place.sbatch(*options, "--output=/dev/null", "--wrap=true")
        running = ("squeue", "--noheader", "--format=%i", "--states=RUNNING")
        until(lambda: job not in place.lab.run(*running).stdout)
    until(lambda: not containers())
    until(lambda: knobs.put_back() and place.job()["ended_ms"])
    until(lambda: all(place.has_reverted(node) for node in place.nodes))
    assert place.job()["state"] == state and how.split("-")[0] in place.job()["reason"], place.job()
    root = place.set_dir()
    until(lambda: not (root / "loop.lock").exists())
    until(lambda: not processes(str(root)))
    record = json.loads((attempt / "state.json").read_text())
    assert (record["state"], record["outcome"]) == ("failed", "interrupted"), record
    until(lambda: not place.running())


@pytest.mark.parametrize(
    ("kind", "by"),
    [("real knobs", "watchdog"), pytest.param("two roots", "tune revert", marks=pytest.mark.long)],
)
def test_put_back_after_everything_was_killed(place: Place, kind: str, by: str) -> None:
    """SIGKILL for the driver, its steps and the nodes' processes, as after a crash."""
    knobs = knobs_of(place, kind)
    job = place.submit(fault=SLOW, lease_s=1 if by == "watchdog" else 3600)
    place.in_run()
    assert tuned(knobs)
    set_dir = str(place.set_dir())
    program = f"{set_dir}/program"
    agents = processes(program, "hold")
    batch = loops(place.bundle, job, place.env["SLURM_CONF"])
    channels = channels_of(agents)
    assert (len(channels), len(batch)) == (len(place.nodes), 1)
    # The loop is stopped first: it would see the others end, and revert.
    for pid in batch:
        os.kill(pid, signal.SIGSTOP)
    for pids in (agents, batch, processes("srun", program)):
        kill(pids)
    place.lab.run("scancel", "--signal=KILL", job, check=False)
    until(lambda: not place.running() and not processes(program, "hold"))
    if by == "tune revert":
        assert tuned(knobs) and knobs.held()
        place.revert()
        assert knobs.now() == knobs.before
    until(knobs.put_back)
    until(lambda: not processes(set_dir))
    # Left by the killed processes. The next agent on this machine would also remove them.
    for channel in channels:
        shutil.rmtree(channel, ignore_errors=True)
