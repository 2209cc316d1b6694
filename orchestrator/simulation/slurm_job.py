"""What a simulated cluster knows of a job and of a node, and what runs the jobs."""

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
    """The environment of the batch script, once it has started."""
    script: Path = Path()
    text: str = ""
    """The script as it was at the submission: Slurm runs that copy."""
    workdir: str = ""
    submit_dir: str = ""
    """Where sbatch was called."""
    output: str = ""
    append: bool = False
    partition: str = ""
    nodes_wanted: int = 1
    time_limit_s: float | None = None
    exclude: tuple[str, ...] = ()
    nodelist: tuple[str, ...] = ()
    dependency: tuple[tuple[str, str], ...] = ()
    """Pairs such as ("afterok", "17")."""
    begin_ms: int = 0
    no_kill: bool = False
    requeue: bool = True
    warning: tuple[bool, int, float] | None = None
    """Of --signal: to the batch script alone, number, seconds before the limit."""
    user: str = "root"
    uid: int = 0
    host: str = ""
    """Where it was submitted."""
    other: bool = False
    """A job of somebody else, which only occupies nodes."""
    priority: int = 0
    held: str = ""
    """The reason that a held job shows."""

    state: str = "PENDING"
    """Without COMPLETING, which is `completing`."""
    reason: str = "None"
    exit_code: tuple[int, int] = (0, 0)
    """Exit status and signal."""
    nodes: list[str] = field(default_factory=list)
    """Those that it has, or had when it ended; the first one at its start is `batch_host`."""
    batch_host: str = ""
    completing: list[str] = field(default_factory=list)
    """Nodes on which it is still being ended."""
    restarts: int = 0
    submit_ms: int = 0
    start_ms: int = 0
    end_ms: int = 0
    preempt_ms: int = 0
    suspend_ms: int = 0
    stopped: bool = False
    """Its processes are, by SIGSTOP."""
    ran_s: float = 0.0
    """How long it ran before it was suspended last."""
    began_s: float = 0.0
    """When it started or was resumed last, in seconds of the engine."""
    life: int = 0
    """Changes whenever what was planned for the job no longer holds."""

    @property
    def alive(self) -> bool:
        return self.state in QUEUED

    @property
    def shown(self) -> str:
        """The state as Slurm's commands show it."""
        return "COMPLETING" if self.completing else self.state

    def run_s(self, now: float) -> float:
        """Return for how many seconds it has run, without those in which it was suspended."""
        return self.ran_s + (now - self.began_s if self.state == "RUNNING" else 0.0)


@dataclass(eq=False)
class SimNode:
    """A node as slurmctld sees it."""

    name: str
    silent: bool = False
    """Its slurmd does not answer, though slurmctld may not have noticed."""
    unanswered: bool = False
    """slurmctld has noticed: the asterisk."""
    down: bool = False
    drained: bool = False
    reason: str = ""
    life: int = 0
    unheard: list[Callable[[], object]] = field(default_factory=list)
    """What its slurmd will report when it answers again."""
    orphans: list[SimJob] = field(default_factory=list)
    """Jobs that are no longer on it by the books, and whose processes may be."""

    @property
    def sound(self) -> bool:
        """Whether slurmctld gives it to jobs."""
        return not (self.down or self.drained or self.unanswered)


class Runner(Protocol):
    """What starts and ends processes on nodes. It calls `Cluster.ended` when a batch script has ended.

    A job may be passed as a copy with fewer nodes: those that are meant and can be reached.
    """

    def start(self, job: SimJob) -> None:
        """Start the batch script on `job.batch_host`, with `job.env`."""

    def signal(self, job: SimJob, number: int, *, batch_only: bool) -> None:
        """Send a signal to the batch script alone, or to every process of the job on `job.nodes`.

        The batch script gets it only if `job.batch_host` is one of `job.nodes`.
        """

    def kill(self, job: SimJob) -> None:
        """Kill everything that is left of the job on `job.nodes`, the batch script included."""

    def left(self, job: SimJob) -> Collection[str]:
        """Return the nodes on which the job still has processes."""
        return ()


def variables(job: SimJob, cluster: str) -> dict[str, str]:
    """Return the environment that Slurm gives a batch script, beside that of the submission."""
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
