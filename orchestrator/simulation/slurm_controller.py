"""The controller of a simulated cluster."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from orchestrator.simulation.engine import Engine, Timer
from orchestrator.simulation.slurm_job import ON_NODES, Runner, SimJob
from orchestrator.simulation.slurm_node import SimNode
from orchestrator.simulation.slurm_queue import JobQueue
from orchestrator.simulation.slurm_request import SlurmRequest, Submitter

TICK_S = 30.0
"""Between checks of time limits (PERIODIC_TIMEOUT of controller.c)."""
REQUEUED_AFTER_S = 121.0
"""Until the credentials of its first start have expired (job_mgr.c)."""
CHECK_S = 1.0
"""Between checks of an ended job's processes; a real slurmd slows down after ten seconds."""
PURGE_S = 60.0
"""PURGE_JOB_INTERVAL"""


@dataclass(frozen=True)
class SlurmConf:
    name: str = "sim"
    partition: str = "batch"
    max_time_s: float | None = None
    default_time_s: float | None = None
    kill_wait_s: float = 30.0
    min_job_age_s: float = 300.0
    slurmd_timeout_s: float = 300.0


class Controller:
    """slurmctld with its slurmds. Public methods: mishaps, and acts of operators and users."""

    def __init__(
        self,
        engine: Engine,
        nodes: Sequence[str],
        runner: Runner,
        conf: SlurmConf | None = None,
        first_job_id: int = 1,
    ) -> None:
        self.engine, self.runner, self.conf = engine, runner, conf or SlurmConf()
        self.answer_s = (0.02, 0.3)
        self.nodes = {node: SimNode(node) for node in nodes}
        self.queue = JobQueue(self.nodes, self.conf.max_time_s, first_job_id)
        self._absent_until = 0.0
        self._to_schedule = False

    @property
    def jobs(self) -> dict[str, SimJob]:
        return self.queue.jobs

    def keep_jobs(self, seconds: float) -> None:
        """Set MinJobAge."""
        self.conf = replace(self.conf, min_job_age_s=seconds)

    # ---- time ----

    def _later(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Schedule an action of slurmctld, once it is up."""
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
        self.queue.add(job, self.engine.wall_ms)
        job.wait(self.queue.obstacle(job, self.engine.wall_ms) or "None")
        self._schedule_soon()
        if begin_ms := job.times.begin_ms:
            self._later((begin_ms - self.engine.wall_ms) / 1000, self._schedule_soon)

    def reject(self, job: SimJob) -> None:
        self.queue.add(job, self.engine.wall_ms)
        job.reject(self.engine.wall_ms)
        self._forget_later(job)

    def occupy(self, nodes: Sequence[str], seconds: float, *, priority: int = 1) -> SimJob:
        """Queue another user's job on these nodes."""
        request = SlurmRequest(
            "other",
            Submitter("other", 1999),
            partition=self.conf.partition,
            nodes=len(nodes),
            nodelist=tuple(nodes),
            time_limit_s=seconds,
            other=True,
            priority=priority,
        )
        job = SimJob(str(self.queue.next_id), request)
        self.submit(job)
        self._schedule()
        return job

    def _schedule_soon(self) -> None:
        if not self._to_schedule:
            self._to_schedule = True
            self._later(self.engine.between(0.1, 1.0), self._schedule)

    def _schedule(self) -> None:
        self._to_schedule = False
        for job, nodes in self.queue.startable(self.engine.wall_ms):
            self._start(job, nodes)

    # ---- jobs ----

    def _start(self, job: SimJob, nodes: list[str]) -> None:
        job.start(nodes, self.conf.name, self.engine)
        if job.request.other:
            ends_s = job.request.time_limit_s or 0.0
            self._later_for(job, ends_s, lambda: self._end(job, "COMPLETED"))
            return
        self._watch_limit(job)
        if not self.nodes[job.batch_host].silent:
            self.runner.start(job)

    def _watch_limit(self, job: SimJob) -> None:
        limit_s, warning = job.request.time_limit_s, job.request.warning
        if limit_s is None:
            return
        left_s = limit_s - job.run_s(self.engine.now)
        if warning is not None:
            batch_only, number, lead_s = warning
            send = self._signal_batch if batch_only else self._signal_steps
            early_s = self.engine.between(0.0, TICK_S)  # slurmctld warns early
            self._later_for(job, max(0.0, left_s - lead_s - early_s), lambda: send(job, number))
        late_s = self.engine.between(0.0, TICK_S)
        self._later_for(
            job, left_s + late_s, lambda: self._end(job, "TIMEOUT", "TimeLimit", terms=2)
        )

    def _reached(
        self, job: SimJob, nodes: Collection[str] | None = None, *, script: bool = True
    ) -> SimJob:
        """Keep nodes whose slurmd answers."""
        wanted = job.nodes if nodes is None else nodes
        answering = [name for name in wanted if not self.nodes[name].silent]
        return job.reached(answering, script=script)

    def _signal(self, job: SimJob, number: int) -> None:
        self._send(self._reached(job), number)

    def _signal_batch(self, job: SimJob, number: int) -> None:
        self._send(self._reached(job, [job.batch_host]), number, batch_only=True)

    def _signal_steps(self, job: SimJob, number: int) -> None:
        self._send(self._reached(job, script=False), number)

    def _send(self, reached: SimJob, number: int, *, batch_only: bool = False) -> None:
        if reached.nodes and not reached.request.other:
            self.runner.signal(reached, number, batch_only=batch_only)

    def ended(self, job_id: str, status: int) -> None:
        """Handle a batch script's end; a negative `status` is a signal's number."""
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
            job.exit(status)
            if job.state in ON_NODES and job.batch_host in job.nodes:
                self._end(
                    job,
                    "FAILED" if status else "COMPLETED",
                    "NonZeroExitCode" if status else "None",
                )

    def _end(self, job: SimJob, state: str, reason: str = "None", *, terms: int = 1) -> None:
        """Send `terms` times TERM, and KILL after KillWait."""
        job.end(state, reason, self.engine)
        self._release(job, terms)

    def _release(self, job: SimJob, terms: int = 1) -> None:
        job.complete_on([name for name in job.nodes if not self.nodes[name].down])
        if job.wake():
            self._signal(job, signal.SIGCONT)
        self._signal(job, signal.SIGTERM)
        for _ in range(1, terms):
            self._later_for(
                job, self.engine.between(0.0, 0.05), lambda: self._signal(job, signal.SIGTERM)
            )
        self._later_for(
            job,
            self.conf.kill_wait_s + self.engine.between(0.0, 2.5),
            lambda: self._kill(job, job.completing),
        )
        self._settle_soon(job)

    def _kill(self, job: SimJob, nodes: Collection[str]) -> None:
        reached = self._reached(job, nodes)
        if reached.nodes and not job.request.other:
            self.runner.kill(reached)

    def _settle_soon(self, job: SimJob) -> None:
        self._later_for(job, self.engine.between(0.02, 0.3), lambda: self._settle(job))

    def _settle(self, job: SimJob) -> None:
        """Release nodes without processes."""
        left = set() if job.request.other else set(self.runner.left(job))
        silent = {name for name in job.completing if self.nodes[name].silent}
        job.keep_completing(left | silent)
        if not job.completing:
            self._completed(job)
        elif set(job.completing) - silent:
            self._later_for(job, CHECK_S, lambda: self._settle(job))

    def _completed(self, job: SimJob) -> None:
        job.complete()
        if job.state == "PENDING":
            job.queue_again(self.engine.wall_ms, REQUEUED_AFTER_S)
            self._later(REQUEUED_AFTER_S, self._schedule_soon)
        else:
            self._forget_later(job)
        self._schedule_soon()

    def _forget_later(self, job: SimJob) -> None:
        if age_s := self.conf.min_job_age_s:
            self._later(age_s + self.engine.between(0.0, PURGE_S), lambda: self.queue.forget(job))
        else:
            self.queue.forget(job)

    # ---- requests ----

    def cancel(self, job: SimJob) -> None:
        """End a job as plain scancel does."""
        if job.state in ON_NODES:
            self._end(job, "CANCELLED")
        elif job.state == "PENDING":
            job.cancel(self.engine.wall_ms)
            if not job.completing:  # from its life before a requeue
                self._completed(job)

    def signal(self, job: SimJob, number: int, *, to: str) -> None:
        """`to`: "batch" (the batch script alone), "steps", or "all"."""
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
            job.requeue()
            self._release(job, terms)

    def hold(self, job: SimJob, reason: str = "JobHeldAdmin") -> str:
        """Return an error, or ""."""
        if not job.alive:
            return "Job has already finished"
        job.hold(reason)
        return ""

    def unhold(self, job: SimJob) -> str:
        """Return an error, or ""."""
        if not job.alive:
            return "Job has already finished"
        job.unhold()
        self._schedule_soon()
        return ""

    def suspend(self, job: SimJob) -> bool:
        """Return False if it is not running."""
        if job.state != "RUNNING":
            return False
        job.suspend(self.engine)
        self._signal(job, signal.SIGSTOP)
        return True

    def unsuspend(self, job: SimJob) -> bool:
        """Return False if it is not suspended."""
        if job.state != "SUSPENDED":
            return False
        job.resume(self.engine)
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
        job.preempt(self.engine.wall_ms)
        if grace_s:
            self._signal_steps(job, signal.SIGTERM)
            grace_s += self.engine.between(0.0, TICK_S)
            self._later_for(job, grace_s, lambda: self._preempted(job, requeue))
        else:
            self._preempted(job, requeue)

    def _preempted(self, job: SimJob, requeue: bool) -> None:
        job.preempt(self.engine.wall_ms)
        terms = self.engine.random.randint(2, 3)
        if requeue and job.request.requeue:
            self.requeue(job, terms=terms)
        else:
            self._end(job, "PREEMPTED", terms=terms)

    def shorten(self, job: SimJob, left_s: float) -> None:
        if job.state == "RUNNING":
            job.shorten(left_s, self.engine.now)
            self._watch_limit(job)

    def purge(self) -> None:
        """Forget ended jobs at once from here on."""
        self.keep_jobs(0.0)
        self.queue.forget_ended()

    # ---- nodes ----

    def node_down(self, name: str) -> None:
        """Cut a node off, or kill it: allocated* later, down* after SlurmdTimeout."""
        node, timeout_s = self.nodes[name], self.conf.slurmd_timeout_s
        node.fall_silent()
        missed_s = self.engine.between(0.0, timeout_s / 3) + self.engine.between(2.0, 15.0)
        self._later_on(node, missed_s, node.miss)
        self._later_on(node, timeout_s + missed_s, lambda: self._lost(node, "Not responding"))

    def set_down(self, name: str, reason: str = "fault") -> None:
        """Take an answering node from its jobs, which fail without a batch host."""
        node = self.nodes[name]
        self._lost(node, reason)
        for job in node.orphans:
            if job.state in ON_NODES and job.batch_host == name:
                self._end(job, "FAILED", "JobLaunchFailure")
        self._end_orphans(node)

    def drain(self, name: str, reason: str = "fault") -> None:
        self.nodes[name].drain(reason)

    def undrain(self, name: str) -> None:
        self.nodes[name].undrain()
        self._schedule_soon()

    def node_up(self, name: str, *, rebooted: bool = False) -> None:
        """Bring a node back, with its processes unless `rebooted`."""
        node = self.nodes[name]
        node.rejoin()
        self._later_on(
            node, self.engine.between(0.5, 5.0), lambda: self._registered(node, rebooted)
        )

    def _later_on(self, node: SimNode, seconds: float, action: Callable[[], object]) -> None:
        life = node.life
        self._later(seconds, lambda: node.life == life and action())

    def _lost(self, node: SimNode, reason: str) -> None:
        node.mark_down(reason)
        for job in self.queue.on(node.name):
            node.orphans.append(job)
            self._lose_node(job, node)

    def _lose_node(self, job: SimJob, node: SimNode) -> None:
        """Take a down node from a job, which ends unless it has --no-kill and another node: then it
        runs until its time limit, even without its batch host.
        """
        if job.completing:
            job.completing.remove(node.name)
            self._settle_soon(job)
        elif job.request.no_kill and len(job.nodes) > 1:
            job.nodes.remove(node.name)
        else:
            self._fail(job)

    def _fail(self, job: SimJob) -> None:
        if job.request.requeue:
            self.requeue(job)
        else:
            self._end(job, "NODE_FAIL", "NodeDown")

    def _registered(self, node: SimNode, rebooted: bool) -> None:
        reports = node.register()
        for report in () if rebooted else reports:
            report()
        self._end_orphans(node)
        for job in self.queue.on(node.name):
            if job.completing:
                self._end_on(job, node)
                self._settle_soon(job)
            elif rebooted and job.batch_host == node.name:
                self._fail(job)
        self._schedule_soon()

    def _end_orphans(self, node: SimNode) -> None:
        for job in node.take_orphans():
            self._end_on(job, node)

    def _end_on(self, job: SimJob, node: SimNode) -> None:
        """End a job's processes on a lost node; gently if it is over."""
        if not job.alive:
            self._send(self._reached(job, [node.name]), signal.SIGTERM)
        wait_s = 0.0 if job.alive else self.conf.kill_wait_s
        self._later(wait_s, partial(self._kill, job, [node.name]))
