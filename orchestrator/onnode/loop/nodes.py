"""Processes on nodes: started by srun, or here where there is no Slurm; lines to them and lines from them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..events import number
from ..policy.ending import telling
from ..system import ask, job_state, process_start
from ..waiting import Lines, Waiting

Flow = Generator[float, None, Any]
"""Something that waits: it yields the time.monotonic() value at which it wants to look again, and is resumed then, or sooner."""

UNTIL_WOKEN = float("inf")
"""What another flow or a node has to bring about, and not the time."""

T = TypeVar("T")

ANSWER_S = 4.0
"""How long Slurm is asked why a job ends: that is part of the time that is left to it."""


class Reactor(Waiting):
    """Runs what waits. `signalled` is called in the main flow after signals came."""

    def __init__(self, signalled: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._signalled = signalled
        self._awake = False

    def wake(self) -> None:
        """Resume what waits at once: something has changed that another flow may wait for."""
        self._awake = True

    def pump(self, until: float) -> None:
        """Wait until something can be read, a signal came, or `until` (time.monotonic()), and take in all there is."""
        until, self._awake = 0.0 if self._awake else until, False
        self.serve(until)
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


def together(flows: Sequence[Flow]) -> Flow:
    """Have `flows` go on side by side until each has returned; their values. What the first one raised is raised then.

    Where one ends, the others look again at once: they may wait for what it gives back.
    """
    going, values, raised = dict(enumerate(flows)), dict[int, Any](), list[Exception]()
    while going:
        until, before = [], len(going)
        for at, flow in list(going.items()):
            try:
                until.append(next(flow))
                continue
            except StopIteration as end:
                values[at] = end.value
            except Exception as error:
                raised.append(error)
            del going[at]
        if going:
            yield min(until) if len(going) == before else 0.0
    if raised:
        raise raised[0]
    return [values[at] for at in sorted(values)]


class NodeStep:
    """One process on each of `nodes`, for as long as its input is open: the end of this process is the end of theirs.

    `take(line)` gets each line that a node writes, `complain(line)` what the step itself says on standard error.
    """

    def __init__(
        self,
        reactor: Reactor,
        scheduler: Nodes,
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
            for pipe, then in ((process.stdout, take), (process.stderr, complain)):
                self._outputs.append(Lines(reactor, pipe.fileno(), then, pipe.close))  # type: ignore[union-attr]

    @property
    def alive(self) -> bool:
        """Whether one of the processes runs, or something they wrote has not been read yet."""
        return self.running or any(lines.open for lines in self._outputs)

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


class Nodes:
    """The nodes of a job: what is the same with and without Slurm."""

    name: str
    job_id: str
    cluster = ""
    restart = 0
    """How often Slurm has started this job again."""
    allocated: list[str]

    def commands(self, nodes: Sequence[str], argv: Sequence[str]) -> list[tuple[list[str], dict[str, str]]]:
        """Return the commands that start `argv` on `nodes`, each with more environment."""
        raise NotImplementedError

    def lost(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return the nodes that Slurm has lost, with their state. No answer: none."""
        return {}

    def names(self, words: str) -> list[str]:
        """Return the nodes that are meant by words of srun."""
        return [words]

    def master(self, ranks: Sequence[str]) -> str:
        return "127.0.0.1"

    def seconds_left(self) -> float | None:
        """Return the seconds until the time limit of the job; None without one, or without an answer."""
        return None

    def told_of_me(self) -> str:
        """Return what Slurm says of this job's end (policy/ending.py); "" without Slurm, or without an answer in time."""
        return ""

    def sees(self, job_id: str) -> bool | None:
        """Return whether Slurm shows a job; None when it does not answer, and of a job that is none of Slurm's."""
        state = job_state(job_id, 120) if job_id[:1].isdecimal() else "?"
        return None if state == "?" else bool(state)


class SlurmNodes(Nodes):
    """The nodes of the allocation that this process is in."""

    name = "slurm"

    def __init__(self, environment: dict[str, str]) -> None:
        """Raises LookupError, with what is missing, outside of an allocation."""
        if not environment.get("SLURM_JOB_ID"):
            raise LookupError(
                "this is not inside a Slurm allocation; use: sbatch job.sh (or run_with_docker.sh on one node)"
            )
        self.job_id = environment["SLURM_JOB_ID"]
        self.cluster = environment.get("SLURM_CLUSTER_NAME", "")
        self.restart = number(environment.get("SLURM_RESTART_COUNT", ""), 6) or 0
        status, names = ask(["scontrol", "show", "hostnames", environment.get("SLURM_JOB_NODELIST", "")], 60)
        if status < 0 or status == 127:
            raise LookupError(f"scontrol show hostnames: {names or 'no answer within 60 s'}")
        self.allocated = names.split()
        # The batch script's own limits must not shape the steps: each step says what it needs.
        # And every node has its own name.
        # srun has its step use SLURM_UMASK, which is that of the submission, before its own.
        for name in (
            "SLURM_UMASK",
            "SLURM_CPU_BIND",
            "SLURM_MEM_PER_CPU",
            "SLURM_MEM_PER_NODE",
            "SLURM_EXPORT_ENV",
            "ORCH_NODE",
        ):
            environment.pop(name, None)
        if environment.get("SLURM_CPUS_PER_TASK"):
            environment["SRUN_CPUS_PER_TASK"] = environment["SLURM_CPUS_PER_TASK"]

    def commands(self, nodes: Sequence[str], argv: Sequence[str]) -> list[tuple[list[str], dict[str, str]]]:
        """Return the one command that starts `argv` on each of `nodes`; one that fails, or is lost, does not end the others."""
        size = [
            f"--nodes={len(nodes)}",
            f"--ntasks={len(nodes)}",
            "--ntasks-per-node=1",
            f"--nodelist={','.join(nodes)}",
        ]
        how = [
            "--overlap",
            "--export=ALL",
            "--mpi=none",
            "--cpu-bind=none",
            "--quiet",
            "--kill-on-bad-exit=0",
            "--no-kill",
        ]
        return [(["srun", *how, *size, *argv], {})]

    def lost(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return the nodes that Slurm has lost, with their state. No answer: none."""
        status, text = ask(["sinfo", "--noheader", "--Node", f"--nodes={','.join(nodes)}", "--format=%N %T"], 20)
        rows = (line.split() for line in text.splitlines() if status >= 0)
        states = {row[0]: row[1] for row in rows if len(row) == 2 and row[0] in nodes}
        bad = ("down", "fail", "unknown", "power")
        return {node: state for node, state in states.items() if state.startswith(bad) or state.endswith("*")}

    def seconds_left(self) -> float | None:
        """Return the seconds until the time limit of the job; None without one, or without an answer."""
        status, text = ask(["squeue", "--noheader", f"--jobs={self.job_id}", "--format=%L"], 20)
        parts = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip()) if status == 0 else None
        if parts is None:  # UNLIMITED, INVALID
            return None
        days, hours, minutes, seconds = (int(one or 0) for one in parts.groups())
        return float(86400 * days + 3600 * hours + 60 * minutes + seconds)

    def told_of_me(self) -> str:
        """Return what Slurm says of this job's end; "" without an answer. It is ended by force after KillWait."""
        status, text = ask(["scontrol", "--oneliner", "show", "job", self.job_id], ANSWER_S)
        return telling(text) if status == 0 else ""

    def names(self, words: str) -> list[str]:
        """Return the nodes that Slurm means by `n1` or `n[1-3,5]`; none when it does not say."""
        if "[" not in words:
            return [words]
        status, names = ask(["scontrol", "show", "hostnames", words], 20)
        return names.split() if status == 0 else []

    def master(self, ranks: Sequence[str]) -> str:
        """Return the address of the first rank. A single node needs no name: it may resolve nowhere."""
        return ranks[0] if len(ranks) > 1 else "127.0.0.1"


class LocalNodes(Nodes):
    """This host: one node as in the published single-node flow, or several as processes side by side."""

    name = "local"

    def __init__(self, environment: dict[str, str], count: int) -> None:
        """`count`: nodes of all runs that go on at once, and spares."""
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


def node_command(python: str, bundle: Path, action: str) -> list[str]:
    """Return what runs on a node. Isolated, so that no module of a user's folder is taken for one of ours; no byte code."""
    return [python or "python3", "-I", "-S", "-B", str(bundle / "lib"), "node", action]
