"""One set that has a bad day: how it is made, what of it is at work, and how it is brought to its end."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine import settings_owners

TOP = Path(__file__).resolve().parents[2]
RESUMES = 6
LIMIT_S = 180.0
ATTEMPTS = 20
"""Of each run: more than a trial of the campaign has faults, so every run must end well."""

SYSTEM = """kind: system
name: faulty
accelerator: cpu
nodes: {nodes}
gpus_per_node: 1
workloads:
  builtin:
    "1.0": {{micro_batch: 8, global_batch: {batch}}}
"""
SITE = """kind: site
scheduler: {scheduler}
log_dir: {log_dir}
container: {{{container}}}
network: {{rdma: "off", socket_ifname: lo, gloo_socket_ifname: lo}}
{tuning}
preflight: {{free_gb: 0}}
limits: {{run_timeout_minutes: 0.35, end_grace_seconds: 2, container_start_seconds: 40}}
"""


@dataclass(frozen=True)
class Flavour:
    """What a set runs on. `spares`: nodes beyond those that work."""

    name: str
    nodes: int
    spares: int = 0
    engine: str = "none"
    slurm: bool = False
    tuned: bool = False


FLAVOURS = {
    one.name: one
    for one in (
        Flavour("local", 2),
        Flavour("docker", 3, 1, "docker", slurm=True, tuned=True),
        Flavour("podman", 2, 1, "podman", slurm=True),
    )
}


class NothingToHit(Exception):
    """The moment was wrong: what the fault is aimed at is not there."""


@dataclass
class Trial:
    """A set in a folder of its own. `runs`: how many it has by now; `env`: how commands reach the
    cluster.
    """

    flavour: Flavour
    root: Path
    dice: random.Random
    runs: int = 3
    env: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    podman: str = ""
    set: Path = Path()
    faults: list[str] = field(default_factory=list)
    """For BUILTIN_FAULT."""
    said: list[str] = field(default_factory=list)
    """What commands said that they should not: tracebacks, exit codes that no document knows."""
    undo: list[Callable[[], object]] = field(default_factory=list)
    """What the faults broke in the cluster, mended before the set goes on to its end."""
    at_end: list[Callable[[], object]] = field(default_factory=list)
    """What is taken away only when the trial is over."""
    damaged: bool = False
    """Whether a fault changed records: a replay of them proves nothing then."""
    results: dict[str, str] = field(default_factory=dict)
    """Hash of every published result when it was first seen."""
    published: list[float] = field(default_factory=list)
    """time.monotonic() of when each was."""

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True)
        (self.root / "results").mkdir()
        flavour = self.flavour
        container = f"engine: {flavour.engine}, pull: never"
        if flavour.engine == "podman":
            container += f", command: [{self.podman}]"
        (self.root / "faulty.yaml").write_text(
            SYSTEM.format(nodes=flavour.nodes, batch=8 * flavour.nodes)
        )
        site = SITE.format(
            scheduler="slurm\npartition: batch" if flavour.slurm else "local",
            log_dir=self.root / "results",
            container=container if flavour.slurm else "engine: none",
            tuning="tuning: {lease_seconds: 4}"
            if flavour.tuned
            else 'tunables: "off"\nclear_caches: false',
        )
        (self.root / "site.yaml").write_text(site)
        self.env |= {"PYTHONPATH": str(TOP), "ORCHESTRATOR_SITE": str(self.root / "site.yaml")}
        self._over = threading.Event()
        self._eye = threading.Thread(target=self._look_at_results, daemon=True)

    def change_site(self, change: Callable[[str], str]) -> None:
        """Write another site file, before the set is submitted."""
        path = self.root / "site.yaml"
        path.write_text(change(path.read_text()))

    def wrap_python(self, lines: str) -> None:
        """Have the set's loop and agents started through a script with `lines`, in which "$@" are the words for Python."""
        path = self.root / "python3"
        if not path.exists():
            self.change_site(lambda text: f"{text}python: {path}\n")
            path.write_text('#!/bin/bash\nexec python3 "$@"\n')
            path.chmod(0o755)
        path.write_text(path.read_text().replace("#!/bin/bash\n", f"#!/bin/bash\n{lines}", 1))

    # ---- the command line

    def start_command(self, *words: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "orchestrator", *words]
        return subprocess.Popen(
            argv,
            env=self.env,
            cwd=self.root,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def command(
        self, *words: str, codes: tuple[int, ...] = (0,)
    ) -> subprocess.CompletedProcess[str]:
        """Run a command; another exit code than `codes`, a traceback and a hang are findings."""
        process = self.start_command(*words)
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            self.said.append(f"{words[0]}: does not end")
        if process.returncode not in codes or "Traceback" in out + err:
            self.said.append(
                f"{words[0]}: exit {process.returncode}: {(err or out)[-300:].strip()}"
            )
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def slurm(self, *argv: str) -> str:
        return subprocess.run(
            argv, env=self.env, text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        ).stdout

    def submit_words(self) -> list[str]:
        words = ["submit", str(self.root / "faulty.yaml"), "builtin", "--nexp", str(self.runs)]
        words += ["--override", f"limits.attempts={ATTEMPTS}"]
        words += ["--spares", str(self.flavour.spares)] if self.flavour.spares else []
        return words + (["--env", f"BUILTIN_FAULT={','.join(self.faults)}"] if self.faults else [])

    def submit(self) -> None:
        answer = self.command(*self.submit_words())
        self.find()
        if self.set == Path():
            raise RuntimeError(f"there is no set: {answer.stderr}")

    def find(self) -> None:
        """Take the set that is there as this trial's."""
        sets = sorted((self.root / "results").glob("*/set.json"))
        if sets:
            self.set = sets[-1].parent
            if not self._eye.is_alive():
                self._eye.start()

    # ---- what is at work

    def job(self) -> str:
        """The newest job of the set; "" before it is known."""
        jobs = sorted((self.set / "jobs").glob("*.json"), key=lambda path: path.stat().st_mtime)
        if jobs:
            return jobs[-1].stem
        for path in sorted((self.set / "submissions").glob("[0-9]*.json"), reverse=True):
            found = re.search(r'"job_id": "([^"]+)"', path.read_text())
            if found:
                return found[1]
        return ""

    def alive(self) -> bool:
        """Whether a job of the set is on its way, by the scheduler's word or its processes."""
        if self.flavour.slurm:
            return bool(
                self.slurm(
                    "squeue", "--noheader", "--format=%i", f"--name=orch-{self.set.name}"
                ).strip()
            )
        return bool(self.processes())

    def processes(self, role: str = "") -> list[int]:
        """Processes of the set: `loop`, `agent` (one per node), `warden` (its first child), `training`; all of them by default."""
        found: dict[str, list[int]] = {
            "loop": [],
            "agent": [],
            "warden": [],
            "training": [],
            "other": [],
        }
        mark = os.fsencode(self.set.name)
        containers = self.containers(long=True)
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes()
                ours = mark in words or mark in (entry / "environ").read_bytes()
                if not ours and containers and b"train.py" in words:
                    ours = any(one in (entry / "cgroup").read_text() for one in containers)
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                above = (
                    Path(f"/proc/{parent}/cmdline").read_bytes()
                    if ours and b"node\0hold" in words
                    else b""
                )
            except (OSError, IndexError):
                continue
            if not ours or b"orchestrator\0" in words or int(entry.name) == os.getpid():
                continue
            kind = "other"
            if b"\0loop\0" in words:
                kind = "loop"
            elif (
                b"node\0hold" in words
                and words.startswith((b"python", b"/"))
                and b"python" in words.split(b"\0")[0]
            ):
                kind = (
                    "warden"
                    if b"node\0hold" in above and b"python" in above.split(b"\0")[0]
                    else "agent"
                )
            elif b"train.py" in words and b"python" in words.split(b"\0")[0]:
                kind = "training"
            found[kind].append(int(entry.name))
        return found[role] if role else sorted(pid for pids in found.values() for pid in pids)

    def one(self, role: str) -> int:
        """One process of that role, which may take a while to be there. Raises NothingToHit."""
        self.wait(lambda: self.processes(role) or not self.processes("loop"))
        found = self.processes(role)
        if not found:
            raise NothingToHit(role)
        return self.dice.choice(found)

    def containers(self, *, long: bool = False) -> list[str]:
        if self.flavour.engine == "none" or self.set == Path():
            return []
        engine = self.podman or "docker"
        words = [
            engine,
            "ps",
            "--all",
            "--quiet",
            "--filter",
            f"label=orchestrator.set={self.set.name}",
        ]
        return self.slurm(*words, *(["--no-trunc"] if long else [])).split()

    def owners(self) -> list[str]:
        """Which nodes of the set's jobs still hold the machine's settings, as JOB-NODE."""
        jobs = [path.stem for path in (self.set / "jobs").glob("*.json")]
        nodes = [path.name for path in (self.set / "nodes").glob("*")]
        return [
            one
            for one in settings_owners() or ()
            if any(one == f"{job}-{node}" for job in jobs for node in nodes)
        ]

    def container(self) -> str:
        """One container of the set, which may take a while to be there. Raises NothingToHit."""
        self.wait(lambda: self.containers() or not self.processes("loop"))
        found = self.containers()
        if not found:
            raise NothingToHit
        return self.dice.choice(found)

    def picture(self) -> dict[str, Any]:
        answer = self.command("status", str(self.set), "--json")
        try:
            return dict(json.loads(answer.stdout))
        except ValueError:
            return {}

    @property
    def complete(self) -> bool:
        """Whether the set has the runs that it was given, and all of them are done."""
        picture = self.picture()
        return (picture.get("state"), picture.get("nexp")) == ("complete", self.runs)

    # ---- to its end

    def wait(self, done: Callable[[], object], limit_s: float = LIMIT_S) -> bool:
        deadline = time.monotonic() + limit_s
        while not done():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def mend(self) -> None:
        """Take back what faults broke in the cluster."""
        while self.undo:
            self.undo.pop()()

    def go_on(self, more: int) -> bool:
        """Have a job at work on the set again; a complete set gets `more` runs. False if no job
        starts.
        """
        if self._is_at_work():
            return True
        self.mend()
        if self._is_at_work():  # its job waited for a node
            return True
        for _ in range(RESUMES):
            runs = self.runs + more * self.complete
            # The exit code is 4 for a job started by hand, which only its process shows.
            codes = (0, 4, 5) if self.processes("loop") else (0, 5)
            answer = self.command("resume", str(self.set), "--nexp", str(runs), codes=codes)
            if answer.returncode and runs > self.runs:  # refused: the last job is still ending
                self.wait(lambda: not self.alive())
                continue
            self.runs = runs
            self.wait(self.alive, 10)  # a local job's first process may take a moment
            if self._is_at_work():
                return True
        return False

    def _is_at_work(self) -> bool:
        """Return whether a job works on missing runs; wait for the loop of one that is on its way."""
        if not self.alive() or self.complete:
            return False
        self.wait(lambda: self.processes("loop") or not self.alive(), 60)
        return bool(self.processes("loop"))

    def come_further(self, more: int) -> None:
        """Let the set work undisturbed until its next result, or the end of its job."""
        before = len(self.published)
        if self.go_on(more):
            self.wait(lambda: len(self.published) > before or not self.alive())

    def recover(self) -> None:
        """Resume until the set is complete."""
        self.mend()
        for _ in range(RESUMES):
            if not self.wait(lambda: not self.alive(), LIMIT_S * self.runs / 3):
                self.said.append("its job does not end")
                return
            if self.complete:
                return
            self.command("resume", str(self.set), codes=(0, 5))
        self.said.append(
            f"not complete after {RESUMES} times resume: {self.picture().get('reason')}"
        )

    def waited_s(self, moment: float) -> float:
        """Seconds from `moment` to the next result, or to now when there was none left to come."""
        return (
            min((one for one in self.published if one > moment), default=time.monotonic()) - moment
        )

    def _look_at_results(self) -> None:
        while not self._over.wait(0.05):
            for path in self.set.glob("runs/*/result_*.txt"):
                try:
                    hashed = hashlib.sha256(path.read_bytes()).hexdigest()
                except OSError:
                    continue
                if path.name not in self.results:
                    self.published.append(time.monotonic())
                if self.results.setdefault(path.name, hashed) != hashed:
                    self.said.append(f"{path.name} was replaced")
                    self.results[path.name] = hashed

    def close(self, *, keep: bool = False) -> None:
        self._over.set()
        while self.at_end:
            self.at_end.pop()()
        if not keep:
            shutil.rmtree(self.root, ignore_errors=True)
