"""A whole set in a simulated world, with a user and the real commands."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import OrchestratorError, SchedulerUnknown
from orchestrator.evidence.sets import RunSet, SetEvidence
from orchestrator.onnode.kernel import settings_file
from orchestrator.onnode.kernel.files import Files
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.parts import PARTS
from orchestrator.onnode.kernel.program import LOADER, Program
from orchestrator.onnode.kernel.records import REHEARSAL, SetRecord
from orchestrator.onnode.kernel.settings import Settings
from orchestrator.onnode.loop.notice import SENDER
from orchestrator.onnode.policy.lease import STALE_S
from orchestrator.onnode.set.bundle import MANIFEST
from orchestrator.onnode.set.lease import BEAT_S
from orchestrator.render import manifest_hash, render_bundle
from orchestrator.runset.allocation import Allocation
from orchestrator.runset.cancel import cancel
from orchestrator.runset.create import create, describe
from orchestrator.runset.submit import submit
from orchestrator.scheduler.command import Answer
from orchestrator.scheduler.slurm import Slurm
from orchestrator.simulation.engine import NEVER, Engine, SimProcess, Strand, Stuck
from orchestrator.simulation.host import Jobs, Surroundings
from orchestrator.simulation.machine import Machine, NodePace
from orchestrator.simulation.node_run import Part, TrainingRun
from orchestrator.simulation.slurm import Cluster, SimJob, SlurmConf
from orchestrator.simulation.storage import Server, SimFiles
from orchestrator.simulation.training import Script, Trainings, facts_of

if TYPE_CHECKING:
    from orchestrator.model import Entry

LOGIN = "login"


class Rendered:
    """A rendered entry; bash evaluates its settings once for all simulated sets."""

    def __init__(self, entry: Entry, nexp: int, *, programs: bool = True) -> None:
        """Without `programs`, leave out Python files: a simulation starts none, but each set copies
        and hashes them."""
        self.entry, self.nexp = entry, nexp
        self.files: dict[str, bytes] = render_bundle(entry, nexp=nexp)
        if not programs:
            self.files = _without_programs(self.files)
        self.sha256 = manifest_hash(self.files)
        self.facts = facts_of(entry)
        self._settings: dict[tuple[str, ...], Settings] = {}
        self._config: tuple[bytes, frozenset[str]] | None = None

    def settings(self, program: Program, environment: Mapping[str, str]) -> Settings:
        names = ("SPARES", "SIDE_BY_SIDE", "NEXP", "MAX_ATTEMPTS", "CHANGES")
        key = tuple(environment.get(name, "") for name in names)
        if key not in self._settings:
            given = {name: environment[name] for name in ("PATH", *names) if name in environment}
            self._settings[key] = settings_file.load(program.files, given)
        return self._settings[key]

    def config(
        self, program: Program, settings: Settings, nexp: int
    ) -> tuple[bytes, frozenset[str]]:
        self._config = self._config or settings_file.config(program.files, settings, nexp)
        return self._config


def _without_programs(files: Mapping[str, bytes]) -> dict[str, bytes]:
    looked_for = (LOADER, SENDER, *(f"lib/{part.path}" for part in PARTS))  # settings.check_parts
    kept = {
        name: content
        for name, content in files.items()
        if name.startswith(looked_for) or not name.endswith(".py")
    }
    manifest = json.loads(kept[MANIFEST])
    manifest["outputs"] = {name: sha for name, sha in manifest["outputs"].items() if name in kept}
    return kept | {MANIFEST: json.dumps(manifest).encode()}


class Desk(Surroundings):
    def __init__(
        self, process: SimProcess, files: Files, cluster: Cluster, environment: Mapping[str, str]
    ) -> None:
        super().__init__(process, files)
        self._cluster, self._environment = cluster, environment

    def answer(
        self,
        argv: list[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: object = None,
        given: str = "",
    ) -> Answer:
        """Answer as scheduler.command.ask. Raises SchedulerUnknown without an answer in time."""
        self.process.step()
        reply = self._cluster.command(
            argv, env or self._environment, str(cwd or "/"), host=self.host, given=given
        )
        self.engine.pause(self.process, min(reply.delay_s, timeout_s))
        if reply.delay_s > timeout_s:
            raise SchedulerUnknown(f"`{argv[0]}` did not answer within {timeout_s:g} s", argv=argv)
        return Answer(argv, reply.status, reply.out, reply.err)


@dataclass
class Done:
    """A command of the user, `at` virtual seconds."""

    name: str
    at: float
    error: str = ""
    killed: bool = False


@dataclass
class User:
    """The set's owner, who resumes it after a while, at most `resumes` times."""

    resumes: int = 20
    dies_at: float = NEVER
    """The next resume is killed before this step."""
    waits: tuple[float, float] = (30.0, 1200.0)
    twice: bool = False
    """A colleague gives the next resume at the same time."""
    colleague: bool = False
    """A colleague resumes, too, after a killed command."""
    cancels: bool = False
    """Before each resume, to be sure that nothing of the set remains."""
    allows_changes: bool = False
    """By --allow-changes."""


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
        self.bundle, self.folder, self.user = bundle, folder, user or User()
        self.log_dir, self._login = folder / "sets", login
        shutil.rmtree(self.log_dir, ignore_errors=True)
        self.log_dir.mkdir(parents=True)
        self.server = Server(self.engine, self.log_dir)
        self.machines = {name: Machine(name) for name in nodes}
        self.jobs = Jobs(
            self.engine,
            self.machines,
            lambda process: SimFiles(self.server, process, process.host),
            bundle,
            self._part,
            pace or NodePace(),
        )
        partition = (bundle.entry.site.partition or "batch").split(",")[0]
        self.cluster = self.jobs.cluster = Cluster(
            self.engine, list(nodes), self.jobs, SlurmConf(partition=partition)
        )
        self.trainings = Trainings(bundle.facts, run_seconds=run_seconds)
        self.misses: set[int] = set()
        self.logs_on = 0
        """Some programs number their processes by host name."""
        self.happened: list[tuple[float, object]] = []
        self.overlaps: list[str] = []
        """Attempts started by two jobs."""
        self._owners: dict[int, str] = {}
        self._waiting: dict[int, list[Callable[[float], object]]] = {}
        self._before: dict[int, list[Callable[[], object]]] = {}
        self.jobs.prepares = self._prepares
        self.done: list[Done] = []
        self.commands: list[SimProcess] = []
        self.run_set: RunSet | None = None
        self._scripts: dict[int, Script] = {}
        self.resumed = 0
        self._acts = False

    # ---- trainings ----

    def when_run_starts(self, run: int, action: Callable[[float], object]) -> None:
        """Call `action` with the expected seconds at the start of a run's first attempt."""
        self._waiting.setdefault(run, []).append(action)

    def when_run_is_prepared(self, run: int, action: Callable[[], object]) -> None:
        """Call `action` when nodes are asked to get ready for a run's first attempt."""
        self._before.setdefault(run, []).append(action)

    def _prepares(self, run: int) -> None:
        for action in self._before.pop(run, ()):
            action()

    def _part(self, run: TrainingRun) -> Part:
        job = run.agent.post.environment["ORCH_JOB_ID"]
        if self._owners.setdefault(run.seed, job) != job:
            self.overlaps.append(
                f"attempt {run.id} was started by the jobs {self._owners[run.seed]} and {job}"
            )
        if run.seed not in self._scripts:
            chance = random.Random(f"{self.engine.seed}/{run.seed}")
            misses = run.number in self.misses
            pace = max(self.machines[node].slow for node in run.nodes)
            script = self.trainings.script(
                seed=run.seed, start_ms=run.start_ms, chance=chance, misses=misses, pace=pace
            )
            self._scripts[run.seed] = script
            for action in self._waiting.pop(run.number, ()):
                action(script.seconds)
        script = self._scripts[run.seed]
        logs = run.rank == min(self.logs_on, run.agent.post.settings.nnodes - 1)
        lines = script.lines if logs else ((0.5, b"rank %d is up\n" % run.rank),)
        return Part(lines, script.seconds + self.engine.between(0.0, 0.3))

    # ---- commands ----

    def command(
        self, name: str, action: Callable[[Desk], object], dies_at: float = NEVER
    ) -> SimProcess:
        """Give a command now. It dies before its step `dies_at`."""
        process = self.engine.process(name, self._login)
        process.dies_at = dies_at
        self.commands.append(process)
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/home/user", "USER": "user"}
        desk = Desk(process, SimFiles(self.server, process, self._login), self.cluster, environment)
        done = Done(name, self.engine.now)
        self.done.append(done)

        def run() -> None:
            try:
                action(desk)
            except OrchestratorError as error:
                done.error = str(error)
            finally:
                done.killed = not process.alive
                process.alive = False

        process.after(0.0, Strand(process, run).resume)
        return process

    def submit(self, dies_at: float = NEVER) -> SimProcess:
        return self.command("submit", self._submit, dies_at)

    def _submit(self, desk: Desk) -> None:
        bundle = self.bundle
        if self.run_set is None:
            record = describe(
                bundle.entry,
                nexp=bundle.nexp,
                bundle_sha256=bundle.sha256,
                created_by=REHEARSAL,
                world=desk,
            )
            self.run_set = RunSet(self._create(record, desk), record)
        allocation = Allocation(allow_changes=self.user.allows_changes)
        submit(self.run_set, Slurm(desk, desk.answer), allocation=allocation, world=desk)

    def _create(self, record: SetRecord, desk: Desk) -> Layout:
        try:
            return create(record, self.bundle.files, self.log_dir, world=desk)
        finally:
            for bundle in self.log_dir.glob("*/bundle"):  # render writes it with real times
                self.server.adopt(bundle)

    def resume(self, dies_at: float = NEVER) -> SimProcess:
        return self.command("resume", self._submit, dies_at)

    def _resume_as_planned(self) -> None:
        twice = self.user.twice or (self.user.colleague and self.done[-1].killed)
        self.resume(self.user.dies_at)
        if twice:
            self.resume()
        self.user.dies_at, self.user.twice = NEVER, False

    def cancel(self, grace_s: float = 60.0, dies_at: float = NEVER) -> SimProcess:
        def action(desk: Desk) -> None:
            if self.run_set is not None:
                cancel(self.run_set, Slurm(desk, desk.answer), grace_s, desk)

        return self.command("cancel", action, dies_at)

    # ---- to its end ----

    @property
    def record(self) -> SetRecord | None:
        return self.run_set.record if self.run_set else None

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
        return not any(process.alive for process in self.commands)

    def loop_killed_last(self) -> bool:
        """Return whether the last loop was killed or lost its storage: a later command removes its
        remains."""
        loop = self.jobs.every_loop[-1] if self.jobs.every_loop else None
        away = any("storage" in str(fault) for _, fault in self.happened)
        return loop is not None and (loop.killed or (loop.failed and away))

    def is_settled(self) -> bool:
        """Return whether the last command called the set complete, and its job has closed it."""
        if self.run_set is None or "nothing is left to run" not in self.done[-1].error:
            return False
        layout, job = self.run_set.layout, SetEvidence(self.run_set.layout.root).job
        return job is not None and job.state == "complete" and not layout.loop_lock.exists()

    @property
    def all_jobs(self) -> list[SimJob]:
        """The set's jobs by submission, forgotten jobs included."""
        return [job for job in self.cluster.queue.every_job if not job.request.other]

    def live(self) -> list[SimJob]:
        """Return the set's jobs that Slurm has not finished."""
        return [job for job in self.all_jobs if job.alive or job.completing]

    def play(self, limit_s: float = 90 * 86400.0) -> None:
        """Submit, and resume until every run has a result, or the user gives up. Raises Stuck."""
        self.submit()
        self.engine.run(self.idle, limit_s)
        while self.missing() and self.resumed < self.user.resumes:
            self.resumed += 1
            seconds = self.engine.between(*self.user.waits)
            if self.user.cancels:
                self.engine.after(seconds * self.engine.between(0.0, 0.8), self.cancel)
            self._act_after(seconds, self._resume_as_planned, limit_s)

    def resume_complete_set(self, limit_s: float = 90 * 86400.0) -> None:
        """Resume until the set is settled, each time when the traces of the dead count as
        abandoned. Raises Stuck."""
        for _ in range(self.user.resumes):
            if self.missing():
                return
            self._act_after(STALE_S + BEAT_S, self.resume, limit_s)
            if self.is_settled():
                return

    def _act_after(self, seconds: float, action: Callable[[], object], limit_s: float) -> None:
        """Act after `seconds`, and wait for the end of it. Raises Stuck."""
        back = self.engine.now + seconds
        self.engine.after(seconds, action)
        self.engine.run(lambda: self.engine.now >= back, limit_s)
        self.engine.run(self.idle, limit_s)

    def close(self) -> None:
        """End all processes, which the interpreter would unwind at a time of its own."""
        for loop in self.jobs.every_loop:
            loop.process.kill()
            loop.drop()
        for process in self.commands:
            if process.strand is not None:
                process.strand.end()

    def settle(self, seconds: float = 600.0) -> None:
        with suppress(Stuck):
            until = self.engine.now + seconds
            while self.engine.turn(until):
                pass
