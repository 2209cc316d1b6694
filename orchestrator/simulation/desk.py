"""The user of a simulated set, and the user's commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.errors import OrchestratorError, SchedulerUnknown
from orchestrator.evidence.sets import RunSet
from orchestrator.onnode.kernel.files import Files
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.records import REHEARSAL, SetRecord
from orchestrator.runset.allocation import Allocation
from orchestrator.runset.cancel import cancel
from orchestrator.runset.create import create, describe
from orchestrator.runset.submit import submit
from orchestrator.scheduler.command import Answer
from orchestrator.scheduler.slurm import Slurm
from orchestrator.simulation.engine import NEVER, Engine, SimProcess, Strand
from orchestrator.simulation.host import Surroundings
from orchestrator.simulation.rendered import Rendered
from orchestrator.simulation.slurm import Cluster
from orchestrator.simulation.storage import Server, SimFiles

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/home/user", "USER": "user"}


class CommandWorld(Surroundings):
    def __init__(self, process: SimProcess, files: Files, cluster: Cluster) -> None:
        super().__init__(process, files)
        self._cluster = cluster

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
            argv, env or ENVIRONMENT, str(cwd or "/"), host=self.host, given=given
        )
        self.engine.pause(self.process, min(reply.delay_s, timeout_s))
        if reply.delay_s > timeout_s:
            raise SchedulerUnknown(f"`{argv[0]}` did not answer within {timeout_s:g} s", argv=argv)
        return Answer(argv, reply.status, reply.out, reply.err)


@dataclass
class Done:
    """A command of the user. Times in virtual seconds."""

    name: str
    at: float
    ended_at: float = NEVER
    error: str = ""
    killed: bool = False


@dataclass
class User:
    """The set's owner, who resumes it at most `resumes` times."""

    resumes: int = 20
    dies_at: float = NEVER
    """The next resume is killed before this step."""
    waits: tuple[float, float] = (30.0, 1200.0)
    twice: bool = False
    """A colleague gives the next resume, too."""
    colleague: bool = False
    """A colleague also resumes after a killed command."""
    cancels: bool = False
    """Before each resume, as a precaution."""
    allows_changes: bool = False
    """By --allow-changes."""

    def lose_next_resume(self, step: float) -> None:
        self.dies_at = step

    def repeat_next_resume(self) -> None:
        self.twice = True

    def next_resume(self) -> tuple[float, bool]:
        """Take its plan: deadly step, and whether a colleague repeats it."""
        planned = self.dies_at, self.twice
        self.dies_at, self.twice = NEVER, False
        return planned


class Desk:
    """The commands of a set's user, on the host `login`."""

    def __init__(
        self,
        engine: Engine,
        server: Server,
        cluster: Cluster,
        bundle: Rendered,
        user: User,
        login: str,
    ) -> None:
        self._engine, self._server, self._cluster = engine, server, cluster
        self._bundle, self.user, self._login = bundle, user, login
        self.run_set: RunSet | None = None
        self.done: list[Done] = []
        self._processes: list[SimProcess] = []
        self._running: list[SimProcess] = []

    @property
    def busy(self) -> bool:
        running = self._running
        while running and not running[-1].alive:
            running.pop()
        return bool(running)

    def command(
        self, name: str, action: Callable[[CommandWorld], object], dies_at: float = NEVER
    ) -> SimProcess:
        """Give a command now. It dies before its step `dies_at`."""
        process = self._engine.process(name, self._login)
        process.die_at(dies_at)
        self._processes.append(process)
        self._running.append(process)
        world = CommandWorld(process, SimFiles(self._server, process, self._login), self._cluster)
        done = Done(name, self._engine.now)
        self.done.append(done)

        def run() -> None:
            try:
                action(world)
            except OrchestratorError as error:
                done.error = str(error)
            finally:
                done.killed, done.ended_at = not process.alive, self._engine.now
                process.exit()

        process.after(0.0, Strand(process, run).resume)
        return process

    def submit(self, name: str, dies_at: float) -> SimProcess:
        """Submit missing runs; first make a missing set."""
        return self.command(name, self._submit, dies_at)

    def _submit(self, world: CommandWorld) -> None:
        bundle = self._bundle
        if self.run_set is None:
            record = describe(
                bundle.entry,
                nexp=bundle.nexp,
                bundle_sha256=bundle.sha256,
                created_by=REHEARSAL,
                world=world,
            )
            self.run_set = RunSet(self._create(record, world), record)
        allocation = Allocation(allow_changes=self.user.allows_changes)
        submit(self.run_set, Slurm(world, world.answer), allocation=allocation, world=world)

    def _create(self, record: SetRecord, world: CommandWorld) -> Layout:
        log_dir = self._server.root
        try:
            return create(record, self._bundle.files, log_dir, world=world)
        finally:
            for bundle in log_dir.glob("*/bundle"):  # render writes it with real times
                self._server.adopt(bundle)

    def cancel(self, grace_s: float, dies_at: float) -> SimProcess:
        def action(world: CommandWorld) -> None:
            if self.run_set is not None:
                cancel(self.run_set, Slurm(world, world.answer), grace_s, world)

        return self.command("cancel", action, dies_at)

    def close(self) -> None:
        for process in self._processes:
            if process.strand is not None:
                process.strand.end()
