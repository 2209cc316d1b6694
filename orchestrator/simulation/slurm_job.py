"""The life of a simulated job; the interface of the job runner."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from orchestrator.nodes.names import fold
from orchestrator.simulation.engine import Engine
from orchestrator.simulation.slurm_request import SlurmRequest

ON_NODES = ("RUNNING", "SUSPENDED")
QUEUED = ("PENDING", *ON_NODES)


@dataclass(eq=False)
class JobTimes:
    """Unix milliseconds, 0 if unknown; running times in seconds."""

    submit_ms: int = 0
    begin_ms: int = 0
    start_ms: int = 0
    end_ms: int = 0
    preempt_ms: int = 0
    suspend_ms: int = 0
    ran_s: float = 0.0
    """Before its last suspension."""
    began_s: float = 0.0
    """Last start or resumption (engine's time)."""


@dataclass(eq=False)
class SimJob:
    """Its methods change this record alone."""

    id: str
    request: SlurmRequest
    env: Mapping[str, str] = field(default_factory=dict)
    """Of the started batch script."""
    times: JobTimes = field(default_factory=JobTimes)
    held: str = ""
    """The displayed reason."""
    state: str = "PENDING"
    """Without COMPLETING: see `completing`."""
    reason: str = "None"
    exit_code: tuple[int, int] = (0, 0)
    nodes: list[str] = field(default_factory=list)
    """Now or at its end; the first at its start is `batch_host`."""
    batch_host: str = ""
    completing: list[str] = field(default_factory=list)
    """Nodes on which it is still ending."""
    restarts: int = 0
    stopped: bool = False
    """By SIGSTOP."""
    life: int = 0
    """Changes whenever plans for the job are void."""

    def __post_init__(self) -> None:
        self.held, self.times.begin_ms = self.request.held, self.request.begin_ms

    @property
    def alive(self) -> bool:
        return self.state in QUEUED

    @property
    def shown(self) -> str:
        """Return the state in Slurm's commands."""
        return "COMPLETING" if self.completing else self.state

    def run_s(self, now: float) -> float:
        """Without suspensions."""
        times = self.times
        return times.ran_s + (now - times.began_s if self.state == "RUNNING" else 0.0)

    def reached(self, nodes: Sequence[str], *, script: bool = True) -> SimJob:
        """Return a copy with only these nodes; without `script`, it spares the batch script."""
        part = copy(self)
        part.nodes, part.batch_host = list(nodes), self.batch_host if script else ""
        return part

    def queue(self, wall_ms: int) -> None:
        self.times.submit_ms = wall_ms

    def wait(self, reason: str) -> None:
        self.reason = reason

    def reject(self, wall_ms: int) -> None:
        self.times.start_ms = self.times.end_ms = wall_ms
        self.state, self.reason = "FAILED", "BadConstraints"

    def hold(self, reason: str) -> None:
        self.held = self.reason = reason

    def unhold(self) -> None:
        self.held, self.reason = "", "None"

    def amend(self, **changes: Any) -> None:
        """Change its request, as `scontrol update` does."""
        self.request = replace(self.request, **changes)

    def start(self, nodes: list[str], cluster: str, engine: Engine) -> None:
        """Start with Slurm's variables for the batch script."""
        self.state, self.nodes, self.batch_host = "RUNNING", nodes, nodes[0]
        times, self.life = self.times, self.life + 1
        times.start_ms, times.end_ms = engine.wall_ms, 0
        times.preempt_ms, times.suspend_ms = 0, 0
        times.ran_s, times.began_s = 0.0, engine.now
        if not self.request.other:
            self.env = {**self.env, **variables(self, cluster)}

    def suspend(self, engine: Engine) -> None:
        self.times.ran_s, self.times.suspend_ms = self.run_s(engine.now), engine.wall_ms
        self.state, self.life, self.stopped = "SUSPENDED", self.life + 1, True

    def resume(self, engine: Engine) -> None:
        self.state, self.stopped = "RUNNING", False
        self.times.began_s, self.times.suspend_ms = engine.now, engine.wall_ms

    def wake(self) -> bool:
        """Return whether it was stopped."""
        stopped, self.stopped = self.stopped, False
        return stopped

    def shorten(self, left_s: float, now: float) -> None:
        self.amend(time_limit_s=self.run_s(now) + left_s)
        self.life += 1

    def preempt(self, wall_ms: int) -> None:
        self.times.preempt_ms = wall_ms

    def exit(self, status: int) -> None:
        """A negative `status` is a signal's number."""
        self.exit_code = (status, 0) if status >= 0 else (0, -status)

    def cancel(self, wall_ms: int) -> None:
        self.state = "CANCELLED"
        self.times.start_ms = self.times.end_ms = wall_ms

    def end(self, state: str, reason: str, engine: Engine) -> None:
        self.times.ran_s = self.run_s(engine.now)
        self.state, self.reason, self.times.end_ms = state, reason, engine.wall_ms

    def requeue(self) -> None:
        self.state, self.reason, self.restarts = "PENDING", "None", self.restarts + 1

    def complete_on(self, nodes: list[str]) -> None:
        """Start to end on `nodes`."""
        self.life, self.completing = self.life + 1, nodes

    def keep_completing(self, nodes: Collection[str]) -> None:
        self.completing = [name for name in self.completing if name in nodes]

    def complete(self) -> None:
        self.life += 1

    def queue_again(self, wall_ms: int, after_s: float) -> None:
        """Queue it for a start in `after_s` or later."""
        self.nodes, self.reason, times = [], "BeginTime", self.times
        times.submit_ms, times.suspend_ms = wall_ms, 0
        times.begin_ms = wall_ms + int(after_s * 1000)


class Runner(Protocol):
    """Starts and ends processes on nodes; calls `Cluster.ended` when a batch script ends.

    A job may be a copy with only the reachable nodes.
    """

    def start(self, job: SimJob) -> None:
        """Start the batch script on `job.batch_host` with `job.env`."""

    def signal(self, job: SimJob, number: int, *, batch_only: bool) -> None:
        """Signal every process on `job.nodes`, or the batch script alone, if `job.nodes` has its
        host."""

    def kill(self, job: SimJob) -> None:
        """Kill its processes on `job.nodes`."""

    def left(self, job: SimJob) -> Collection[str]:
        """Return nodes with its processes."""
        return ()


def variables(job: SimJob, cluster: str) -> dict[str, str]:
    """Return Slurm's variables for a batch script."""
    count, nodes = str(len(job.nodes)), fold(job.nodes)
    request = job.request
    submitter = request.submitter
    restarts = {"SLURM_RESTART_COUNT": str(job.restarts)} if job.restarts else {}
    return restarts | {
        "SLURM_CLUSTER_NAME": cluster,
        "SLURM_CPUS_ON_NODE": "16",
        "SLURM_GTIDS": "0",
        "SLURM_JOBID": job.id,
        "SLURM_JOB_CPUS_PER_NODE": f"16(x{count})" if len(job.nodes) > 1 else "16",
        "SLURM_JOB_GID": str(submitter.uid),
        "SLURM_JOB_ID": job.id,
        "SLURM_JOB_NAME": request.name,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_JOB_PARTITION": request.partition,
        "SLURM_JOB_UID": str(submitter.uid),
        "SLURM_JOB_USER": submitter.user,
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": count,
        "SLURM_NODEID": "0",
        "SLURM_NODELIST": nodes,
        "SLURM_PROCID": "0",
        "SLURM_SUBMIT_DIR": request.script.submit_dir,
        "SLURM_SUBMIT_HOST": submitter.host,
        "SLURM_TASKS_PER_NODE": f"1(x{count})" if len(job.nodes) > 1 else "1",
        "SLURMD_NODENAME": job.batch_host,
    }
