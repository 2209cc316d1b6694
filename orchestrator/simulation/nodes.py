"""Simulated nodes and agents, with the agent's protocol (orchestrator/onnode/agent;
docs/events.md).

tests/onnode/test_agent_contract.py sends the same orders and mishaps to a real agent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.onnode.agent.checks import NAMES
from orchestrator.onnode.agent.launch import RunRequest
from orchestrator.onnode.agent.observers import TRANSPORT_S, RunOutput
from orchestrator.onnode.agent.run import ENDED_BY_US, NO_CONTAINER
from orchestrator.onnode.kernel.beat import LOOK_S, LoopWatch
from orchestrator.onnode.kernel.events import UNIT
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.records import NodeRunRecord, write
from orchestrator.simulation.engine import NEVER, Engine, SimProcess, Timer

if TYPE_CHECKING:
    from orchestrator.onnode.kernel.files import Files
    from orchestrator.onnode.kernel.settings import Settings

LINE_BYTES = 960
Span = tuple[float, float]
"""Shortest and longest (s), drawn evenly."""


@dataclass(frozen=True)
class NodePace:
    """Durations on a node, for an idle cluster of servers."""

    line: Span = (0.002, 0.02)
    """To the batch host."""
    launch: Span = (0.2, 1.5)
    checks: Span = (1.0, 4.0)
    container: Span = (4.0, 15.0)
    pull: Span = (200.0, 600.0)
    prepare: Span = (0.5, 3.0)
    start: Span = (0.1, 0.5)
    stop: Span = (0.5, 3.0)
    ignored_term: float = 10.0
    """Until it is killed (agent/run.py, KILL_S)."""
    release: Span = (0.5, 3.0)
    evidence: Span = (1.0, 8.0)
    task_end: float = 0.3
    """Until srun notices an agent's end."""
    step_end: float = 0.1
    """Until srun ends after its last agent."""
    notices_death: Span = (60.0, 120.0)
    """Until Slurm and srun notice (SlurmdTimeout)."""


@dataclass(frozen=True)
class Part:
    """A node's part of a training: output as rising (seconds after its start, bytes), then exit."""

    lines: tuple[tuple[float, bytes], ...] = ()
    seconds: float = NEVER
    code: int = 0


CONTENTS = {"packages": "a" * 16, "code": "b" * 16, "caches": "c" * 16}


@dataclass(eq=False)
class Machine:
    """A node and its faults. Texts are reasons, "" without the fault."""

    name: str
    up: bool = True
    image: str = "sha256:" + "5" * 64
    """Its identity; "" if the node has to pull it."""
    network: str = "off"
    facts: dict[str, str] = field(default_factory=lambda: {"kernel": "6.8.0", "driver": "6.12.12"})
    contents: dict[str, str] = field(default_factory=lambda: dict(CONTENTS))
    """Part of its containers' content -> hash."""
    failing: dict[str, str] = field(default_factory=dict)
    """Check -> reason."""
    refuses: str = ""
    """To pass the gate of a run."""
    keeps_caches: str = ""
    starts_nothing: bool = False
    """Its slurmd is up but starts no tasks."""
    untunable: str = ""
    unreverted: str = ""
    broken_container: str = ""
    """Containers end at once, with this output."""
    forges: str = ""
    """The node whose departure its new agents forge."""
    floods: bool = False
    """Its new agents send far too much."""
    slow: float = 1.0
    """The factor of all durations here, and of its trainings on all nodes."""
    clock_ms: int = 0
    """How far it is ahead."""
    containers: set[str] = field(default_factory=set)
    tuned_by: set[str] = field(default_factory=set)
    agents: list[Agent] = field(default_factory=list)


class Agent:
    """A node's agent, for the life of a step. `write_line` sends to the loop."""

    def __init__(
        self,
        process: SimProcess,
        machine: Machine,
        files: Files,
        settings: Settings,
        environment: Mapping[str, str],
        write_line: Callable[[bytes], None],
        training: Callable[[TrainingRun], Part],
        pace: NodePace,
        gone: Callable[[Agent, str], None],
    ) -> None:
        """`training(run)` returns this node's part. `gone(agent, how)` is called at its end; `how`
        is srun's report, "" after exit status 0.
        """
        self.process, self.machine, self.files, self.settings = process, machine, files, settings
        self.engine: Engine = process.engine
        self.layout, self.pace = Layout(Path(environment["ORCH_SET_DIR"])), pace
        self.environment, self.write_line = environment, write_line
        self.training, self._gone = training, gone
        self.name = machine.name
        self.owner = f"{environment['ORCH_JOB_ID']}-{machine.name}-{process.pid}"
        self.run: TrainingRun | None = None
        self.leaving = self.left = self.checked = self.ready = False
        self.status = 0
        self.used = environment.get("ORCH_CHOOSE") != "1"
        self.looked = False
        self.requests: deque[dict[str, Any]] = deque()
        self._awaits = ""
        """The only order it obeys now, pull or use; "" for neither."""
        self._busy = False
        self._looks = self._lost = False
        """It gathers evidence, interrupted only by its end; its container ended meanwhile."""
        self._facts: dict[str, str] = {}
        self._contents: dict[str, str] = {}
        """Of the container at its start."""
        machine.agents.append(self)
        process.deaths.append(self._died)
        self.watch, self._loop_gone = LoopWatch(settings.storage_wait_s), ""
        process.after(LOOK_S, self._look_for_loop)
        self._next(pace.launch, self._begin)

    # ---- time and words ----

    def _soon(self, span: Span, action: Callable[[], object]) -> Timer:
        return self.process.after(self.engine.between(*span) * self.machine.slow, action)

    def _next(self, span: Span, action: Callable[[], object]) -> None:
        """Run `action` unless the agent leaves before."""
        self._soon(span, lambda: None if self.leaving else action())

    def wall_ms(self) -> int:
        return self.engine.wall_ms + self.machine.clock_ms

    def say(self, word: str, *fields: str | int) -> None:
        text = f"{word}\t{self.name}\t{UNIT.join(map(str, fields))}"
        self.write_line(text.encode("utf-8", "replace")[:LINE_BYTES])

    def fail(self, kind: str, text: str) -> None:
        self.say("failed", kind, text)
        self.status = 1
        self.leave()

    # ---- until it is ready ----

    def flood(self) -> None:
        """Send 540 KB in a few seconds."""
        for k in range(600):
            self.process.after(k * 0.01, lambda: self.say("note", "a word too many " * 55))

    def _begin(self) -> None:
        if self.machine.floods:
            self.flood()
        if self.machine.forges:
            self.write_line(f"left\t{self.machine.forges}\t".encode())
        try:
            self.files.make_folder(self.layout.node(self.name), parents=True, exist_ok=True)
        except OSError as error:
            return self.fail(
                "storage", f"cannot write to {self.layout.node(self.name)}: {error.strerror}"
            )
        if (
            self.settings.engine != "none"
            and not self.machine.image
            and self.settings.pull == "missing"
        ):
            self.say("lacks")
            self._awaits = "pull"
            return self._serve()
        self._look()

    def _look(self) -> None:
        if self.settings.preflight_run == 1:
            for name in self.settings.preflight_skip:
                self.say("check", name, "skip", 0, "switched off (preflight.skip)", "")
            self._next(self.pace.checks, self._check)
        else:
            self.checked = True
        self.say("network", self.machine.network)
        self.looked = True
        if self.used:
            self._get_ready()
            return
        self._tell_facts()
        if self.checked:
            self._wait_for_choice()

    def _check(self) -> None:
        for name in NAMES:
            if name not in self.settings.preflight_skip:
                text = self._problem(name)
                bad = "warn" if name in self.settings.preflight_warn else "fail"
                self.say("check", name, bad if text else "pass", 10, text or "as it should be", "")
        self.say("same", "data=1 file, 10 bytes")
        self.say("checked", self.wall_ms())
        self.checked = True
        if not self.used:
            self._wait_for_choice()

    def _problem(self, check: str) -> str:
        if check == "log_dir":
            return self._marker()
        return self.machine.failing.get(check, "") or (
            self._missing_image if check == "image" else ""
        )

    @property
    def _missing_image(self) -> str:
        if self.settings.engine == "none" or self.machine.image:
            return ""
        return f"image {self.settings.cont} is not on this node; pull or load it there"

    def _marker(self) -> str:
        """Read the batch host's file, write the node's. Return an error, or ""."""
        marker = self.environment.get("ORCH_MARKER", "")
        if not marker:
            return ""
        try:
            text = self.files.read_bytes(marker).decode().strip()
            self.files.write(f"{marker}.{self.name}", f"{text}\n".encode())
        except OSError as error:
            return f"{marker}: {error.strerror}"
        return "" if text == self.environment["ORCH_MARKER_TEXT"] else f"{marker} has other words"

    def _wait_for_choice(self) -> None:
        self.say("waits")
        self._awaits = "use"
        self._serve()

    def _tell_facts(self) -> None:
        facts = {"image": self.machine.image or "-", **self.machine.facts}
        if self.owner in self.machine.tuned_by:
            facts["knob.numa_balancing"] = "0"
        if facts != self._facts:
            self._facts = facts
            self.say("facts", *(f"{name}={value}" for name, value in facts.items()))
            self._tell_contents()

    def _tell_contents(self) -> None:
        if self._contents:
            self.say("facts+", *(f"inside.{part}={sha}" for part, sha in self._contents.items()))

    def _get_ready(self) -> None:
        span = self.pace.container if self.settings.engine != "none" else self.pace.start
        self._next(span, self._is_ready)

    def _is_ready(self) -> None:
        machine = self.machine
        has_engine = self.settings.engine != "none"
        if self._missing_image:
            return self.fail("image", self._missing_image)
        if self.settings.runtime_tunables == 1:
            if machine.untunable:
                return self.fail("tunables", f"tunables: {machine.untunable}")
            machine.tuned_by.add(self.owner)
        if has_engine:
            if machine.broken_container:
                return self.fail(
                    "container", f"the container ended at once: {machine.broken_container}"
                )
            machine.containers.add(self.owner)
        if self.settings.nnodes > 1:
            self.say("host", f"{self.name}.cluster", "")
        self._tell_facts()
        at_start = machine.contents.items()
        self._contents = {part: sha for part, sha in at_start if part != "caches"}
        self._tell_contents()
        self.say("ready", machine.image if has_engine else "none")
        self.ready = True
        self._serve()

    # ---- orders ----

    def hear(self, message: Mapping[str, Any]) -> None:
        self.watch.reset()
        word = message.get("do")
        if word == "ping":
            self.write_line(self.pong(message))
        elif self._looks and word == "stop" and self.run and message.get("id") == self.run.id:
            self.run.stop()  # it cannot wait for the evidence
        else:
            self.requests.append(dict(message))
            self._serve()

    def pong(self, message: Mapping[str, Any]) -> bytes:
        run = self.run
        if run is None:
            return f"pong\t{self.name}\t{message.get('n')}".encode()
        about = UNIT.join((str(message.get("n")), run.id, *map(str, run.output.pulse())))
        return f"pong\t{self.name}\t{about}".encode()

    def _serve(self) -> None:
        while (
            self.requests and not self.leaving and not self._busy and (self._awaits or self.ready)
        ):
            message = self.requests.popleft()
            self._await(message) if self._awaits else self._do(message)

    def _is_named(self, message: Mapping[str, Any]) -> bool:
        nodes = message.get("nodes")
        return isinstance(nodes, list) and self.name in nodes

    def _await(self, message: dict[str, Any]) -> None:
        if message.get("do") != self._awaits or not self._is_named(message):
            return
        self._awaits = ""
        if message["do"] == "pull":
            self._next(self.pace.pull, self._pulled)
        else:
            self.used = True
            self._get_ready()

    def _pulled(self) -> None:
        if text := self.machine.failing.get("pull", ""):
            return self.fail("image", f"cannot pull {self.settings.cont}: {text}")
        self.machine.image = Machine.image
        self.say("pulled", self.machine.image)
        self._look()

    def _do(self, message: dict[str, Any]) -> None:
        word, run, named = message.get("do"), self.run, self._is_named(message)
        if word == "use" and not named:
            self.leave()
        elif word == "prepare" and named:
            request = RunRequest.of(message)
            if request is not None:
                self._prepare(request)
        elif run is not None and message.get("id") == run.id:
            if word == "go":
                run.go()
            elif word == "stop":
                run.stop()
            elif word == "evidence":
                self._busy = self._looks = True
                self._next(self.pace.evidence, lambda: self._tell_evidence(run))

    def _prepare(self, request: RunRequest) -> None:
        if self.run is not None:
            self.run.stop()
        self._busy = True
        self._next(self.pace.prepare, lambda: self._prepared(request))

    def _prepared(self, request: RunRequest) -> None:
        if self.run is not None and not self.run.over:
            self._next((0.1, 0.1), lambda: self._prepared(request))
            return
        self._busy = False
        self.run = TrainingRun(self, request)
        if not self.run.offer():
            return
        if self.machine.refuses:
            self.run = None
            self.say("refused", request.id, self.machine.refuses)
        else:
            self._tell_facts()
            if request.clear and self.machine.keeps_caches:
                self.run = None
                self.say("kept", request.id, f"cannot drop caches: {self.machine.keeps_caches}")
            else:
                kib = (4_000_000, 200_000) if request.clear else ("-", "-")
                self.say("prepared", request.id, self.wall_ms(), *kib)
        self._serve()

    def _tell_evidence(self, run: TrainingRun) -> None:
        """Send it, even after the run's end; then obey the next order."""
        path = self.layout.hang(run.number, run.attempt, self.name)
        try:
            self.files.make_folder(path.parent, parents=True, exist_ok=True)
            self.files.write(path, f"{self.name}: {run.doing}\n".encode())
        except OSError:
            pass  # the message alone is evidence, too
        self.say("evidence", run.id, run.doing)
        self._busy = self._looks = False
        if self._lost and not self.leaving:
            self._lose_place()
        self._serve()

    # ---- its end ----

    def end_input(self) -> None:
        """Leave: the loop released it, or is dead."""
        self.leave()

    def _look_for_loop(self) -> None:
        if self.leaving:
            return
        if reason := self.watch.check():
            self._loop_gone = reason
            self.leave()
        else:
            self.process.after(LOOK_S, self._look_for_loop)

    def terminate(self) -> None:
        self.status = self.status or ENDED_BY_US
        self.leave()

    def lose_container(self) -> None:
        self.machine.containers.discard(self.owner)
        self._lost = True
        if self.run is not None:
            self.run.stall()
        if not self.leaving and not self._looks:
            self._lose_place()

    def _lose_place(self) -> None:
        self.ready = False
        if self.run is not None and not self.run.over:
            self.run.ended(NO_CONTAINER)
        container = "its container ended: exit status 137"
        has_engine = self.settings.engine != "none"
        self.say("gone", container if has_engine else "the process that starts its runs was ended")
        self.status = 1
        self.leave()

    def leave(self) -> None:
        """End run and container, revert settings, and send `left` last."""
        if self.leaving:
            return
        self.leaving = True
        if self.run is not None and not self.run.over:
            self.run.stop(kill_s=3.0)
        self._soon(self.pace.release, self._left)

    def _left(self) -> None:
        if self.run is not None and not self.run.over:
            self._soon((0.2, 0.5), self._left)
            return
        self.machine.containers.discard(self.owner)
        if self.machine.unreverted and self.owner in self.machine.tuned_by:
            self.say("revert-failed", self.machine.unreverted)
        else:
            self.machine.tuned_by.discard(self.owner)
        self.say("left", self._loop_gone)
        self.left = True
        self._gone(self, f"Exited with exit code {self.status}" if self.status else "")
        self.process.kill()

    def _died(self) -> None:
        """Its container and run end a little later."""
        if self in self.machine.agents:
            self.machine.agents.remove(self)
        self.engine.after(0.5, lambda: self.machine.containers.discard(self.owner))
        lease_s = float(self.settings.orch_lease_s)
        self.engine.after(lease_s, lambda: self.machine.tuned_by.discard(self.owner))
        if not self.left:
            self._gone(self, "Killed")


class TrainingRun:
    """One run on one node, from `prepare` to its record."""

    def __init__(self, agent: Agent, request: RunRequest) -> None:
        self.agent, self.id = agent, request.id
        self.number, self.attempt, self.seed = request.run, request.attempt, request.seed
        self.nodes, self.rank = request.nodes, request.nodes.index(agent.name)
        self.output = RunOutput(lambda: agent.engine.now)
        self.log = agent.layout.node_log(self.number, self.attempt, self.rank)
        self.begun = self.stopped = self.over = False
        self.broken = self._told = False
        self.deaf, self.doing = False, "rank 0: all_reduce (nccl)"
        """`deaf`: it ignores TERM. `doing`: its activity in the evidence of a hang."""
        self.start_ms = self.end_ms = agent.wall_ms()
        self._timers: list[Timer] = []

    def offer(self) -> bool:
        """Open the log. On False the agent leaves without a message about this run."""
        try:
            self.agent.files.appender(self.log).close()
        except OSError as error:
            self.over = True
            self.agent.fail("storage", f"{self.log}: {error.strerror}")
        return not self.over

    def _keep(self, piece: bytes) -> bool:
        try:
            self.agent.files.append(self.log, piece)
        except OSError as error:
            if not self.broken:
                self.broken = True
                self.agent.fail("storage", f"cannot write to {self.log}: {error.strerror}")
            return False
        return True

    def _print(self, piece: bytes) -> None:
        if not self.over and not self.broken and self._keep(piece):
            self.output.feed(piece)
            if self.output.transports and not self._told:
                self._told = True
                self._later(TRANSPORT_S, self._tell_transport)

    def _tell_transport(self) -> None:
        self.agent.say("transport", self.id, *self.output.transports.use)

    def go(self) -> None:
        if self.begun or self.stopped:
            return
        agent, self.begun = self.agent, True
        self.start_ms, self.output = agent.wall_ms(), RunOutput(lambda: agent.engine.now)
        part = agent.training(self)
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

    def crash(self, code: int, text: str) -> None:
        self.stall()
        self._print(f"{text}\n".encode())
        self.ended(code)

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        self._timers.append(self.agent.process.after(seconds, action))

    def stop(self, kill_s: float = 0.0) -> None:
        if self.stopped or self.over:
            return
        self.stopped = True
        if not self.begun:
            return self.ended(ENDED_BY_US)
        pace = self.agent.pace
        seconds = pace.ignored_term if self.deaf else self.agent.engine.between(*pace.stop)
        self.agent.process.after(min(seconds, kill_s or seconds), lambda: self.ended(ENDED_BY_US))

    def _contents(self) -> dict[str, str]:
        """Return the container's content; {} without it, or if stopped."""
        is_natural = self.begun and not self.stopped and self.agent.ready
        return dict(self.agent.machine.contents) if is_natural else {}

    def ended(self, code: int) -> None:
        if self.over:
            return
        self.over, agent = True, self.agent
        for timer in self._timers:
            timer.cancel()
        self.output.finish()
        if self.output.transports:
            self._tell_transport()
        self.end_ms = agent.wall_ms()
        code = ENDED_BY_US if self.stopped else code
        contents = self._contents()
        if contents:
            agent.say("inside", self.id, *(f"{part}={sha}" for part, sha in contents.items()))
        record = NodeRunRecord(
            agent.name, self.rank, code, self.start_ms, self.end_ms, inside=contents
        )
        path = agent.layout.node_state(self.number, self.attempt, self.rank)
        try:
            write(record, path, sync=False, files=agent.files)
        except OSError as error:
            agent.say("note", f"cannot write {path}: {error.strerror}")
        status = "" if self.broken else self.output.status
        agent.say("exit", self.id, code, self.start_ms, self.end_ms, status)
        if agent.run is self and not agent.leaving:
            agent.run = None
