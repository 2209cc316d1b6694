"""Ways to run a command on a node: on this host, with srun, and the protocol of all transports.

SSH is in ssh.py, many nodes at a time in fanout.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.nodes.names import NamedNode

GRACE_S = 10.0
"""A transport waits this much longer than the command's own time-out."""
SLICE_S = 0.25
"""Pause between two checks of `stopped`."""
ENDING_S = 5.0
"""Time for a process to end after TERM."""
_TASK_ENDED = re.compile(r"srun: error: \S+: task \d+: ")


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """Result of a command on a node. `problem` is the reason for a missing answer, else ""."""

    node: str
    returncode: int
    """Exit code of the command; -1 without an answer."""
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    problem: str = ""

    @property
    def answered(self) -> bool:
        return not self.problem

    @property
    def ok(self) -> bool:
        """Return whether the command ended with exit code 0."""
        return self.answered and self.returncode == 0

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def complaints(self) -> list[str]:
        """Lines of standard error, stripped, without empty lines."""
        lines = self.stderr.decode("utf-8", "replace").splitlines()
        return [stripped for line in lines if (stripped := line.strip())]

    @property
    def message(self) -> str:
        """The problem, or the last complaint of the command, on one line."""
        if self.problem:
            return self.problem
        default = f"exit code {self.returncode} and no message"
        return self.complaints[-1] if self.complaints else default


class Transport(Protocol):
    """A way to run a command on a node: one connection and one round trip."""

    def run(
        self,
        node: NamedNode,
        argv: Sequence[str],
        stdin: bytes,
        timeout_s: float,
        stopped: threading.Event,
    ) -> NodeAnswer:
        """Run `argv` on `node` with `stdin` and return its answer.

        Failures of the node do not raise. The command is ended after `timeout_s`, or when `stopped`
        is set.
        """
        ...


class Deadline:
    """The end of a wait: `timeout_s` and GRACE_S from now, or when `stopped` is set."""

    def __init__(self, timeout_s: float, stopped: threading.Event) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s + GRACE_S
        self._stopped = stopped

    @property
    def left(self) -> float:
        """Seconds left, 0.0 at the end."""
        return 0.0 if self._stopped.is_set() else max(0.0, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        return self.left == 0.0

    @property
    def reason(self) -> str:
        """Why a wait that is over has no answer."""
        if self._stopped.is_set():
            return "was interrupted"
        return f"no answer within {self.timeout_s:g} s"


def bounded(argv: Sequence[str], timeout_s: float) -> list[str]:
    """Return `argv` under coreutils' `timeout`, which ends it on the node even if nobody waits."""
    return ["timeout", "--kill-after=5", f"{timeout_s:g}", *argv]


def checked(answer: NodeAnswer, timeout_s: float) -> NodeAnswer:
    """Return `answer`, with a problem if `timeout` ended the command: 124 by TERM, 137 by KILL."""
    if answer.returncode not in (124, 137) or answer.seconds < timeout_s:
        return answer
    problem = f"the command did not end within {timeout_s:g} s"
    return NodeAnswer(answer.node, -1, answer.stdout, answer.stderr, answer.seconds, problem)


@dataclass(frozen=True)
class ThisHost:
    """Runs commands on this host, whatever the node's name is."""

    env: Mapping[str, str] | None = None

    def run(
        self,
        node: NamedNode,
        argv: Sequence[str],
        stdin: bytes,
        timeout_s: float,
        stopped: threading.Event,
    ) -> NodeAnswer:
        deadline = Deadline(timeout_s, stopped)
        return _answer_of(node, bounded(argv, timeout_s), stdin, deadline, self.env)


@dataclass(frozen=True)
class Srun:
    """Runs each command as a job step in the allocation `job`, next to its other steps."""

    job: str
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def run(
        self,
        node: NamedNode,
        argv: Sequence[str],
        stdin: bytes,
        timeout_s: float,
        stopped: threading.Event,
    ) -> NodeAnswer:
        # srun reads SLURM_* variables of the batch script as options, such as its number of tasks.
        from orchestrator.scheduler.command import without_scheduler_variables

        command = self.command(node, bounded(argv, timeout_s))
        deadline = Deadline(timeout_s, stopped)
        env = without_scheduler_variables(self.env)
        answer = _answer_of(node, command, stdin, deadline, env)
        problem = _step_problem(answer) if answer.answered and answer.returncode else ""
        if not problem:
            return answer
        return NodeAnswer(node.name, -1, answer.stdout, answer.stderr, answer.seconds, problem)

    def command(self, node: NamedNode, argv: Sequence[str]) -> list[str]:
        return [
            "srun",
            f"--jobid={self.job}",
            "--overlap",
            "--nodes=1",
            "--ntasks=1",
            f"--nodelist={node.name}",
            "--immediate=60",
            "--unbuffered",
            "--chdir=/",
            *argv,
        ]


def _step_problem(answer: NodeAnswer) -> str:
    """Return srun's first error if it could not start the step, else "".

    The step's program and srun share one exit code.
    """
    text = answer.stderr.decode("utf-8", "replace")
    errors = [line for line in text.splitlines() if "srun: error:" in line]
    if not errors or _TASK_ENDED.search(text):
        return ""
    return f"srun: {errors[0].partition('srun: error:')[2].strip()}"


def _answer_of(
    node: NamedNode,
    argv: Sequence[str],
    stdin: bytes,
    deadline: Deadline,
    env: Mapping[str, str] | None,
) -> NodeAnswer:
    """Run the local process `argv` and return its result as the answer of `node`."""
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
        )
    except OSError as error:
        return NodeAnswer(node.name, -1, problem=f"cannot run {argv[0]}: {error.strerror or error}")
    with process:
        try:
            output = _communicate(process, stdin, deadline)
        finally:
            _end(process)
    seconds = time.monotonic() - start
    if output is None:
        return NodeAnswer(node.name, -1, seconds=seconds, problem=deadline.reason)
    answer = NodeAnswer(node.name, process.returncode, *output, seconds)
    return checked(answer, deadline.timeout_s)


def _communicate(
    process: subprocess.Popen[bytes], stdin: bytes, deadline: Deadline
) -> tuple[bytes, bytes] | None:
    unsent: bytes | None = stdin
    while not deadline.over:
        try:
            return process.communicate(unsent, timeout=min(SLICE_S, max(deadline.left, 0.01)))
        except subprocess.TimeoutExpired:
            unsent = None  # communicate() remembers the rest
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a running process with TERM, then KILL: srun ends its step on TERM only."""
    if process.poll() is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
