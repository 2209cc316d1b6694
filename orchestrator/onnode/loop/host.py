"""The batch host as the loop's world: processes on nodes, signals, and local programs.

Flows reach their surroundings through BatchHost alone. The simulated one has the same methods
(orchestrator/simulation/host.py), so no other module here touches a clock, a file or a process.
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
    """Resumes flows after events. `signalled` is called in the main flow after signals."""

    def __init__(self, signalled: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._signalled = signalled
        self._awake = False

    def wake(self) -> None:
        """Resume the flows at once: a change was made for which another flow may wait."""
        self._awake = True

    def pump(self, until: float) -> None:
        """Wait for input, a signal, or `until` (World.now), and take in all that came."""
        until, self._awake = 0.0 if self._awake else until, False
        self.serve(until)
        if self.signals:
            self._signalled()


class JobStep(Protocol):
    """One process on each of `nodes`, as long as its input is open.

    Each gets a BEAT every BEAT_S (beat.py).
    """

    nodes: tuple[str, ...]

    @property
    def alive(self) -> bool:
        """Return whether a process runs, or some of its output has not been taken in yet."""

    @property
    def running(self) -> bool: ...

    def ended_nodes(self) -> list[str]:
        """Return the nodes whose process has ended and whose last line has been taken in."""

    def send(self, message: Mapping[str, Any]) -> None:
        """Send every node one line. A node that no longer reads is ignored: its silence shows."""

    def end_input(self) -> None:
        """End the input of all nodes, which then release everything and end."""

    def signal(self, number: int) -> None: ...

    def kill(self) -> None:
        """Kill all remaining processes."""


class NodeStep:
    """A JobStep of real processes: one for each of `nodes`, or one for all (see Senders).

    `take` gets standard output of nodes, `complain` standard error of nodes and of the step ("").
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
        takes: tuple[Callable[[bytes], object], ...]
        takes = (self._senders.receive_labelled, self._from_label(complain))
        try:
            for index, (command, more) in enumerate(commands):
                if len(commands) == len(nodes):
                    # The standard error of a process is also that of the step.
                    takes = (partial(take, nodes[index]), partial(complain, ""))
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
        """Start a process. `takes` get the lines of its standard output and error."""
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
                self._outputs.append(Lines(self._reactor, pipe.fileno(), take, pipe.close))

    def _from_label(self, take: Take) -> Callable[[bytes], object]:
        def receive(line: bytes) -> None:
            place, text = labelled(line, self.nodes)
            take(self._senders.node_at(place), text)

        return receive

    def _beat(self) -> None:
        """Send the beat, whatever the flows wait for."""
        self.send(BEAT)
        self._reactor.after(self._timer, BEAT_S, self._beat)

    @property
    def alive(self) -> bool:
        """Return whether a process runs, or some of its output has not been taken in yet."""
        return self.running or any(lines.open for lines in self._outputs)

    @property
    def running(self) -> bool:
        return any(process.poll() is None for process in self.processes)

    def ended_nodes(self) -> list[str]:
        """Return the nodes whose process has ended and whose last line has been taken in.

        [] if one process is for all nodes.
        """
        if len(self.processes) != len(self.nodes):
            return []
        each = zip(self.nodes, self.processes, self._outputs[::2])
        return [
            node for node, process, lines in each if not lines.open and process.poll() is not None
        ]

    def send(self, message: Mapping[str, Any]) -> None:
        """Send every node one line. A node that no longer reads is ignored: its silence shows."""
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
        """End the input of all nodes, which then release everything and end."""
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
        """Kill all remaining processes with their sessions, and close the pipes."""
        self.end_input()
        for process in self.processes:
            end_session(process)
            process.wait()
        for lines in self._outputs:
            lines.close()


class Program:
    """A program that runs in parallel to the loop. Raises OSError if it cannot start."""

    def __init__(self, argv: Sequence[str], given: bytes, environment: Mapping[str, str]) -> None:
        """`given`: its standard input, at most a few kilobytes, which a pipe takes at once."""
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
        """Wait for its end; after `seconds` kill it with its session."""
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
        """Return a Reactor, which takes over signals and children of this process."""
        self._reactor = Reactor(signalled)
        return self._reactor

    def run(self, flow: Generator[float, None, T]) -> T:
        """Resume `flow` until it returns, and return its value.

        Without a reactor only time resumes it. Exceptions during a wait are raised in the flow,
        which has a set to close.
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
        """Start one process on each of `nodes` in step order (Nodes.in_step). Raises OSError."""
        return NodeStep(reactor, nodes, commands, environment, take, complain)

    def program(self, argv: Sequence[str], given: bytes, environment: Mapping[str, str]) -> Program:
        """Start a Program on this host. Raises OSError."""
        return Program(argv, given, environment)

    def settings(self, bundle: Path) -> Settings:
        """Return the settings of a bundle. Raises SettingsError."""
        return settings_file.load(bundle)

    def config(self, bundle: Path, settings: Settings, nexp: int) -> tuple[bytes, frozenset[str]]:
        """Return the environment of the runs, and its variables that differ in each job.

        Raises SettingsError.
        """
        return settings_file.config(bundle, settings, nexp)

    def share(self, group: str) -> None:
        """Set the umask to that of a set shared with `group`."""
        self.umask(umask_for(group, self.umask(0o077)))

    def forget(self, name: str) -> str:
        """Remove a variable from the environment, also of children; return its value."""
        os.environ.pop(name, None)
        return self.environment.pop(name, "")

    def interrupt(self) -> None:
        """End this process as if its job were cancelled."""
        os.kill(os.getpid(), signal.SIGTERM)

    def log(self, text: str) -> None:
        """Write one line with a time stamp to standard error; see world.log."""
        log(self.wall_ms(), text)
