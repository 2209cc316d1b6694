"""The simulated worlds of loops, and the runner of jobs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.nodes.names import fold
from orchestrator.onnode.kernel import program as programs
from orchestrator.onnode.kernel.beat import BEAT_S
from orchestrator.onnode.kernel.holder import Holder
from orchestrator.onnode.kernel.program import Program
from orchestrator.onnode.kernel.settings import Settings
from orchestrator.onnode.kernel.world import World, stamp
from orchestrator.onnode.loader import unpack
from orchestrator.onnode.loop import host
from orchestrator.onnode.loop.job import work
from orchestrator.onnode.loop.slurm import Senders
from orchestrator.simulation.agent_parts import AgentPost
from orchestrator.simulation.deep import MeasuringAgent
from orchestrator.simulation.engine import NEVER, Engine, Killed, SimProcess, Timer
from orchestrator.simulation.machine import Machine, NodePace
from orchestrator.simulation.node_run import Part, TrainingRun
from orchestrator.simulation.nodes import Agent
from orchestrator.simulation.slurm_job import ON_NODES

if TYPE_CHECKING:
    from orchestrator.onnode.kernel.files import Files
    from orchestrator.simulation.slurm import Cluster, SimJob

BOOT, PIDS = "boot-{}", "pid:[4026531836]"
"""Kernel boot and process namespace of hosts."""
KILLED, NO_ANSWER = 137, -9
ABORT_S = 2.0
AT_ONCE, LATER_S = 0.75, (0.0, 6.0)
"""The loop gets a signal at once (probability), else within these seconds."""
CLIENT_FIRST = 0.1
"""The chance that a signal ends a container, by its client, long before its agent."""


class Surroundings(World):
    """A simulated process's world: the engine's clock, the server's files, tokens."""

    def __init__(
        self, process: SimProcess, files: Files, ahead_ms: Callable[[], int] = lambda: 0
    ) -> None:
        """`ahead_ms`: how far this host's clock is ahead."""
        self.process, self.files, self.ahead_ms = process, files, ahead_ms
        self.engine = process.engine

    def now(self) -> float:
        return self.engine.now

    def wall_ms(self) -> int:
        return self.engine.wall_ms + self.ahead_ms()

    def pause(self, seconds: float) -> None:
        self.process.step()
        self.engine.pause(self.process, seconds)

    def token(self, size: int = 8) -> str:
        return self.engine.random.randbytes(size).hex()

    @property
    def host(self) -> str:
        return self.process.host

    @property
    def pid(self) -> int:
        return self.process.pid

    def holder(self, job: str = "", cluster: str = "", restart: int = 0) -> Holder:
        me = self.process
        boot = BOOT.format(me.host)
        return Holder(
            cluster, 1000, me.host, boot, PIDS, me.pid, str(me.pid), job, restart, self.token()
        )

    def lives(self, pid: int, start: str) -> bool:
        return any(process.pid == pid and process.alive for process in self.engine.processes)

    def every(self, seconds: float, action: Callable[[], bool]) -> Callable[[], None]:
        timer: list[Timer] = []

        def beat() -> None:
            if action():
                timer[:] = [self.process.after(seconds, beat)]

        timer[:] = [self.process.after(seconds, beat)]
        return lambda: timer[0].cancel()


class SimReactor:
    """Signals arrive at once; events resume flows."""

    def __init__(self, loop: Loop, signalled: Callable[[], object]) -> None:
        self._loop, self.signalled = loop, signalled
        self.signals: set[int] = set()
        self.leaving = False
        self.order: int | None = None

    def notice(self) -> None:
        """Do nothing: signals have arrived already."""

    def wake(self) -> None:
        self._loop.wake()


class Loop:
    """The loop of a job, resumed by time or events."""

    def __init__(self, process: SimProcess, job: SimJob, ended: Callable[[int], object]) -> None:
        """`ended(status)` follows any end of the process."""
        self.job, self.program = job, Program({})
        self.process, self.engine, self._ended = process, process.engine, ended
        self._status = KILLED
        self.reactor: SimReactor | None = None
        self.steps: list[SimStep] = []
        self.failure: BaseException | None = None
        self.ended_at = NEVER
        self._flow: Generator[float, None, Any] | None = None
        self._timer: Timer | None = None
        process.deaths.append(self._died)

    def start(self, flow: Generator[float, None, Any]) -> None:
        self._flow = flow
        self._timer = self.process.after(0.0, self._resume)

    def wake(self) -> None:
        """Resume the flow after all other events of this moment."""
        if self._timer is None or self._timer.action is None or self._timer.at > self.engine.now:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.process.after(0.0, self._resume)

    def post(self, delay_s: float, action: Callable[[], object]) -> None:
        def take_in() -> None:
            action()
            self.wake()

        self.process.after(delay_s, take_in)

    def signal(self, number: int) -> None:
        """Send a signal, deadly without a reactor."""

        def take_in() -> None:
            reactor = self.reactor
            if reactor is None:
                self._over(128 + number)
                return
            reactor.signals.add(number)
            reactor.order = 128 + signal.SIGTERM
            self.wake()

        self.process.after(0.001, take_in)

    def _resume(self) -> None:
        flow, reactor = self._flow, self.reactor
        if flow is None:
            return
        if self.process.inbox:  # a reactor first takes in everything
            self._timer = self.process.after(0.0, self._resume)
            return
        self._timer = None
        try:
            if reactor is not None and reactor.signals:
                reactor.signalled()
            until = flow.send(None)
        except StopIteration as end:
            self._flow = None
            self._over(int(end.value))
            return
        except Killed:  # perhaps before the flow was reached
            self.drop()
            raise
        except Exception as error:  # the simulation's caller reports it
            self._flow, self.failure = None, error
            self._over(1)
            return
        if self._timer is None and until < NEVER:
            self._timer = self.process.after(until - self.engine.now, self._resume)

    def _over(self, status: int) -> None:
        self._status = status
        self.process.kill()

    @property
    def killed(self) -> bool:
        """True without an exit status."""
        return self._status == KILLED

    @property
    def failed(self) -> bool:
        return self._status != 0

    def drop(self) -> None:
        flow, self._flow = self._flow, None
        if flow is not None:
            _unwind(flow)

    def _died(self) -> None:
        self.ended_at = self.engine.now
        self.drop()
        for step in self.steps:
            step.orphan()
        self._ended(self._status)


def _unwind(flow: Generator[float, None, Any]) -> None:
    """The further calls of a dead process have no effect."""
    for _ in range(100):
        try:
            flow.throw(Killed())
        except (StopIteration, Killed, Exception):
            return


class SimStep:
    """An agent on each of `nodes`, under one srun or none."""

    def __init__(self, jobs: Jobs, loop: Loop, step: host.StepProcesses) -> None:
        nodes, commands, environment, take, complain = step
        action = commands[0][0][-1]  # node_command ends with the action: `hold` or `deep`
        self.nodes = tuple(nodes)
        self._jobs, self._loop, self._complain = jobs, loop, complain
        self._receive = Senders(nodes, take).receive
        in_order = [node for node in jobs.machines if node in self.nodes]
        self._places = dict(zip(in_order, self.nodes, strict=True))
        """Node -> the node expected there: Slurm numbers tasks by its node table."""
        self.engine = loop.engine
        self.running = self.alive = True
        self._input = True
        self.agents: dict[str, Agent] = {}
        self._over: dict[str, str] = {}
        self._reported: set[str] = set()
        self._arrivals: dict[str, float] = {}
        loop.steps.append(self)
        loop.process.after(BEAT_S, self._beat)
        if refusal := self._refusal():
            self._say(f"srun: error: Unable to {refusal}")
            self.engine.after(0.1, self._end)
            return
        down = [
            node
            for node in nodes
            if not jobs.machines[node].up or jobs.machines[node].condition.starts_nothing
        ]
        for node in nodes:
            if node not in down:
                self.agents[node] = jobs.agent(
                    node, action, loop.program, environment, self._line(node), self._gone
                )
        if down:
            self.engine.after(jobs.pace.notices_death[0] / 12, lambda: self._abort(down[0]))

    def _refusal(self) -> str:
        job = self._loop.job
        if job.state not in ON_NODES:  # its loop lives on
            return f"confirm allocation for job {job.id}: Invalid job id specified"
        if not set(self.nodes) <= set(job.nodes):  # Slurm has removed a node
            cause = "Requested node configuration is not available"
            return f"create step for job {job.id}: {cause}"
        return ""

    def _line(self, node: str) -> Callable[[bytes], None]:
        """Return the sender of a node's lines: in order, simultaneous lines together."""
        place, pipe = self._places[node], f"from {node}"
        written, since = list[bytes](), -1.0

        def write(line: bytes) -> None:
            nonlocal written, since
            if self.alive and since == self.engine.now:
                written.append(line)
            elif self.alive:
                lines, since = [line], self.engine.now
                written = lines
                self._loop.post(self._in_order(pipe), lambda: self._arrive(place, lines))

        return write

    def _arrive(self, place: str, lines: list[bytes]) -> None:
        for line in lines:
            if self.alive:
                self._receive(place, line)

    def _in_order(self, pipe: str) -> float:
        now = self.engine.now
        at = max(now + self.engine.between(*self._jobs.pace.line), self._arrivals.get(pipe, 0.0))
        self._arrivals[pipe] = at
        return at - now

    def _say(self, text: str, delay_s: float = 0.05) -> None:
        """Write to srun's standard error."""
        self._loop.post(delay_s, lambda: self._complain("", text.encode()) if self.alive else None)

    def _abort(self, node: str) -> None:
        """End the step elsewhere: srun cannot reach `node`."""
        cause = "Communication connection failure"
        self._say(f"srun: error: Task launch for StepId=4.1 failed on node {node}: {cause}")
        self._say(f"srun: error: Application launch failed: {cause}")
        self._over[node] = "Killed"
        for agent in list(self.agents.values()):
            self.engine.after(0.1, agent.process.kill)
        self.engine.after(ABORT_S + 30.0, self._end)
        self._check()

    def _gone(self, node: str, how: str) -> None:
        """`how` is "" after exit status 0."""
        self._over[node] = how
        machine = self._jobs.machines[node]
        pace = self._jobs.pace
        delay = pace.task_end if machine.up else self.engine.between(*pace.notices_death)
        if how:
            rank = list(self._places).index(node)
            delay = (
                self.engine.between(0.0, delay) if machine.up else delay
            )  # another way than its last messages
            if not machine.up:
                self._say(f"srun: error: Node failure on {node}", delay)
            self._say(f"srun: error: {node}: task {rank}: {how}", delay)
            delay = max(delay, pace.task_end)
        self.engine.after(delay, lambda: self._reported.add(node))
        self.engine.after(delay, self._check)

    def _check(self) -> None:
        if self._reported.union(node for node in self.nodes if node not in self.agents) >= set(
            self.nodes
        ):
            self.engine.after(self._jobs.pace.step_end, self._end)

    def _end(self) -> None:
        """The loop soon reads the last output."""
        if self.running:
            self.running = False
            self._loop.post(0.05, self._close)

    def _close(self) -> None:
        self.alive = False

    def ended_nodes(self) -> list[str]:
        """Return []: one srun stands for all nodes."""
        return []

    def send(self, message: Mapping[str, Any]) -> None:
        self._loop.process.step()
        if not self._input:
            return
        if message.get("do") == "ping":
            self._loop.post(self._jobs.pace.line[1], lambda: self._ping(message))
            return
        if message.get("do") == "prepare":
            self._jobs.prepares(message["run"])
        for node in self.nodes:
            agent = self.agents.get(node)
            if agent is not None and node not in self._over:
                self._order(agent, message)

    def _order(self, agent: Agent, message: Mapping[str, Any]) -> None:
        agent.process.after(self._in_order(f"to {agent.name}"), lambda: agent.hear(message))

    def _ping(self, message: Mapping[str, Any]) -> None:
        """Answer for all nodes at once: pings are frequent."""
        receive, places = self._receive, self._places
        for agent in self.agents.values() if self.alive else ():
            process = agent.process
            if process.alive and not process.stopped and agent.machine.up:
                receive(places[agent.name], agent.pong(message))

    def _beat(self) -> None:
        """Beat for all agents at once."""
        if self._input and self.running:
            for agent in self.agents.values():
                if agent.process.alive and not agent.process.stopped and agent.machine.up:
                    agent.watch.reset()
            self._loop.process.after(BEAT_S, self._beat)

    def end_input(self) -> None:
        if self._input:
            self._input = False
            for agent in self.agents.values():
                agent.process.after(self._in_order(f"to {agent.name}"), agent.end_input)

    def orphan(self) -> None:
        """End srun's input after the loop's death."""
        self.alive = False
        self.end_input()

    def signal(self, number: int) -> None:
        """A second signal kills the tasks, as with srun."""
        for agent in self.agents.values():
            agent.process.after(0.05, agent.terminate)
        self.engine.after(ABORT_S, self._kill_agents)

    def _kill_agents(self) -> None:
        for agent in self.agents.values():
            agent.process.kill()

    def kill(self) -> None:
        self.end_input()
        self.running = self.alive = False


class SimProgram:
    def finish(self, seconds: float) -> bool:
        """End it."""
        return True


class SimHost(Surroundings, host.BatchHost):
    def __init__(
        self, jobs: Jobs, loop: Loop, files: Files, job: SimJob, ahead_ms: Callable[[], int]
    ) -> None:
        Surroundings.__init__(self, loop.process, files, ahead_ms)
        self.environment = dict(job.env)
        self._jobs, self._loop, self._job = jobs, loop, job

    def ask(self, argv: Sequence[str], seconds: float, *, errors: bool = False) -> tuple[int, str]:
        self.process.step()
        reply = self._jobs.cluster.command(argv, self.environment, "/", host=self.host)
        self.engine.pause(self.process, min(reply.delay_s, seconds))
        if reply.delay_s > seconds:
            return NO_ANSWER, ""
        return reply.status, reply.out + (reply.err if errors else "")

    def reactor(self, signalled: Callable[[], object]) -> Any:
        self._loop.reactor = SimReactor(self._loop, signalled)
        return self._loop.reactor

    def start(self, reactor: Any, step: host.StepProcesses) -> SimStep:
        self.process.step()
        return SimStep(self._jobs, self._loop, step)

    def program(self, argv: Sequence[str], given: bytes, environment: Mapping[str, str]) -> Any:
        self.process.step()
        self._jobs.notifications.append(given)
        return SimProgram()

    def settings(self, program: Program) -> Settings:
        return self._jobs.bundle.settings(program, self.environment)

    def config(
        self, program: Program, settings: Settings, nexp: int
    ) -> tuple[bytes, frozenset[str]]:
        return self._jobs.bundle.config(program, settings, nexp)

    def is_free(self, port: int) -> bool:
        return True

    def share(self, group: str) -> None:
        """Do nothing: file modes are not simulated."""

    def forget(self, name: str) -> str:
        return self.environment.pop(name, "")

    def interrupt(self) -> None:
        self._loop.signal(signal.SIGTERM)

    def log(self, text: str) -> None:
        self._jobs.log.append((self.engine.now, self._job.id, text))
        line = f"{stamp(self.wall_ms(), '%Y-%m-%dT%H:%M:%S+0000', utc=True)} orchestrator: {text}\n"
        with suppress(OSError):
            self.files.append(
                self._job.request.script.output.replace("%j", self._job.id),
                line.encode("utf-8", "backslashreplace"),
            )


class EvaluatedBundle(Protocol):
    def settings(self, program: Program, environment: Mapping[str, str]) -> Settings: ...

    def config(
        self, program: Program, settings: Settings, nexp: int
    ) -> tuple[bytes, frozenset[str]]: ...


@dataclass(eq=False)
class Jobs:
    """The Runner of simulation/slurm.py."""

    engine: Engine
    machines: dict[str, Machine]
    files_of: Callable[[SimProcess], Files]
    bundle: EvaluatedBundle
    training: Callable[[TrainingRun], Part]
    pace: NodePace = field(default_factory=NodePace)
    loops: dict[str, Loop] = field(default_factory=dict)
    every_loop: list[Loop] = field(default_factory=list)
    notifications: list[bytes] = field(default_factory=list)
    log: list[tuple[float, str, str]] = field(default_factory=list)
    """Virtual time, job, text; `starts on` with nodes is a job's start."""
    failures: list[BaseException] = field(default_factory=list)
    """Unexpected exceptions of loops."""
    begins: list[Callable[[Loop], object]] = field(default_factory=list)
    prepares: Callable[[int], object] = lambda run: None
    """Called as nodes start to prepare a run."""
    cluster: Cluster = field(init=False)
    agents: dict[str, list[Agent]] = field(init=False)

    def __post_init__(self) -> None:
        self.agents = {node: [] for node in self.machines}

    def join(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def at_next_loop(self, action: Callable[[Loop], object]) -> None:
        self.begins.append(action)

    def start(self, job: SimJob) -> None:
        machine = self.machines[job.nodes[0]]
        process = self.engine.process(f"loop of job {job.id}", machine.name)
        self.log.append((self.engine.now, job.id, f"starts on {fold(job.nodes)}"))

        def ended(status: int) -> None:
            if loop.failure is not None:
                self.failures.append(loop.failure)
            if machine.up:
                self.engine.after(0.2, lambda: self.cluster.ended(job.id, status))

        loop = Loop(process, job, ended)
        if job.id in self.loops:  # requeued: its first steps may still be ending
            loop.steps.extend(self.loops[job.id].steps)
        self.loops[job.id] = loop
        self.every_loop.append(loop)
        begins, self.begins = self.begins, []
        for action in begins:
            action(loop)
        world = SimHost(self, loop, self.files_of(process), job, lambda: machine.clock_ms)
        program = _program(job)
        if program is None:
            process.kill()
        else:
            loop.program = program
            loop.start(work(world, program, "slurm"))

    def agent(
        self,
        node: str,
        action: str,
        program: Program,
        environment: Mapping[str, str],
        write: Callable[[bytes], None],
        gone: Callable[[str, str], None],
    ) -> Agent:
        process = self.engine.process(f"agent of {node}", node)
        post = AgentPost(
            process,
            self.machines[node],
            self.files_of(process),
            self.bundle.settings(program, environment),
            environment,
            write,
            self.pace,
            gone,
        )
        if action == "deep":
            return MeasuringAgent(post, self.machines, self.agents[node])
        return Agent(post, self.training, self.agents[node])

    def signal(self, job: SimJob, number: int, *, batch_only: bool) -> None:
        loop = self.loops.get(job.id)
        if loop is None:
            return
        if number in (signal.SIGSTOP, signal.SIGCONT):
            self._suspend(job, loop, on=number == signal.SIGSTOP)
            return
        agents = [] if batch_only else self._agents(job)
        if loop.process.host in job.nodes and job.batch_host in job.nodes:
            if batch_only or self.engine.random.random() < AT_ONCE:
                loop.signal(number)
            else:
                loop.process.after(self.engine.between(*LATER_S), lambda: loop.signal(number))
        for agent in agents if number == signal.SIGTERM else ():
            first = self.engine.random.random() < CLIENT_FIRST
            agent.process.after(0.001, agent.lose_container if first else agent.terminate)
            self.stall(agent)

    def _suspend(self, job: SimJob, loop: Loop, *, on: bool) -> None:
        processes = [agent.process for agent in self._agents(job)]
        if loop.process.host in job.nodes:
            processes.insert(0, loop.process)
        for process in processes:
            process.stop() if on else process.resume()

    def kill(self, job: SimJob) -> None:
        loop = self.loops.get(job.id)
        if loop is not None and loop.process.host in job.nodes:
            loop.process.kill()
        for agent in self._agents(job):
            agent.process.kill()

    def left(self, job: SimJob) -> set[str]:
        loop = self.loops.get(job.id)
        nodes = {agent.name for agent in self._agents(job)}
        if loop is not None and loop.process.alive:
            nodes.add(loop.process.host)
        return nodes

    def _agents(self, job: SimJob) -> list[Agent]:
        steps = self.loops[job.id].steps if job.id in self.loops else ()
        agents = (agent for step in steps for agent in step.agents.values())
        return [agent for agent in agents if agent.process.alive and agent.name in job.nodes]

    def power_off(self, node: str) -> None:
        machine = self.machines[node]
        machine.power_off()
        agents = list(self.agents[node])
        for process in list(self.engine.processes):
            if process.host == node and process.alive:
                process.kill()
        machine.forget_processes()
        for agent in agents:
            self.stall(agent)

    def stall(self, lost: Agent) -> None:
        """Make the run's other nodes wait forever."""
        run = lost.run
        if run is None or not run.begun:
            return
        for other in self.runs():
            if other is not run and other.log.path.parent == run.log.path.parent:
                other.stall()

    def every_agent(self) -> list[Agent]:
        """Node by node."""
        return [agent for node in self.machines for agent in self.agents[node]]

    def runs(self) -> list[TrainingRun]:
        """Return running trainings, node by node."""
        return [
            agent.run
            for agent in self.every_agent()
            if agent.run is not None and agent.run.begun and not agent.run.over
        ]

    def power_on(self, node: str) -> None:
        self.machines[node].power_on()


def _program(job: SimJob) -> Program | None:
    """Return the program of the job's archive (None if changed), without it of the folder."""
    sha256 = job.env.get("ORCH_PROGRAM_SHA256", "")
    if not sha256:
        return programs.read(job.request.script.path.parent)
    archive = job.env["ORCH_PROGRAM"]
    try:
        data = Path(archive).read_bytes()
    except OSError:
        return None
    program = Program(unpack(data), archive, data)
    return program if program.sha256 == sha256 else None
