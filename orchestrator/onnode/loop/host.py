"""The batch host as the loop's world: processes on nodes, signals, and the programs that it starts here.

Everything that the flows ask of their surroundings is a method of BatchHost. The simulated one has the same methods
(orchestrator/simulation/host.py), so nothing else in this folder touches a clock, a file or a process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..kernel import settings_file
from ..kernel.beat import BEAT, BEAT_S
from ..kernel.settings import Settings
from ..kernel.waiting import Lines, Waiting, end_session
from ..kernel.world import World, log
from ..set.sharing import umask_for
from .slurm import Senders, Take, labelled

T = TypeVar("T")


class Reactor(Waiting):
    """Resumes flows when something happened. `signalled` is called in the main flow after signals came."""

    def __init__(self, signalled: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._signalled = signalled
        self._awake = False

    def wake(self) -> None:
        """Resume the flows at once: something has changed that another flow may wait for."""
        self._awake = True

    def pump(self, until: float) -> None:
        """Wait until something can be read, a signal came, or `until` (World.now), and take in all there is."""
        until, self._awake = 0.0 if self._awake else until, False
        self.serve(until)
        if self.signals:
            self._signalled()


class JobStep(Protocol):
    """One process on each of `nodes`, for as long as its input is open. Every BEAT_S it gives each of them a BEAT (beat.py)."""

    nodes: tuple[str, ...]

    @property
    def alive(self) -> bool:
        """Whether one of the processes runs, or something they wrote has not been taken in yet."""

    @property
    def running(self) -> bool: ...

    def ended_nodes(self) -> list[str]:
        """Return the nodes whose own process is known to have ended, and whose last line has been taken in."""

    def send(self, message: Mapping[str, Any]) -> None:
        """Give every node one line. A node that does not read any more is left alone: its silence shows."""

    def end_input(self) -> None:
        """Have all nodes let go."""

    def signal(self, number: int) -> None: ...

    def kill(self) -> None:
        """End by force all that still runs."""


class NodeStep:
    """A JobStep of real processes: one process for each of `nodes`, or one command for all (see Senders).

    `take` gets each line that a node writes, `complain` each that a node, or the step itself (""), writes to standard error.
    """

    def __init__(
        self,
        reactor: Reactor,
        nodes: Sequence[str],
        commands: Sequence[tuple[list[str], dict[str, str]]],
        environment: Mapping[str, str],
        take: Take,
        complain: Take,
    ) -> None:
        self.nodes = tuple(nodes)
        self._senders = Senders(nodes, take)
        self._reactor, self._timer = reactor, f"beat {id(self)}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self._outputs: list[Lines] = []
        for command, more in commands:
            # A single process: its standard error is also that of the step.
            takes: tuple[Callable[[bytes], object], ...] = (
                self._senders.receive_labelled,
                self._from_label(complain),
            )
            if len(commands) == len(nodes):
                takes = (partial(take, nodes[len(self.processes)]), partial(complain, ""))
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**environment, **more},
                    start_new_session=True,
                )
            except OSError:
                self.kill()
                raise
            os.set_blocking(process.stdin.fileno(), False)  # type: ignore[union-attr]
            self.processes.append(process)
            for pipe, then in zip((process.stdout, process.stderr), takes):
                self._outputs.append(Lines(reactor, pipe.fileno(), then, pipe.close))  # type: ignore[union-attr]
        reactor.after(self._timer, BEAT_S, self._beat)

    def _from_label(self, take: Take) -> Callable[[bytes], object]:
        def receive(line: bytes) -> None:
            place, text = labelled(line, self.nodes)
            take(self._senders.node_at(place), text)

        return receive

    def _beat(self) -> None:
        """Send the beat; whatever a flow waits for, its reactor does this in time."""
        self.send(BEAT)
        self._reactor.after(self._timer, BEAT_S, self._beat)

    @property
    def alive(self) -> bool:
        """Whether one of the processes runs, or something they wrote has not been taken in yet."""
        return self.running or any(lines.open for lines in self._outputs)

    @property
    def running(self) -> bool:
        return any(process.poll() is None for process in self.processes)

    def ended_nodes(self) -> list[str]:
        """Return the nodes whose own process has ended, if each has one, and whose last line has been taken in."""
        if len(self.processes) != len(self.nodes):
            return []
        each = zip(self.nodes, self.processes, self._outputs[::2])
        return [
            node for node, process, lines in each if not lines.open and process.poll() is not None
        ]

    def send(self, message: Mapping[str, Any]) -> None:
        """Give every node one line. A node that does not read any more is left alone: its silence shows."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        for process in self.processes:
            stream = process.stdin
            if stream is None or stream.closed:
                continue
            try:
                whole = os.write(stream.fileno(), line) == len(line)
            except OSError:
                whole = False
            if not whole:  # gone, or stopped for so long that its pipe is full
                stream.close()

    def end_input(self) -> None:
        """Have all nodes let go."""
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
        """End by force all that still runs, with all that is in its session, and close the pipes."""
        self.end_input()
        for process in self.processes:
            end_session(process)
            process.wait()
        for lines in self._outputs:
            lines.close()


class Program:
    """A program that the loop started and does not wait for. Raises OSError if it cannot start."""

    def __init__(self, argv: Sequence[str], given: bytes, environment: Mapping[str, str]) -> None:
        """`given` is its standard input: a few kilobytes, which a pipe takes at once."""
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

    def finish(self, seconds: float) -> None:
        """Wait for its end; after so many seconds end it by force, with all that is in its session."""
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            end_session(self._process)
            self._process.wait()


class BatchHost(World):
    """This process on the batch host."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        """The environment of the job."""
        self._reactor: Reactor | None = None

    def reactor(self, signalled: Callable[[], object]) -> Reactor:
        """Take over signals and children of this process; see Reactor."""
        self._reactor = Reactor(signalled)
        return self._reactor

    def run(self, flow: Generator[float, None, T]) -> T:
        """Resume `flow` until it returns; its value. Before there is a reactor nothing but time can resume it.

        What is raised while it waits is raised in it: it has a set to close.
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

    def start(
        self,
        reactor: Reactor,
        nodes: Sequence[str],
        commands: Sequence[tuple[list[str], dict[str, str]]],
        environment: Mapping[str, str],
        take: Take,
        complain: Take,
    ) -> JobStep:
        """Start one process on each of `nodes`, which are in step order (Nodes.in_step); see NodeStep. Raises OSError."""
        return NodeStep(reactor, nodes, commands, environment, take, complain)

    def program(self, argv: Sequence[str], given: bytes, environment: Mapping[str, str]) -> Program:
        """Start a program here; see Program. Raises OSError."""
        return Program(argv, given, environment)

    def settings(self, bundle: Path) -> Settings:
        """Return the settings of a bundle. Raises SettingsError."""
        return settings_file.load(bundle)

    def config(self, bundle: Path, settings: Settings, nexp: int) -> tuple[bytes, frozenset[str]]:
        """Return the environment of the runs, and the variables in it that are new in each job. Raises SettingsError."""
        return settings_file.config(bundle, settings, nexp)

    def share(self, group: str) -> None:
        """Have all that is written from now on be readable, or writable, as a set of `group` wants it."""
        self.umask(umask_for(group, self.umask(0o077)))

    def forget(self, name: str) -> str:
        """Take a variable out of the environment of this process and of all that it starts; its value, or ""."""
        os.environ.pop(name, None)
        return self.environment.pop(name, "")

    def interrupt(self) -> None:
        """End this process as if its job were cancelled."""
        os.kill(os.getpid(), signal.SIGTERM)

    def log(self, text: str) -> None:
        """Write one line with a time stamp to standard error; see world.log."""
        log(self.wall_ms(), text)
