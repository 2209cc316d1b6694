"""Simulated jobs and nodes, and the interface of the job runner."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from orchestrator.nodes.names import fold

ON_NODES = ("RUNNING", "SUSPENDED")
QUEUED = ("PENDING", *ON_NODES)


@dataclass(eq=False)
class SimJob:
    """A job. Times are Unix milliseconds, 0 if unknown."""

    id: str
    name: str
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Of the started batch script."""
    script: Path = Path()
    text: str = ""
    """The script at submission: Slurm runs that copy."""
    workdir: str = ""
    submit_dir: str = ""
    """Working directory of sbatch."""
    output: str = ""
    append: bool = False
    partition: str = ""
    nodes_wanted: int = 1
    time_limit_s: float | None = None
    exclude: tuple[str, ...] = ()
    nodelist: tuple[str, ...] = ()
    dependency: tuple[tuple[str, str], ...] = ()
    """Such as ("afterok", "17")."""
    begin_ms: int = 0
    no_kill: bool = False
    requeue: bool = True
    warning: tuple[bool, int, float] | None = None
    """--signal: to the batch script alone, number, seconds before the limit."""
    comment: str = ""
    user: str = "root"
    uid: int = 0
    host: str = ""
    """Of the submission."""
    other: bool = False
    """Another user's, which only occupies nodes."""
    priority: int = 0
    held: str = ""
    """The displayed reason."""

    state: str = "PENDING"
    """Without COMPLETING: see `completing`."""
    reason: str = "None"
    exit_code: tuple[int, int] = (0, 0)
    """Status and signal."""
    nodes: list[str] = field(default_factory=list)
    """Now or at its end; the first at its start is `batch_host`."""
    batch_host: str = ""
    completing: list[str] = field(default_factory=list)
    """Nodes on which it is still ending."""
    restarts: int = 0
    submit_ms: int = 0
    start_ms: int = 0
    end_ms: int = 0
    preempt_ms: int = 0
    suspend_ms: int = 0
    stopped: bool = False
    """By SIGSTOP."""
    ran_s: float = 0.0
    """Before its last suspension."""
    began_s: float = 0.0
    """Last start or resumption (engine's time)."""
    life: int = 0
    """Changes whenever plans for the job are void."""

    @property
    def alive(self) -> bool:
        return self.state in QUEUED

    @property
    def shown(self) -> str:
        """Return the state as Slurm's commands show it."""
        return "COMPLETING" if self.completing else self.state

    def run_s(self, now: float) -> float:
        """Return its running time without suspensions."""
        return self.ran_s + (now - self.began_s if self.state == "RUNNING" else 0.0)


@dataclass(eq=False)
class SimNode:
    """A node as slurmctld sees it."""

    name: str
    silent: bool = False
    """Its slurmd does not answer, noticed or not."""
    unanswered: bool = False
    """slurmctld has noticed: the asterisk."""
    down: bool = False
    drained: bool = False
    reason: str = ""
    life: int = 0
    unheard: list[Callable[[], object]] = field(default_factory=list)
    """Its slurmd's reports for later."""
    orphans: list[SimJob] = field(default_factory=list)
    """Jobs that have lost it, but may still have processes here."""

    @property
    def sound(self) -> bool:
        """Return whether slurmctld gives it to jobs."""
        return not (self.down or self.drained or self.unanswered)


class Runner(Protocol):
    """Starts and ends processes on nodes; calls `Cluster.ended` when a batch script ends.

    A job may be a copy with only the reachable nodes.
    """

    def start(self, job: SimJob) -> None:
        """Start the batch script on `job.batch_host`, with `job.env`."""

    def signal(self, job: SimJob, number: int, *, batch_only: bool) -> None:
        """Signal every process on `job.nodes`, or only the batch script, which gets it only if
        `job.batch_host` is in `job.nodes`.
        """

    def kill(self, job: SimJob) -> None:
        """Kill its processes on `job.nodes`, batch script included."""

    def left(self, job: SimJob) -> Collection[str]:
        """Return the nodes with processes of the job."""
        return ()


def variables(job: SimJob, cluster: str) -> dict[str, str]:
    """Return Slurm's variables for a batch script."""
    count, nodes = str(len(job.nodes)), fold(job.nodes)
    restarts = {"SLURM_RESTART_COUNT": str(job.restarts)} if job.restarts else {}
    return restarts | {
        "SLURM_CLUSTER_NAME": cluster,
        "SLURM_CPUS_ON_NODE": "16",
        "SLURM_GTIDS": "0",
        "SLURM_JOBID": job.id,
        "SLURM_JOB_CPUS_PER_NODE": f"16(x{count})" if len(job.nodes) > 1 else "16",
        "SLURM_JOB_GID": str(job.uid),
        "SLURM_JOB_ID": job.id,
        "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_UID": str(job.uid),
        "SLURM_JOB_USER": job.user,
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": count,
        "SLURM_NODEID": "0",
        "SLURM_NODELIST": nodes,
        "SLURM_PROCID": "0",
        "SLURM_SUBMIT_DIR": job.submit_dir,
        "SLURM_SUBMIT_HOST": job.host,
        "SLURM_TASKS_PER_NODE": f"1(x{count})" if len(job.nodes) > 1 else "1",
        "SLURMD_NODENAME": job.batch_host,
    }
