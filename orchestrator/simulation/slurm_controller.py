"""The controller of a simulated cluster: queue, jobs, and nodes that fail and return."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from orchestrator.nodes.names import fold
from orchestrator.simulation.engine import Engine, Timer
from orchestrator.simulation.slurm_job import ON_NODES, Runner, SimJob, SimNode, variables

TICK_S = 30.0
"""slurmctld checks time limits this often (PERIODIC_TIMEOUT of controller.c)."""
REQUEUED_AFTER_S = 121.0
"""Until the credentials of its first start have expired (job_mgr.c)."""
CHECK_S = 1.0
"""How often slurmd checks an ended job's processes; a real slurmd slows down after ten seconds."""
PURGE_S = 60.0
"""PURGE_JOB_INTERVAL"""
UNUSABLE = (
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
)


class Controller:
    """slurmctld with its slurmds. Public methods: mishaps, and acts of operators and other
    users."""

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
        self.kill_wait_s, self.min_job_age_s, self.slurmd_timeout_s = (
            kill_wait_s,
            min_job_age_s,
            slurmd_timeout_s,
        )
        self.answer_s = (0.02, 0.3)
        """Shortest and longest."""
        self.nodes = {node: SimNode(node) for node in nodes}
        self.jobs: dict[str, SimJob] = {}
        """Not those that Slurm has forgotten."""
        self.every_job: list[SimJob] = []
        self.next_id = first_job_id
        self.planned: Collection[str] = ()
        """Free nodes reserved for the first job of the queue."""
        self._absent_until = 0.0
        self._to_schedule = False

    # ---- time ----

    def _later(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Schedule an action of slurmctld, at the earliest when it is back up."""
        return self.engine.after(seconds, lambda: self._when_present(action))

    def _when_present(self, action: Callable[[], object]) -> None:
        if self.absent_s:
            self.engine.after(
                self.absent_s + self.engine.between(0.0, 1.0), lambda: self._when_present(action)
            )
        else:
            action()

    def _later_for(self, job: SimJob, seconds: float, action: Callable[[], object]) -> None:
        """Schedule an action, void once the job's life has changed."""
        life = job.life
        self._later(seconds, lambda: job.life == life and action())

    def slurmctld_down(self, seconds: float) -> None:
        self._absent_until = max(self._absent_until, self.engine.now + seconds)

    @property
    def absent_s(self) -> float:
        return max(0.0, self._absent_until - self.engine.now)

    # ---- queue ----

    def submit(self, job: SimJob) -> None:
        self._add(job)
        job.reason = self._obstacle(job) or "None"
        self._schedule_soon()
        if job.begin_ms:
            self._later((job.begin_ms - self.engine.wall_ms) / 1000, self._schedule_soon)

    def reject(self, job: SimJob) -> None:
        self._add(job)
        job.start_ms = job.end_ms = self.engine.wall_ms
        job.state, job.reason = "FAILED", "BadConstraints"
        self._forget_later(job)

    def _add(self, job: SimJob) -> None:
        self.next_id = max(self.next_id, int(job.id)) + 1
        job.submit_ms, self.jobs[job.id] = self.engine.wall_ms, job
        self.every_job.append(job)

    def occupy(self, nodes: Sequence[str], seconds: float, *, priority: int = 1) -> SimJob:
        """Queue another user's job on these nodes for `seconds`."""
        job = SimJob(
            str(self.next_id),
            "other",
            partition=self.partition,
            nodes_wanted=len(nodes),
            user="other",
            uid=1999,
        )
        job.nodelist, job.time_limit_s, job.other, job.priority = (
            tuple(nodes),
            seconds,
            True,
            priority,
        )
        self.submit(job)
        self._schedule()
        return job

    def _schedule_soon(self) -> None:
        if not self._to_schedule:
            self._to_schedule = True
            self._later(self.engine.between(0.1, 1.0), self._schedule)

    def _schedule(self) -> None:
        """Start the first jobs of the queue; others wait behind the first without nodes."""
        self._to_schedule, self.planned, full = False, (), False
        queue = [job for job in self.jobs.values() if job.state == "PENDING" and not job.completing]
        for job in sorted(queue, key=lambda job: (-job.priority, int(job.id))):
            job.reason = self._obstacle(job) or ("Priority" if full else "None")
            if job.reason == "None":
                nodes = self._pick(job)
                if nodes:
                    self._start(job, nodes)
                else:
                    full, job.reason, self.planned = True, self._shortage(job), self._free(job)

    def _obstacle(self, job: SimJob) -> str:
        """Return why a job may not start whatever is free, or ""."""
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
        states = {self._dependency(*dependency) for dependency in job.dependency}
        return (
            "DependencyNeverSatisfied"
            if "never" in states
            else "Dependency"
            if "waits" in states
            else ""
        )

    def _dependency(self, kind: str, job_id: str) -> str:
        """Return "" (met), "waits", or "never". A forgotten job delays nobody."""
        other = self.jobs.get(job_id)
        if other is None or (kind == "after" and other.state != "PENDING"):
            return ""
        if other.alive or other.completing:
            return "waits"
        fits = {"afterok": other.state == "COMPLETED", "afternotok": other.state != "COMPLETED"}
        return "" if fits.get(kind, True) else "never"

    def usable(self, job: SimJob) -> list[str]:
        """Return its possible nodes, free or not, in the cluster's order."""
        return [name for name in self.nodes if name not in job.exclude]

    def _free(self, job: SimJob) -> list[str]:
        taken = {name for other in self.jobs.values() for name in self.held_by(other)}
        return [name for name in self.usable(job) if name not in taken and self.nodes[name].sound]

    def _pick(self, job: SimJob) -> list[str]:
        free = self._free(job)
        chosen = [*job.nodelist, *(name for name in free if name not in job.nodelist)][
            : job.nodes_wanted
        ]
        enough = len(chosen) == job.nodes_wanted and set(chosen) <= set(free)
        return [name for name in self.nodes if name in chosen] if enough else []

    def _shortage(self, job: SimJob) -> str:
        bad = [name for name in job.nodelist if not self.nodes[name].sound]
        if bad:
            return f"ReqNodeNotAvail, UnavailableNodes:{fold(bad)}"
        sound = [name for name in self.usable(job) if self.nodes[name].sound]
        return "Resources" if len(sound) >= job.nodes_wanted else UNUSABLE

    def held_by(self, job: SimJob) -> Sequence[str]:
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
            send = self._signal_batch if batch_only else self._signal_steps
            early_s = self.engine.between(0.0, TICK_S)  # slurmctld warns early rather than late
            self._later_for(job, max(0.0, left_s - lead_s - early_s), lambda: send(job, number))
        late_s = self.engine.between(0.0, TICK_S)
        self._later_for(
            job, left_s + late_s, lambda: self._end(job, "TIMEOUT", "TimeLimit", terms=2)
        )

    def _reached(self, job: SimJob, nodes: Collection[str] | None = None) -> SimJob:
        """Keep nodes whose slurmd answers."""
        wanted = job.nodes if nodes is None else nodes
        return replace(job, nodes=[name for name in wanted if not self.nodes[name].silent])

    def _signal(self, job: SimJob, number: int) -> None:
        self._send(self._reached(job), number)

    def _signal_batch(self, job: SimJob, number: int) -> None:
        self._send(self._reached(job, [job.batch_host]), number, batch_only=True)

    def _signal_steps(self, job: SimJob, number: int) -> None:
        self._send(replace(self._reached(job), batch_host=""), number)

    def _send(self, reached: SimJob, number: int, *, batch_only: bool = False) -> None:
        if reached.nodes and not reached.other:
            self.runner.signal(reached, number, batch_only=batch_only)

    def ended(self, job_id: str, status: int) -> None:
        """Handle a batch script's end, by a signal if `status` is negative."""
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
        if job.restarts == restarts and job.state != "PENDING":
            job.exit_code = (status, 0) if status >= 0 else (0, -status)
            if job.state in ON_NODES and job.batch_host in job.nodes:
                self._end(
                    job,
                    "FAILED" if status else "COMPLETED",
                    "NonZeroExitCode" if status else "None",
                )

    def _end(self, job: SimJob, state: str, reason: str = "None", *, terms: int = 1) -> None:
        """Send `terms` times TERM, and KILL after KillWait."""
        job.ran_s = job.run_s(self.engine.now)
        job.state, job.reason, job.end_ms = state, reason, self.engine.wall_ms
        self._release(job, terms)

    def _release(self, job: SimJob, terms: int = 1) -> None:
        job.life, job.completing = (
            job.life + 1,
            [name for name in job.nodes if not self.nodes[name].down],
        )
        if job.stopped:
            job.stopped = False
            self._signal(job, signal.SIGCONT)
        self._signal(job, signal.SIGTERM)
        for _ in range(1, terms):
            self._later_for(
                job, self.engine.between(0.0, 0.05), lambda: self._signal(job, signal.SIGTERM)
            )
        self._later_for(
            job,
            self.kill_wait_s + self.engine.between(0.0, 2.5),
            lambda: self._kill(job, job.completing),
        )
        self._settle_soon(job)

    def _kill(self, job: SimJob, nodes: Collection[str]) -> None:
        reached = self._reached(job, nodes)
        if reached.nodes and not job.other:
            self.runner.kill(reached)

    def _settle_soon(self, job: SimJob) -> None:
        self._later_for(job, self.engine.between(0.02, 0.3), lambda: self._settle(job))

    def _settle(self, job: SimJob) -> None:
        """Release nodes without processes; check the others again."""
        left = set() if job.other else set(self.runner.left(job))
        silent = {name for name in job.completing if self.nodes[name].silent}
        job.completing = [name for name in job.completing if name in left | silent]
        if not job.completing:
            self._completed(job)
        elif set(job.completing) - silent:
            self._later_for(job, CHECK_S, lambda: self._settle(job))

    def _completed(self, job: SimJob) -> None:
        job.life += 1
        if job.state == "PENDING":
            job.nodes, job.submit_ms, job.suspend_ms, job.reason = (
                [],
                self.engine.wall_ms,
                0,
                "BeginTime",
            )
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

    # ---- requests of users and operators ----

    def cancel(self, job: SimJob) -> None:
        """End a job as plain scancel does."""
        if job.state in ON_NODES:
            self._end(job, "CANCELLED")
        elif job.state == "PENDING":
            job.state = "CANCELLED"
            job.start_ms = job.end_ms = self.engine.wall_ms
            if not job.completing:  # from its life before a requeue
                self._completed(job)

    def signal(self, job: SimJob, number: int, *, to: str) -> None:
        """Signal "batch", the batch script alone, "steps", or "all"."""
        send = (
            self._signal_steps
            if to == "steps"
            else self._signal_batch
            if to == "batch"
            else self._signal
        )
        self._later(self.engine.between(0.0, 0.05), lambda: send(job, number))

    def requeue(self, job: SimJob, *, terms: int = 1) -> None:
        """Requeue it, even without --requeue."""
        if job.state in ON_NODES:
            job.state, job.reason, job.restarts = "PENDING", "None", job.restarts + 1
            self._release(job, terms)

    def hold(self, job: SimJob, reason: str = "JobHeldAdmin") -> str:
        """Return an error, or ""."""
        if not job.alive:
            return "Job has already finished"
        job.held = job.reason = reason
        return ""

    def unhold(self, job: SimJob) -> str:
        """Return an error, or ""."""
        if not job.alive:
            return "Job has already finished"
        job.held, job.reason = "", "None"
        self._schedule_soon()
        return ""

    def suspend(self, job: SimJob) -> bool:
        """Return False if it is not running."""
        if job.state != "RUNNING":
            return False
        job.ran_s, job.state, job.life = job.run_s(self.engine.now), "SUSPENDED", job.life + 1
        job.suspend_ms, job.stopped = self.engine.wall_ms, True
        self._signal(job, signal.SIGSTOP)
        return True

    def unsuspend(self, job: SimJob) -> bool:
        """Return False if it is not suspended. Its time limit did not run meanwhile."""
        if job.state != "SUSPENDED":
            return False
        job.state, job.stopped = "RUNNING", False
        job.began_s, job.suspend_ms = self.engine.now, self.engine.wall_ms
        self._watch_limit(job)
        self._signal(job, signal.SIGCONT)
        return True

    def preempt(self, job: SimJob, grace_s: float = 0.0, *, requeue: bool = False) -> None:
        """Pre-empt a job: TERM two or three times, and its end after `grace_s`.

        TERM at the start of a grace time reaches the steps alone. Without `occupy` the nodes are
        free afterwards.
        """
        if job.state not in ON_NODES:
            return
        job.preempt_ms = self.engine.wall_ms
        if grace_s:
            self._signal_steps(job, signal.SIGTERM)
            grace_s += self.engine.between(0.0, TICK_S)
            self._later_for(job, grace_s, lambda: self._preempted(job, requeue))
        else:
            self._preempted(job, requeue)

    def _preempted(self, job: SimJob, requeue: bool) -> None:
        job.preempt_ms, terms = self.engine.wall_ms, self.engine.random.randint(2, 3)
        if requeue and job.requeue:
            self.requeue(job, terms=terms)
        else:
            self._end(job, "PREEMPTED", terms=terms)

    def shorten(self, job: SimJob, left_s: float) -> None:
        """Leave `left_s` of its time limit."""
        if job.state == "RUNNING":
            job.time_limit_s, job.life = job.run_s(self.engine.now) + left_s, job.life + 1
            self._watch_limit(job)

    def purge(self) -> None:
        """Forget ended jobs at once from now on (MinJobAge 0)."""
        self.min_job_age_s = 0.0
        self.jobs = {name: job for name, job in self.jobs.items() if job.alive or job.completing}

    # ---- nodes ----

    def node_down(self, name: str) -> None:
        """Cut a node off, or kill it. slurmctld notices later: allocated*, then down* after
        SlurmdTimeout."""
        node, ping_s = self.nodes[name], self.slurmd_timeout_s / 3
        node.silent, node.life = True, node.life + 1
        missed_s = self.engine.between(0.0, ping_s) + self.engine.between(2.0, 15.0)
        self._later_on(node, missed_s, lambda: setattr(node, "unanswered", True))
        self._later_on(
            node, self.slurmd_timeout_s + missed_s, lambda: self._lost(node, "Not responding")
        )

    def set_down(self, name: str, reason: str = "fault") -> None:
        """Take an answering node out of service, as an operator: jobs lose it, and fail without a
        batch host."""
        node = self.nodes[name]
        self._lost(node, reason)
        for job in node.orphans:
            if job.state in ON_NODES and job.batch_host == name:
                self._end(job, "FAILED", "JobLaunchFailure")
        self._end_orphans(node)

    def drain(self, name: str, reason: str = "fault") -> None:
        self.nodes[name].drained, self.nodes[name].reason = True, reason

    def undrain(self, name: str) -> None:
        self.nodes[name].drained, self.nodes[name].reason = False, ""
        self._schedule_soon()

    def node_up(self, name: str, *, rebooted: bool = False) -> None:
        """Bring a node back, with its processes unless `rebooted`; its slurmd registers later."""
        node = self.nodes[name]
        node.life += 1
        self._later_on(
            node, self.engine.between(0.5, 5.0), lambda: self._registered(node, rebooted)
        )

    def _later_on(self, node: SimNode, seconds: float, action: Callable[[], object]) -> None:
        life = node.life
        self._later(seconds, lambda: node.life == life and action())

    def _lost(self, node: SimNode, reason: str) -> None:
        node.down, node.unanswered, node.reason = True, node.silent, reason
        for job in [job for job in self.jobs.values() if node.name in self.held_by(job)]:
            node.orphans.append(job)
            self._lose_node(job, node)

    def _lose_node(self, job: SimJob, node: SimNode) -> None:
        """Take a down node from a job, which ends unless it has --no-kill and another node: then it
        runs until its time limit, even without its batch host.
        """
        if job.completing:
            job.completing.remove(node.name)
            self._settle_soon(job)
        elif job.no_kill and len(job.nodes) > 1:
            job.nodes.remove(node.name)
        else:
            self._fail(job)

    def _fail(self, job: SimJob) -> None:
        if job.requeue:
            self.requeue(job)
        else:
            self._end(job, "NODE_FAIL", "NodeDown")

    def _registered(self, node: SimNode, rebooted: bool) -> None:
        node.silent = node.unanswered = node.down = False
        node.reason = node.reason if node.drained else ""
        reports, node.unheard = node.unheard, []
        for report in () if rebooted else reports:
            report()
        self._end_orphans(node)
        for job in [job for job in self.jobs.values() if node.name in self.held_by(job)]:
            if job.completing:
                self._end_on(job, node)
                self._settle_soon(job)
            elif rebooted and job.batch_host == node.name:
                self._fail(job)
        self._schedule_soon()

    def _end_orphans(self, node: SimNode) -> None:
        orphans, node.orphans = node.orphans, []
        for job in orphans:
            self._end_on(job, node)

    def _end_on(self, job: SimJob, node: SimNode) -> None:
        """End the rest of a job on a lost node; gently if it is over."""
        if not job.alive:
            self._send(self._reached(job, [node.name]), signal.SIGTERM)
        self._later(0.0 if job.alive else self.kill_wait_s, partial(self._kill, job, [node.name]))
