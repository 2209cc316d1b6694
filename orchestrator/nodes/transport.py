"""Ways to run a command: on this host, or as a step of an allocation (SSH: ssh.py)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

from orchestrator.nodes.names import NamedNode
from orchestrator.scheduler.slurm_step import (
    launch_problem,
    step_command,
    without_step_messages,
)

GRACE_S = 10.0
"""A transport waits this much longer than the command's time-out."""
SLICE_S = 0.25
ENDING_S = 5.0


@dataclass(frozen=True, slots=True)
class NodeCommand:
    """`timeout_s` counts from the start on a node."""

    argv: Sequence[str]
    stdin: bytes = b""
    timeout_s: float = 60.0

    @property
    def bounded(self) -> list[str]:
        """`argv` under coreutils' `timeout`, which ends it even if nobody waits."""
        return ["timeout", "--kill-after=5", f"{self.timeout_s:g}", *self.argv]


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """Result of a command; `problem` explains a missing answer."""

    node: str
    returncode: int
    """-1 without an answer."""
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    problem: str = ""

    @property
    def answered(self) -> bool:
        return not self.problem

    @property
    def ok(self) -> bool:
        return self.answered and self.returncode == 0

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def complaints(self) -> list[str]:
        """The command's own lines: srun adds the exit code of each task."""
        lines = self.stderr.decode("utf-8", "replace").splitlines()
        return without_step_messages(stripped for line in lines if (stripped := line.strip()))

    @property
    def message(self) -> str:
        if self.problem:
            return self.problem
        default = f"exit code {self.returncode} and no message"
        return self.complaints[-1] if self.complaints else default


class Transport(Protocol):
    """A way to run a command: one connection, one round trip."""

    def run(self, node: NamedNode, command: NodeCommand, stopped: Event) -> NodeAnswer:
        """Run `command`, and end it after its time-out or when `stopped` is set.

        Failures of the node are in the answer.
        """
        ...


class Deadline:
    """The end of a wait: GRACE_S after the time-out, or when `stopped` is set."""

    def __init__(self, timeout_s: float, stopped: Event) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s + GRACE_S
        self._stopped = stopped

    @property
    def left(self) -> float:
        return 0.0 if self._stopped.is_set() else max(0.0, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        return self.left == 0.0

    @property
    def reason(self) -> str:
        if self._stopped.is_set():
            return "was interrupted"
        return f"no answer within {self.timeout_s:g} s"


def checked(answer: NodeAnswer, timeout_s: float) -> NodeAnswer:
    """Return `answer`, as a problem if `timeout` ended the command (124 TERM, 137 KILL)."""
    if answer.returncode not in (124, 137) or answer.seconds < timeout_s:
        return answer
    problem = f"the command did not end within {timeout_s:g} s"
    return NodeAnswer(answer.node, -1, answer.stdout, answer.stderr, answer.seconds, problem)


@dataclass(frozen=True)
class ThisHost:
    """Runs commands here, whatever the node's name."""

    env: Mapping[str, str] | None = None

    def run(self, node: NamedNode, command: NodeCommand, stopped: Event) -> NodeAnswer:
        deadline = Deadline(command.timeout_s, stopped)
        return _answer_of(node, command.bounded, command.stdin, deadline, self.env)


@dataclass(frozen=True)
class AllocationStep:
    """Runs commands as steps of the allocation `job`, next to its others."""

    job: str
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def run(self, node: NamedNode, command: NodeCommand, stopped: Event) -> NodeAnswer:
        # The batch script's variables would become options, such as its number of tasks.
        from orchestrator.scheduler.command import without_scheduler_variables

        argv = step_command(self.job, node.name, command.bounded)
        deadline = Deadline(command.timeout_s, stopped)
        env = without_scheduler_variables(self.env)
        answer = _answer_of(node, argv, command.stdin, deadline, env)
        if answer.ok or not answer.answered:
            return answer
        problem = launch_problem(answer.stderr.decode("utf-8", "replace"))
        if not problem:
            return answer
        return NodeAnswer(node.name, -1, answer.stdout, answer.stderr, answer.seconds, problem)


def _answer_of(
    node: NamedNode,
    argv: Sequence[str],
    stdin: bytes,
    deadline: Deadline,
    env: Mapping[str, str] | None,
) -> NodeAnswer:
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
    """End a process, with TERM first: killed, a step would stay."""
    if process.poll() is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
