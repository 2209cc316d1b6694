"""A whole set in a simulated world."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator.evidence.sets import RunSet, SetEvidence
from orchestrator.simulation.desk import Desk, Done, User
from orchestrator.simulation.engine import NEVER, Engine, SimProcess, Stuck
from orchestrator.simulation.host import Jobs
from orchestrator.simulation.machine import Machine, NodePace
from orchestrator.simulation.node_run import Part, TrainingRun
from orchestrator.simulation.rendered import Rendered
from orchestrator.simulation.set_trainings import SetTrainings
from orchestrator.simulation.slurm import Cluster, SimJob, SlurmConf
from orchestrator.simulation.storage import Server, SimFiles
from orchestrator.simulation.training import Trainings

LOGIN = "login"


class Simulation:
    """A set of `bundle` in `folder`, simulated from `seed`, on `nodes`."""

    def __init__(
        self,
        bundle: Rendered,
        folder: Path,
        seed: int,
        nodes: Sequence[str],
        *,
        pace: NodePace | None = None,
        user: User | None = None,
        run_seconds: float | None = None,
        login: str = LOGIN,
    ) -> None:
        """`run_seconds` replaces published run times. `login`: host of the commands."""
        self.engine = Engine(seed)
        self.bundle, self.folder = bundle, folder
        self.log_dir = folder / "sets"
        shutil.rmtree(self.log_dir, ignore_errors=True)
        self.log_dir.mkdir(parents=True)
        self.server = Server(self.engine, self.log_dir)
        self.machines = {name: Machine(name) for name in nodes}
        self.trainings = SetTrainings(
            self.engine, self.machines, Trainings(bundle.facts, run_seconds=run_seconds)
        )
        self.jobs = Jobs(
            self.engine,
            self.machines,
            lambda process: SimFiles(self.server, process, process.host),
            bundle,
            self._part,
            pace or NodePace(),
            prepares=self.trainings.prepare,
        )
        partition = (bundle.entry.site.partition or "batch").split(",")[0]
        self.cluster = Cluster(self.engine, list(nodes), self.jobs, SlurmConf(partition=partition))
        self.jobs.join(self.cluster)
        self.desk = Desk(self.engine, self.server, self.cluster, bundle, user or User(), login)
        self.happened: list[tuple[float, object]] = []
        self.resumed = 0

    def _part(self, run: TrainingRun) -> Part:
        return self.trainings.part(run)

    @property
    def user(self) -> User:
        return self.desk.user

    @property
    def done(self) -> list[Done]:
        return self.desk.done

    @property
    def run_set(self) -> RunSet | None:
        return self.desk.run_set

    def submit(self, dies_at: float = NEVER) -> SimProcess:
        return self.desk.submit("submit", dies_at)

    def resume(self, dies_at: float = NEVER) -> SimProcess:
        return self.desk.submit("resume", dies_at)

    def _resume_as_planned(self) -> None:
        colleague = self.user.colleague and self.done[-1].killed
        dies_at, twice = self.user.next_resume()
        self.resume(dies_at)
        if twice or colleague:
            self.resume()

    def cancel(self, grace_s: float = 60.0, dies_at: float = NEVER) -> SimProcess:
        return self.desk.cancel(grace_s, dies_at)

    # ---- to its end ----

    def missing(self) -> list[int]:
        """Return the runs without a final result."""
        if self.run_set is None:
            return list(range(1, self.bundle.nexp + 1))
        return SetEvidence(self.run_set.layout.root).missing(self.bundle.nexp)

    def idle(self) -> bool:
        """Return whether no job of the set and no command is left."""
        # Called after every event. The newest job is usually the live job.
        for job in reversed(self.cluster.queue.every_job):
            if (job.alive or job.completing) and not job.request.other:
                return False
        return not self.desk.busy

    @property
    def all_jobs(self) -> list[SimJob]:
        """By submission, forgotten jobs included."""
        return [job for job in self.cluster.queue.every_job if not job.request.other]

    def live(self) -> list[SimJob]:
        """Return the set's jobs that Slurm has not finished."""
        return [job for job in self.all_jobs if job.alive or job.completing]

    def play(self, limit_s: float = 90 * 86400.0) -> None:
        """Submit, and resume until the set is complete or given up. Raises Stuck."""
        self.submit()
        self.engine.run(self.idle, limit_s)
        while self.missing() and self.resumed < self.user.resumes:
            self.resumed += 1
            seconds = self.engine.between(*self.user.waits)
            if self.user.cancels:
                self.engine.after(seconds * self.engine.between(0.0, 0.8), self.cancel)
            self.act_after(seconds, self._resume_as_planned, limit_s)

    def act_after(self, seconds: float, action: Callable[[], object], limit_s: float) -> None:
        """Act after `seconds`, and wait for the end. Raises Stuck."""
        back = self.engine.now + seconds
        self.engine.after(seconds, action)
        self.engine.run(lambda: self.engine.now >= back, limit_s)
        self.engine.run(self.idle, limit_s)

    def close(self) -> None:
        """End all processes: the interpreter would unwind them at any time."""
        for loop in self.jobs.every_loop:
            loop.process.kill()
            loop.drop()
        self.desk.close()

    def settle(self, seconds: float = 600.0) -> None:
        with suppress(Stuck):
            until = self.engine.now + seconds
            while self.engine.turn(until):
                pass
