"""The controller of a simulated cluster: its queue, the lives of its jobs, and nodes that go and come back."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from orchestrator.nodes.names import fold
from orchestrator.simulation.engine import Engine, Timer

TICK_S = 30.0
"""How often slurmctld compares jobs with their time limits (PERIODIC_TIMEOUT of controller.c)."""
REQUEUED_AFTER_S = 121.0
"""A requeued job is not started before the credentials of its first start have expired (job_mgr.c)."""
PURGE_S = 60.0
"""How often ended jobs are purged (PURGE_JOB_INTERVAL)."""
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
    any_dependency: bool = False
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


class Runner(Protocol):
    """What starts and ends processes on nodes. It calls `Cluster.ended` when a batch script has ended.

    A job whose `nodes` are fewer than it had is passed if only those can be reached, or are meant.
    """

    def start(self, job: SimJob) -> None:
        """Start the batch script on `job.batch_host`, with `job.env`."""

    def signal(self, job: SimJob, number: int, *, batch_only: bool) -> None:
        """Send a signal to the batch script alone, or to every process of the job on `job.nodes`."""

    def kill(self, job: SimJob) -> None:
        """Kill everything that is left of the job on `job.nodes`."""

    def left(self, job: SimJob) -> Collection[str]:
        """Return the nodes on which the job still has processes."""
        return ()


class Controller:
    """slurmctld with its slurmds. Its public methods are what operators, users of other jobs and mishaps do."""

    def __init__(
        self,
        engine: Engine,
        nodes: Sequence[str],
        runner: Runner,
        name: str = "sim",
        *,
        partition: str = "batch",
        max_time_s: float | None = None,
        default_time_s: float | None = None,
        kill_wait_s: float = 30.0,
        min_job_age_s: float = 300.0,
        slurmd_timeout_s: float = 300.0,
        first_job_id: int = 1,
    ) -> None:
        self.engine, self.runner, self.name = engine, runner, name
        self.partition, self.max_time_s, self.default_time_s = partition, max_time_s, default_time_s
        self.kill_wait_s, self.min_job_age_s, self.slurmd_timeout_s = kill_wait_s, min_job_age_s, slurmd_timeout_s
        self.nodes = {node: SimNode(node) for node in nodes}
        self.jobs: dict[str, SimJob] = {}
        self.next_id = first_job_id
        self._absent_until = 0.0
        self._to_schedule = False

    # ---- time ----

    def _later(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Have slurmctld do something in so many seconds, or once it is back."""
        return self.engine.after(seconds, lambda: self._when_present(action))

    def _when_present(self, action: Callable[[], object]) -> None:
        if self.engine.now < self._absent_until:
            back = self._absent_until - self.engine.now
            self.engine.after(back + self.engine.between(0.0, 1.0), lambda: self._when_present(action))
        else:
            action()

    def _later_for(self, job: SimJob, seconds: float, action: Callable[[], object]) -> None:
        """Have something done for a job, unless its life takes another turn before."""
        life = job.life
        self._later(seconds, lambda: job.life == life and action())

    def slurmctld_down(self, seconds: float) -> None:
        """Have slurmctld not answer and do nothing for so many seconds."""
        self._absent_until = max(self._absent_until, self.engine.now + seconds)

    # ---- queue ----

    def submit(self, job: SimJob) -> None:
        """Put a job into the queue."""
        self.next_id = max(self.next_id, int(job.id)) + 1
        job.submit_ms = self.engine.wall_ms
        self.jobs[job.id] = job
        self._schedule_soon()
        if job.begin_ms:
            self._later((job.begin_ms - self.engine.wall_ms) / 1000, self._schedule_soon)

    def occupy(self, nodes: Sequence[str], seconds: float, *, priority: int = 1) -> SimJob:
        """Have a job of somebody else take these nodes for so long, as soon as they are free."""
        job = SimJob(
            str(self.next_id), "other", partition=self.partition, nodes_wanted=len(nodes), user="other", uid=1999
        )
        job.nodelist, job.time_limit_s, job.other, job.priority = tuple(nodes), seconds, True, priority
        self.submit(job)
        self._schedule()
        return job

    def _schedule_soon(self) -> None:
        if not self._to_schedule:
            self._to_schedule = True
            self._later(self.engine.between(0.1, 1.0), self._schedule)

    def _schedule(self) -> None:
        """Start the first jobs of the queue; others wait behind the first one that finds no nodes."""
        self._to_schedule, full = False, False
        queue = [job for job in self.jobs.values() if job.state == "PENDING" and not job.completing]
        for job in sorted(queue, key=lambda job: (-job.priority, int(job.id))):
            job.reason = self._obstacle(job) or ("Priority" if full else "None")
            if job.reason == "None":
                nodes = self._pick(job)
                if nodes:
                    self._start(job, nodes)
                else:
                    full, job.reason = True, self._shortage(job)

    def _obstacle(self, job: SimJob) -> str:
        """Return the reason why a job may not start whatever is free; "" if it may."""
        if job.held:
            return job.held
        if job.nodes_wanted > len(self.nodes):
            return "PartitionNodeLimit"
        if self.max_time_s is not None and (job.time_limit_s or 0) > self.max_time_s:
            return "PartitionTimeLimit"
        if job.begin_ms > self.engine.wall_ms:
            return "BeginTime"
        return self._unmet(job)

    def _unmet(self, job: SimJob) -> str:
        states = [self._dependency(job, *one) for one in job.dependency]
        if not states or (any if job.any_dependency else all)(state == "" for state in states):
            return ""
        never = all if job.any_dependency else any
        return "DependencyNeverSatisfied" if never(state == "never" for state in states) else "Dependency"

    def _dependency(self, job: SimJob, kind: str, job_id: str) -> str:
        """Return "" for one that is met, "waits", or "never". A job that slurmctld has forgotten holds up nobody."""
        if kind == "singleton":
            same = (one for one in self.jobs.values() if (one.name, one.uid) == (job.name, job.uid))
            return "waits" if any(int(one.id) < int(job.id) and one.alive for one in same) else ""
        other = self.jobs.get(job_id)
        if other is None or (kind == "after" and other.state != "PENDING"):
            return ""
        if other.alive or other.completing:
            return "waits"
        fits = {"afterok": other.state == "COMPLETED", "afternotok": other.state != "COMPLETED"}
        return "" if fits.get(kind, True) else "never"

    def usable(self, job: SimJob) -> list[str]:
        """Return the nodes that the job may have, free or not, in the cluster's order."""
        return [name for name in self.nodes if name not in job.exclude]

    def _pick(self, job: SimJob) -> list[str]:
        """Return the nodes that a job gets; none if there are too few."""
        taken = {name for other in self.jobs.values() for name in self.held_by(other)}
        bad = {node.name for node in self.nodes.values() if node.down or node.drained or node.unanswered}
        free = [name for name in self.usable(job) if name not in taken | bad]
        if not set(job.nodelist) <= set(free):
            return []
        chosen = [*job.nodelist, *(name for name in free if name not in job.nodelist)][: job.nodes_wanted]
        return [name for name in self.nodes if name in chosen] if len(chosen) == job.nodes_wanted else []

    def _shortage(self, job: SimJob) -> str:
        bad = [name for name in job.nodelist if self.nodes[name].down or self.nodes[name].drained]
        return f"ReqNodeNotAvail, UnavailableNodes:{fold(bad)}" if bad else "Resources"

    def held_by(self, job: SimJob) -> Sequence[str]:
        """Return the nodes that a job keeps from others."""
        return job.completing or (job.nodes if job.state in ON_NODES else ())

    # ---- the life of a job ----

    def _start(self, job: SimJob, nodes: list[str]) -> None:
        job.state, job.nodes, job.batch_host = "RUNNING", nodes, nodes[0]
        job.start_ms, job.end_ms, job.preempt_ms, job.suspend_ms = self.engine.wall_ms, 0, 0, 0
        job.ran_s, job.began_s, job.life = 0.0, self.engine.now, job.life + 1
        if job.other:
            self._later_for(job, job.time_limit_s or 0.0, lambda: self._end(job, "COMPLETED"))
            return
        job.env = {**job.env, **variables(job, self.name)}
        self._watch_limit(job)
        if not self.nodes[job.batch_host].silent:
            self.runner.start(job)

    def _watch_limit(self, job: SimJob) -> None:
        if job.time_limit_s is None:
            return
        left_s = job.time_limit_s - job.run_s(self.engine.now)
        if job.warning is not None:
            batch_only, number, lead_s = job.warning
            early_s = self.engine.between(0.0, TICK_S)  # slurmctld would rather be early than late
            self._later_for(job, max(0.0, left_s - lead_s - early_s), lambda: self._signal(job, number, batch_only))
        late_s = self.engine.between(0.0, TICK_S)
        self._later_for(job, left_s + late_s, lambda: self._end(job, "TIMEOUT", "TimeLimit"))

    def _reached(self, job: SimJob, nodes: Collection[str] | None = None) -> SimJob:
        """Return the job with those of its nodes whose slurmd answers."""
        wanted = job.nodes if nodes is None else nodes
        return replace(job, nodes=[name for name in wanted if not self.nodes[name].silent])

    def _signal(self, job: SimJob, number: int, batch_only: bool = False) -> None:
        reached = self._reached(job)
        if not job.other and (job.batch_host in reached.nodes if batch_only else reached.nodes):
            self.runner.signal(reached, number, batch_only=batch_only)

    def ended(self, job_id: str, status: int) -> None:
        """Hear from the runner that the batch script has ended: with an exit status, or by a signal if it is negative."""
        job = self.jobs.get(job_id)
        if job is not None:
            node, restarts = self.nodes[job.batch_host], job.restarts

            def report() -> None:
                self._script_over(job, restarts, status)

            if node.silent:
                node.unheard.append(report)
            else:
                self._later(self.engine.between(0.01, 0.1), report)

    def _script_over(self, job: SimJob, restarts: int, status: int) -> None:
        if job.restarts == restarts:
            job.exit_code = (status, 0) if status >= 0 else (0, -status)
            if job.state in ON_NODES:
                self._end(job, "FAILED" if status else "COMPLETED", "NonZeroExitCode" if status else "None")

    def _end(self, job: SimJob, state: str, reason: str = "None") -> None:
        """End a job that has nodes: TERM to what is left of it, KILL after KillWait."""
        job.ran_s = job.run_s(self.engine.now)
        job.state, job.reason, job.end_ms = state, reason, self.engine.wall_ms
        self._release(job)

    def _release(self, job: SimJob) -> None:
        job.life, job.completing = job.life + 1, list(job.nodes)
        self._signal(job, signal.SIGTERM)
        self._later_for(job, self.kill_wait_s + self.engine.between(0.0, 2.5), lambda: self._kill(job))
        self._later_for(job, self.engine.between(0.02, 0.3), lambda: self._settle(job, 0.1))

    def _kill(self, job: SimJob) -> None:
        if job.completing and not job.other:
            self.runner.kill(self._reached(job, job.completing))

    def _settle(self, job: SimJob, again_s: float) -> None:
        """Give back the nodes on which nothing of an ended job is left; look again soon if something is."""
        left = set() if job.other else set(self.runner.left(job))
        job.completing = [name for name in job.completing if name in left or self.nodes[name].silent]
        if not job.completing:
            self._completed(job)
        elif any(not self.nodes[name].silent for name in job.completing):
            self._later_for(job, again_s, lambda: self._settle(job, min(2 * again_s, 2.0)))

    def _completed(self, job: SimJob) -> None:
        job.life += 1
        if job.state == "PENDING":
            job.nodes, job.submit_ms, job.reason = [], self.engine.wall_ms, "BeginTime"
            job.begin_ms = self.engine.wall_ms + int(REQUEUED_AFTER_S * 1000)
            self._later(REQUEUED_AFTER_S, self._schedule_soon)
        else:
            self._forget_later(job)
        self._schedule_soon()

    def _forget_later(self, job: SimJob) -> None:
        if self.min_job_age_s:
            later_s = self.min_job_age_s + self.engine.between(0.0, PURGE_S)
            self._later(later_s, lambda: self.jobs.pop(job.id, None))
        else:
            self.jobs.pop(job.id, None)

    # ---- what users and operators do to jobs ----

    def cancel(self, job: SimJob) -> None:
        """End a job as a plain scancel does; nothing if it has ended."""
        if job.state in ON_NODES:
            self._end(job, "CANCELLED")
        elif job.state == "PENDING":
            job.state, job.reason = "CANCELLED", "None"
            job.start_ms = job.end_ms = self.engine.wall_ms
            if not job.completing:  # of its life before a requeue
                self._completed(job)

    def signal(self, job: SimJob, number: int, *, batch_only: bool) -> None:
        """Send a signal to a job's batch script, or to all its processes."""
        self._later(self.engine.between(0.0, 0.05), lambda: self._signal(job, number, batch_only))

    def requeue(self, job: SimJob) -> None:
        """End a job and put it back into the queue, as an operator does."""
        if job.state in ON_NODES:
            job.state, job.reason, job.restarts = "PENDING", "None", job.restarts + 1
            self._release(job)

    def hold(self, job: SimJob, reason: str = "JobHeldAdmin") -> str:
        """Keep a job from being started; return what speaks against it."""
        if not job.alive:
            return "Job has already finished"
        job.held = job.reason = reason
        return ""

    def unhold(self, job: SimJob) -> str:
        """Let a held job start; return what speaks against it."""
        if not job.alive:
            return "Job has already finished"
        job.held, job.reason = "", "None"
        self._schedule_soon()
        return ""

    def suspend(self, job: SimJob) -> bool:
        """Stop all processes of a job; False if it does not run."""
        if job.state != "RUNNING":
            return False
        job.ran_s, job.state, job.life = job.run_s(self.engine.now), "SUSPENDED", job.life + 1
        job.suspend_ms = self.engine.wall_ms
        self._signal(job, signal.SIGSTOP)
        return True

    def unsuspend(self, job: SimJob) -> bool:
        """Have a suspended job continue; False if it is not suspended. Its time limit did not run meanwhile."""
        if job.state != "SUSPENDED":
            return False
        job.state, job.began_s, job.suspend_ms = "RUNNING", self.engine.now, self.engine.wall_ms
        self._watch_limit(job)
        self._signal(job, signal.SIGCONT)
        return True


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
