"""Processes on nodes: started by srun, or here where there is no Slurm; lines to them and lines from them."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..agent.node import process_start

Flow = Generator[float, None, Any]
"""Something that waits: it yields the time.monotonic() value at which it wants to look again, and is resumed then, or sooner."""

T = TypeVar("T")
READ_BYTES = 1 << 16
MAX_LINE = 1 << 16


class Reactor:
    """Waits for everything at once: descriptors, signals, the clock. Signals are noted, never acted on inside a handler."""

    def __init__(self, signalled: Callable[[], object] = lambda: None) -> None:
        """`signalled` is called in the main flow after signals came; `signals` has their numbers."""
        self._signalled = signalled
        # Not epoll: the input can be a file.
        self._selector = selectors.PollSelector()
        self._wake, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self.signals: set[int] = set()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, lambda number, _: self.signals.add(number))
        # Only so that the end of a child wakes us.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.watch(self._wake, lambda: os.read(self._wake, READ_BYTES))

    def watch(self, fd: int, ready: Callable[[], object]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, ready)

    def forget(self, fd: int) -> None:
        self._selector.unregister(fd)

    def pump(self, until: float) -> None:
        """Wait until something can be read, a signal came, or `until` (time.monotonic()), and take in all there is."""
        for key, _ in self._selector.select(max(0.0, min(until - time.monotonic(), 3600.0))):
            key.data()
        if self.signals:
            self._signalled()

    def run(self, flow: Generator[float, None, T]) -> T:
        """Resume `flow` until it returns; its value."""
        try:
            until = next(flow)
            while True:
                self.pump(until)
                until = flow.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


class Lines:
    """Takes lines out of a descriptor as they come. Only `MAX_LINE` bytes of a line are kept."""

    def __init__(self, reactor: Reactor, file: Any, take: Callable[[bytes], None]) -> None:
        self._reactor, self._file, self._take, self._rest = reactor, file, take, b""
        self.open = True
        reactor.watch(file.fileno(), self.read)

    def read(self) -> None:
        """Take what is there now; the end closes the descriptor."""
        piece = os.read(self._file.fileno(), READ_BYTES)
        if not piece:
            self.close()
            return
        *lines, rest = (self._rest + piece).split(b"\n")
        self._rest = rest[:MAX_LINE]
        for line in lines:
            self._take(line)

    def close(self) -> None:
        if self.open:
            self.open = False
            self._reactor.forget(self._file.fileno())
            self._file.close()


class NodeStep:
    """One process on each of `nodes`, for as long as its input is open: the end of this process is the end of theirs.

    `take(line)` gets each line that a node writes, `complain(line)` what the step itself says on standard error.
    """

    def __init__(
        self,
        reactor: Reactor,
        scheduler: SlurmNodes | LocalNodes,
        nodes: Sequence[str],
        argv: Sequence[str],
        environment: Mapping[str, str],
        take: Callable[[bytes], None],
        complain: Callable[[bytes], None],
    ) -> None:
        self.nodes = tuple(nodes)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._outputs: list[Lines] = []
        for command, more in scheduler.commands(nodes, argv):
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
            self._outputs += [Lines(reactor, process.stdout, take), Lines(reactor, process.stderr, complain)]

    @property
    def alive(self) -> bool:
        """Whether one of the processes runs, or something they wrote has not been read yet."""
        return any(process.poll() is None for process in self.processes) or any(lines.open for lines in self._outputs)

    @property
    def running(self) -> bool:
        return any(process.poll() is None for process in self.processes)

    def ended_nodes(self) -> list[str]:
        """Return the nodes whose own process has ended, where each has one of its own, and whose last word has been taken in."""
        if len(self.processes) != len(self.nodes):
            return []
        each = zip(self.nodes, self.processes, self._outputs[::2])
        return [node for node, process, lines in each if not lines.open and process.poll() is not None]

    def send(self, message: Mapping[str, Any]) -> None:
        """Give every node one line. A node that does not read any more is left alone: its silence tells."""
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
        """Tell all nodes to let go."""
        for process in self.processes:
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()

    def signal(self, number: int) -> None:
        for process in self.processes:
            if process.poll() is None:
                try:
                    process.send_signal(number)
                except ProcessLookupError:
                    pass

    def kill(self) -> None:
        """End by force what still runs, with all that is in its session, and close the pipes."""
        self.end_input()
        for process in self.processes:
            if process.poll() is None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
        for lines in self._outputs:
            lines.close()


class SlurmNodes:
    """The nodes of the allocation that this process is in."""

    name = "slurm"

    def __init__(self, environment: dict[str, str]) -> None:
        """Raises LookupError, with what is missing, outside of an allocation."""
        if not environment.get("SLURM_JOB_ID"):
            raise LookupError(
                "this is not inside a Slurm allocation; use: sbatch job.sh (or run_with_docker.sh on one node)"
            )
        self.job_id = environment["SLURM_JOB_ID"]
        try:
            names = ["scontrol", "show", "hostnames", environment.get("SLURM_JOB_NODELIST", "")]
            self.allocated = subprocess.run(
                names, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
            ).stdout.split()
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LookupError(f"scontrol show hostnames: {error}") from error
        # The batch script's own limits must not shape the steps: each step says what it needs.
        # And every node has its own name.
        for name in ("SLURM_CPU_BIND", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE", "SLURM_EXPORT_ENV", "ORCH_NODE"):
            environment.pop(name, None)
        if environment.get("SLURM_CPUS_PER_TASK"):
            environment["SRUN_CPUS_PER_TASK"] = environment["SLURM_CPUS_PER_TASK"]

    def commands(self, nodes: Sequence[str], argv: Sequence[str]) -> list[tuple[list[str], dict[str, str]]]:
        """Return the one command that starts `argv` on each of `nodes`; one that fails, or is lost, does not end the others."""
        count = str(len(nodes))
        srun = [
            "srun",
            "--overlap",
            "--export=ALL",
            f"--nodes={count}",
            f"--ntasks={count}",
            "--ntasks-per-node=1",
            "--mpi=none",
        ]
        return [([*srun, f"--nodelist={','.join(nodes)}", "--quiet", "--kill-on-bad-exit=0", "--no-kill", *argv], {})]

    def lost(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return the nodes that Slurm has lost, with their state. No answer: none."""
        command = ["sinfo", "--noheader", "--Node", f"--nodes={','.join(nodes)}", "--format=%N %T"]
        try:
            text = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20).stdout
        except (OSError, subprocess.TimeoutExpired):
            return {}
        rows = (line.split() for line in text.splitlines())
        states = {row[0]: row[1] for row in rows if len(row) == 2 and row[0] in nodes}
        bad = ("down", "fail", "unknown", "power")
        return {node: state for node, state in states.items() if state.startswith(bad) or state.endswith("*")}

    def names(self, words: str) -> list[str]:
        """Return the nodes that Slurm means by `n1` or `n[1-3,5]`; none when it does not say."""
        if "[" not in words:
            return [words]
        try:
            argv = ["scontrol", "show", "hostnames", words]
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return []
        return done.stdout.split()

    def master(self, ranks: Sequence[str]) -> str:
        return ranks[0]

    def is_live(self, job_id: str) -> bool:
        """Whether Slurm still has the job. No answer counts as yes: a set must never be worked on twice."""
        return _slurm_has(job_id) if job_id.isdecimal() else _lives_here(job_id)


class LocalNodes:
    """This host: one node as in the published single-node flow, or several as processes side by side."""

    name = "local"

    def __init__(self, environment: dict[str, str], count: int) -> None:
        """`count`: nodes and spares of the system."""
        pid = os.getpid()
        self.job_id = environment.get("ORCH_JOB_ID") or f"local-{pid}-{process_start(pid)}"
        host = os.uname().nodename.split(".")[0]
        self.allocated = [host] if count == 1 else [f"local{rank}" for rank in range(count)]
        # A shell inside an allocation has Slurm's variables; runs get their own.
        for name in ("SLURM_NODEID", "SLURM_NNODES", "SLURM_JOB_ID", "SLURMD_NODENAME"):
            environment.pop(name, None)

    def commands(self, nodes: Sequence[str], argv: Sequence[str]) -> list[tuple[list[str], dict[str, str]]]:
        """Return a command for each node."""
        return [(list(argv), {"ORCH_NODE": node}) for node in nodes]

    def lost(self, nodes: Sequence[str]) -> dict[str, str]:
        return {}

    def names(self, words: str) -> list[str]:
        return [words]

    def master(self, ranks: Sequence[str]) -> str:
        return "127.0.0.1"

    def is_live(self, job_id: str) -> bool:
        """Whether the loop of that job still runs; a job of Slurm can hold a set, too."""
        return _slurm_has(job_id) if job_id.isdecimal() else _lives_here(job_id)


def _slurm_has(job_id: str) -> bool:
    command = ["squeue", "--noheader", f"--jobs={job_id}", "--format=%T"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return True
    if done.returncode:
        return "Invalid job id" not in done.stderr
    return bool(done.stdout.strip())


def _lives_here(job_id: str) -> bool:
    name, pid, start = [*job_id.split("-"), "", ""][:3]
    return name == "local" and pid.isdecimal() and len(pid) < 10 and bool(start) and process_start(int(pid)) == start


def node_command(python: str, bundle: Path, action: str) -> list[str]:
    """Return what runs on a node. Isolated, so that no module of a user's folder is taken for one of ours; no byte code."""
    return [python or "python3", "-I", "-S", "-B", str(bundle / "lib"), "node", action]
