"""A training on one node of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orchestrator.onnode.agent.observers import TRANSPORT_S, RunOutput
from orchestrator.onnode.agent.run import ENDED_BY_US
from orchestrator.onnode.kernel.records import NodeRunRecord, write
from orchestrator.simulation.engine import NEVER, Timer

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.onnode.agent.launch import RunRequest
    from orchestrator.onnode.kernel.files import Files
    from orchestrator.simulation.agent_parts import AgentPost


@dataclass(frozen=True)
class Part:
    """A node's part of a training: (seconds after its start, bytes) in order, then exit."""

    lines: tuple[tuple[float, bytes], ...] = ()
    seconds: float = NEVER
    code: int = 0


class RunOwner(Protocol):
    """A run's agent."""

    post: AgentPost
    ready: bool

    @property
    def name(self) -> str: ...

    def training(self, run: TrainingRun) -> Part: ...

    def wall_ms(self) -> int: ...

    def say(self, word: str, *fields: str | int) -> None: ...

    def fail(self, kind: str, text: str) -> None: ...

    def release(self, run: TrainingRun) -> None:
        """Forget a run that is over, unless the agent leaves."""


class RunLog:
    def __init__(self, files: Files, path: Path, clock: Callable[[], float]) -> None:
        self._files, self.path, self._clock = files, path, clock
        self.output = RunOutput(clock)
        self.broken = False
        self._network_seen = False

    def create(self) -> None:
        """Raises OSError."""
        self._files.appender(self.path).close()

    def restart(self) -> None:
        """Forget output before the training."""
        self.output = RunOutput(self._clock)

    def keep(self, piece: bytes) -> None:
        """Raises OSError: then it is broken."""
        try:
            self._files.append(self.path, piece)
        except OSError:
            self.broken = True
            raise
        self.output.feed(piece)

    def names_network(self) -> bool:
        """Return whether its output is the first to name the network."""
        first = bool(self.output.transports) and not self._network_seen
        self._network_seen = self._network_seen or first
        return first

    @property
    def status(self) -> str:
        return "" if self.broken else self.output.status


class TrainingRun:
    """One run on one node, from `prepare` to its record."""

    def __init__(self, agent: RunOwner, request: RunRequest) -> None:
        self.agent, self.request = agent, request
        self.id, self.seed = request.id, request.seed
        self.rank = request.nodes.index(agent.name)
        post, engine = agent.post, agent.post.process.engine
        path = post.layout.node_log(request.run, request.attempt, self.rank)
        self.log = RunLog(post.files, path, lambda: engine.now)
        self.begun = self.hangs = self.stopped = self.over = False
        self.deaf, self.doing = False, "rank 0: all_reduce (nccl)"
        """`deaf`: it ignores TERM. `doing`: in the evidence of a hang."""
        self.start_ms = self.end_ms = agent.wall_ms()
        self._timers: list[Timer] = []

    def offer(self) -> bool:
        """Create the log. On False the agent leaves."""
        try:
            self.log.create()
        except OSError as error:
            self.over = True
            self.agent.fail("storage", f"{self.log.path}: {error.strerror}")
        return not self.over

    def _print(self, piece: bytes) -> None:
        if self.over or self.log.broken:
            return
        try:
            self.log.keep(piece)
        except OSError as error:
            self.agent.fail("storage", f"cannot write to {self.log.path}: {error.strerror}")
            return
        if self.log.names_network():
            self._later(TRANSPORT_S, self._send_transport)

    def _send_transport(self) -> None:
        self.agent.say("transport", self.id, *self.log.output.transports.use)

    def go(self) -> None:
        if self.begun or self.stopped:
            return
        self.begun, self.start_ms = True, self.agent.wall_ms()
        self.log.restart()
        part = self.agent.training(self)
        if self.hangs:
            return
        for at, piece in part.lines:
            self._later(at, self._printing(piece))
        if part.seconds < NEVER:
            self._later(part.seconds, lambda: self.ended(part.code))

    def _printing(self, piece: bytes) -> Callable[[], None]:
        return lambda: self._print(piece)

    def stall(self) -> None:
        """Wait forever in a collective for a dead node of the run."""
        for timer in self._timers:
            timer.cancel()

    def hang(self, *, deaf: bool) -> None:
        self.stall()
        self.hangs, self.deaf = True, deaf

    def crash(self, code: int, text: str) -> None:
        self.stall()
        self._print(f"{text}\n".encode())
        self.ended(code)

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        self._timers.append(self.agent.post.process.after(seconds, action))

    def stop(self, kill_s: float = 0.0) -> None:
        if self.stopped or self.over:
            return
        self.stopped = True
        if not self.begun:
            return self.ended(ENDED_BY_US)
        process, pace = self.agent.post.process, self.agent.post.pace
        seconds = pace.ignored_term if self.deaf else process.engine.between(*pace.stop)
        process.after(min(seconds, kill_s or seconds), lambda: self.ended(ENDED_BY_US))

    def _contents(self) -> dict[str, str]:
        """Return {} without a container, or if stopped."""
        is_natural = self.begun and not self.stopped and self.agent.ready
        return dict(self.agent.post.machine.condition.contents) if is_natural else {}

    def ended(self, code: int) -> None:
        if self.over:
            return
        self.stall()
        self.over, agent = True, self.agent
        self.log.output.finish()
        if self.log.output.transports:
            self._send_transport()
        self.end_ms = agent.wall_ms()
        code = ENDED_BY_US if self.stopped else code
        contents = self._contents()
        if contents:
            agent.say("inside", self.id, *(f"{part}={sha}" for part, sha in contents.items()))
        record = NodeRunRecord(
            agent.name, self.rank, code, self.start_ms, self.end_ms, inside=contents
        )
        path = agent.post.layout.node_state(self.request.run, self.request.attempt, self.rank)
        try:
            write(record, path, sync=False, files=agent.post.files)
        except OSError as error:
            agent.say("note", f"cannot write {path}: {error.strerror}")
        agent.say("exit", self.id, code, self.start_ms, self.end_ms, self.log.status)
        agent.release(self)
