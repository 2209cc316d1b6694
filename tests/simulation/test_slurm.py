"""The simulated cluster: its answers are read by the real parsers, and its jobs live as those of a real one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.scheduler import Job
from orchestrator.scheduler import slurm as client
from orchestrator.scheduler.command import Answer
from orchestrator.scheduler.slurm import parse_queue
from orchestrator.simulation.engine import Engine
from orchestrator.simulation.slurm import Cluster, Reply, SimJob

SCRIPT = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --time=10
#SBATCH --no-kill
#SBATCH --no-requeue
#SBATCH --signal=B:USR1@120
exec sleep 600
#SBATCH --nodes=4
"""
QUEUE = ("squeue", "--noheader", "--all", "--states=all", f"--format={client.FORMAT}")


@dataclass
class Jobs:
    """A runner whose batch scripts do nothing until a test ends them."""

    engine: Engine
    started: list[SimJob] = field(default_factory=list)
    signals: list[tuple[float, int, bool, tuple[str, ...]]] = field(default_factory=list)
    killed: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    alive: dict[str, set[str]] = field(default_factory=dict)
    on_signal: Callable[[SimJob, int], object] = lambda job, number: None

    def start(self, job: SimJob) -> None:
        self.started.append(job)
        self.alive[job.id] = set(job.nodes)

    def signal(self, job: SimJob, number: int, *, batch_only: bool) -> None:
        self.signals.append((self.engine.now, number, batch_only, tuple(job.nodes)))
        self.on_signal(job, number)

    def kill(self, job: SimJob) -> None:
        self.killed.append((job.id, tuple(job.nodes)))
        self.alive[job.id] -= set(job.nodes)

    def left(self, job: SimJob) -> Collection[str]:
        return self.alive.get(job.id, ())


class Site:
    """A cluster with a script to submit."""

    def __init__(self, folder: Path, **options: float) -> None:
        self.folder, self.engine = folder, Engine(7)
        self.runner = Jobs(self.engine)
        self.cluster = Cluster(self.engine, ["n1", "n2", "n3", "n4"], self.runner, **options)  # type: ignore[arg-type]
        (folder / "job.sh").write_text(SCRIPT)

    def ask(self, *argv: str, uid: int = 1000, env: dict[str, str] | None = None) -> Reply:
        env = {"SLURM_TIME_FORMAT": "%s", "NAME": "value"} if env is None else env
        return self.cluster.command(argv, env, str(self.folder), host="login", uid=uid)

    def submit(self, *options: str) -> str:
        reply = self.ask("sbatch", "--parsable", "--export=ALL", *options, "job.sh")
        assert (reply.status, reply.err) == (0, "")
        return reply.out.strip()

    def running(self, *options: str) -> str:
        job_id = self.submit(*options)
        self.wait(2)
        assert self.state(job_id) == "RUNNING"
        return job_id

    def wait(self, seconds: float) -> None:
        until = self.engine.now + seconds
        while self.engine.turn(until):
            pass
        self.engine.now = until

    def over(self, job_id: str, status: int = 0) -> None:
        """Have the batch script and all steps end."""
        self.runner.alive[job_id] = set()
        self.cluster.ended(job_id, status)
        self.wait(1)

    def queue(self, **options: str) -> dict[str, Job]:
        words = [f"--{name}={value}" for name, value in options.items()]
        reply = self.ask(*QUEUE, *words)
        assert reply.status == 0
        return {job.id: job for job in parse_queue(Answer([*QUEUE], 0, reply.out, reply.err))}

    def state(self, job_id: str) -> str:
        return self.queue()[job_id].state if job_id in self.queue() else ""

    def shown(self, job_id: str) -> dict[str, str]:
        reply = self.ask("scontrol", "--oneliner", "show", "job", job_id)
        return dict(word.split("=", 1) for word in reply.out.split())

    def node(self, name: str) -> str:
        return self.ask("sinfo", "--noheader", "--Node", f"--nodes={name}", "--format=%N %T").out.split()[1]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_job_from_submission_to_end(site: Site) -> None:
    job_id = site.submit("--job-name=orch-a", "--output=out_%j.txt", f"--chdir={site.folder}")
    waiting = site.queue(name="orch-a")[job_id]
    assert (waiting.state, waiting.reason, waiting.start_ms, waiting.nodes) == ("PENDING", "", 0, "")
    site.wait(2)
    running = site.queue()[job_id]
    assert (running.state, running.nodes, running.end_ms - running.start_ms) == ("RUNNING", "n[1-2]", 600_000)
    assert re.fullmatch(r"9:5[0-9]\n", site.ask("squeue", "--noheader", f"--jobs={job_id}", "--format=%L").out)
    [job] = site.runner.started
    assert (job.nodes, job.batch_host, job.output) == (["n1", "n2"], "n1", f"{site.folder}/out_1.txt")
    about = {name: job.env.get(name) for name in ("NAME", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_RESTART_COUNT")}
    assert about == {"NAME": "value", "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_RESTART_COUNT": None}
    assert site.node("n1") == "allocated"
    site.over(job_id)
    assert site.state(job_id) == "COMPLETED"
    assert site.node("n1") == "idle"
    site.wait(400)
    assert site.queue() == {}
    reply = site.ask("squeue", "--noheader", f"--jobs={job_id}", "--format=%T")
    assert (reply.status, reply.err) == (1, "slurm_load_jobs error: Invalid job id specified\n")
