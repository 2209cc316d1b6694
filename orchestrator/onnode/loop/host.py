"""The batch host as the loop's world: processes on nodes, signals, local programs.

Flows reach clock, files and processes only through BatchHost, which orchestrator/simulation/host.py
simulates.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import IO, Any, NamedTuple, Protocol, TypeVar

from ..kernel import settings_file
from ..kernel.beat import BEAT, BEAT_S
from ..kernel.program import Program
from ..kernel.settings import Settings
from ..kernel.waiting import Lines, Waiting, end_session
from ..kernel.world import World, log
from ..set.new import umask_for
from .slurm import Senders, Take, has_labels

T = TypeVar("T")


class Reactor(Waiting):
    """Resumes flows after events. `signalled` is called in the main flow."""

    def __init__(self, signalled: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._signalled = signalled
        self._awake = False

    def wake(self) -> None:
        """Resume the flows at once: another may await this change."""
        self._awake = True

    def pump(self, until: float) -> None:
        """Wait for input, a signal or `until` (World.now); take in everything."""
        until, self._awake = 0.0 if self._awake else until, False
        self.serve(until)
        if self.signals:
            self._signalled()


class StepProcesses(NamedTuple):
    """Processes, per node or for all (see Senders).

    `take` gets the nodes' output, `complain` the standard error of nodes and of the step ("").
    """

    nodes: Sequence[str]
    """In step order (JobAllocation.in_step)."""
    commands: Sequence[tuple[list[str], dict[str, str]]]
    environment: Mapping[str, str]
    take: Take
    complain: Take


class JobStep(Protocol):
    """A process on each of `nodes` while its input is open, with a BEAT every BEAT_S (beat.py)."""

    nodes: tuple[str, ...]

    @property
    def alive(self) -> bool:
        """A process runs, or output is still to come."""

    @property
    def running(self) -> bool: ...

    def ended_nodes(self) -> list[str]:
        """Return nodes whose process and output have ended."""

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a line to every node. Nodes that no longer read fall silent."""

    def end_input(self) -> None:
        """Nodes then release everything and end."""

    def signal(self, number: int) -> None: ...

    def kill(self) -> None:
        """Kill all remaining processes."""


class NodeStep:
    """A process for all nodes, or for each."""

    def __init__(self, reactor: Reactor, step: StepProcesses) -> None:
        nodes, commands, environment, take, complain = step
        self.nodes = tuple(nodes)
        self._senders = Senders(nodes, take, complain)
        self._reactor, self._timer = reactor, f"beat {id(self)}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self._outputs: list[Lines] = []
        takes: tuple[Callable[[bytes], object], ...]
        takes = self._senders.receive_output, self._senders.receive_error
        try:
            for index, (command, more) in enumerate(commands):
                if not has_labels(command):  # each node has its own process
                    takes = (partial(take, nodes[index]), partial(complain, nodes[index]))
                self._start(command, {**environment, **more}, *takes)
        except OSError:
            self.kill()
            raise
        reactor.after(self._timer, BEAT_S, self._beat)

    def _start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *takes: Callable[[bytes], object],
    ) -> None:
        """`takes`: for lines of output and error."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self.processes.append(process)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
        for pipe, take in zip((process.stdout, process.stderr), takes):
            if pipe is not None:
                at_end = partial(self._end_output, pipe)
                self._outputs.append(Lines(self._reactor, pipe.fileno(), take, at_end))

    def _end_output(self, pipe: IO[bytes]) -> None:
        pipe.close()
        if not any(lines.open for lines in self._outputs):
            self._senders.end()

    def _beat(self) -> None:
        self.send(BEAT)
        self._reactor.after(self._timer, BEAT_S, self._beat)

    @property
    def alive(self) -> bool:
        return self.running or any(lines.open for lines in self._outputs)

    @property
    def running(self) -> bool:
        return any(process.poll() is None for process in self.processes)

    def ended_nodes(self) -> list[str]:
        """[] if all nodes share a process."""
        if len(self.processes) != len(self.nodes):
            return []
        each = zip(self.nodes, self.processes, self._outputs[::2])
        return [
            node for node, process, lines in each if not lines.open and process.poll() is not None
        ]

    def send(self, message: Mapping[str, Any]) -> None:
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        for process in self.processes:
            stream = process.stdin
            if stream is None or stream.closed:
                continue
            try:
                whole = os.write(stream.fileno(), line) == len(line)
            except OSError:
                whole = False
            if not whole:  # gone, or stopped so long that its pipe is full
                stream.close()

    def end_input(self) -> None:
        self._reactor.cancel(self._timer)
        for process in self.processes:
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()

    def signal(self, number: int) -> None:
        for process in self.processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    process.send_signal(number)

    def kill(self) -> None:
        self.end_input()
        for process in self.processes:
            end_session(process)
            process.wait()
        for lines in self._outputs:
            lines.close()


class StartedProgram:
    """A program parallel to the loop. Raises OSError."""

    def __init__(self, argv: Sequence[str], given: bytes, environment: Mapping[str, str]) -> None:
        """`given`: standard input, a few KB at most, which a pipe takes at once."""
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        if self._process.stdin is not None:
            with self._process.stdin as stream:
                stream.write(given)

    def finish(self, seconds: float) -> bool:
        """Kill its session after `seconds`; return whether it ended before."""
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            end_session(self._process)
            self._process.wait()
            return False
        return True


class BatchHost(World):
    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self._reactor: Reactor | None = None

    def reactor(self, signalled: Callable[[], object]) -> Reactor:
        """Return a Reactor for this process's signals and children."""
        self._reactor = Reactor(signalled)
        return self._reactor

    def run(self, flow: Generator[float, None, T]) -> T:
        """Resume `flow` until it returns; return its value. Without a reactor only time resumes it.

        The flow gets the exceptions: it has a set to close.
        """
        try:
            until = next(flow)
            while True:
                try:
                    self._wait(until)
                except BaseException as error:
                    until = flow.throw(error)
                else:
                    until = flow.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _wait(self, until: float) -> None:
        if self._reactor is not None:
            self._reactor.pump(until)
        else:
            self.pause(max(0.0, until - self.now()))

    def start(self, reactor: Reactor, step: StepProcesses) -> JobStep:
        """Raises OSError."""
        return NodeStep(reactor, step)

    def program(
        self, argv: Sequence[str], given: bytes, environment: Mapping[str, str]
    ) -> StartedProgram:
        return StartedProgram(argv, given, environment)

    def settings(self, program: Program) -> Settings:
        """Raises SettingsError."""
        return settings_file.load(program.files)

    def config(
        self, program: Program, settings: Settings, nexp: int
    ) -> tuple[bytes, frozenset[str]]:
        """See settings_file.config."""
        return settings_file.config(program.files, settings, nexp)

    def is_free(self, port: int) -> bool:
        """Return whether no process of this host uses a TCP port."""
        import socket

        for family in (socket.AF_INET6, socket.AF_INET):  # a host may have IPv4 alone
            try:
                with socket.socket(family) as probe:
                    # Like torch: an ended connection does not occupy its port.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("", port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
        return True

    def share(self, group: str) -> None:
        """Set the umask for a set shared with `group`."""
        self.umask(umask_for(group, self.umask(0o077)))

    def forget(self, name: str) -> str:
        """Remove a variable, also for children; return its value."""
        os.environ.pop(name, None)
        return self.environment.pop(name, "")

    def interrupt(self) -> None:
        """End this process as in a cancelled job."""
        os.kill(os.getpid(), signal.SIGTERM)

    def log(self, text: str) -> None:
        log(self.wall_ms(), text)
