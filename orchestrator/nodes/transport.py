"""What a transport is: one way to run one command on one node, its answer, and how long anybody waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.nodes.names import NamedNode

GRACE_S = 10.0
"""How much longer than the command's own time-out a transport waits for its answer."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What one node answered. `problem` says why there is no answer; it is "" when the command ran and ended."""

    node: str
    returncode: int
    """The command's exit code; -1 without an answer."""
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    problem: str = ""

    @property
    def answered(self) -> bool:
        return not self.problem

    @property
    def ok(self) -> bool:
        """Whether the command ran and ended with exit code 0."""
        return self.answered and self.returncode == 0

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def words(self) -> str:
        """On one line: why there is no answer, or the last thing the command complained about."""
        if self.problem:
            return self.problem
        lines = [
            line.strip()
            for line in self.stderr.decode("utf-8", "replace").splitlines()
            if line.strip()
        ]
        return lines[-1] if lines else f"exit code {self.returncode} and no message"


class Until:
    """A moment after which nobody waits any longer; `stop()` brings it forward to now."""

    def __init__(self, seconds: float, stopped: threading.Event | None = None) -> None:
        self.end = time.monotonic() + seconds
        self.stopped = stopped or threading.Event()

    @property
    def left(self) -> float:
        """Seconds left, 0.0 when it is over."""
        return 0.0 if self.stopped.is_set() else max(0.0, self.end - time.monotonic())

    @property
    def over(self) -> bool:
        return self.left == 0.0


class Transport(Protocol):
    """One way to run a command on a node."""

    def run(
        self, node: NamedNode, argv: Sequence[str], stdin: bytes, timeout_s: float, until: Until
    ) -> NodeAnswer:
        """Run `argv` on `node` with `stdin` and return its answer; never raises for what the node does.

        The command is ended after `timeout_s`, and no answer is awaited after `until`.
        """
        ...


def bounded(argv: Sequence[str], timeout_s: float) -> list[str]:
    """Return `argv` under coreutils' `timeout` on the node, so that it ends there too when nobody waits any more."""
    return ["timeout", "--kill-after=5", f"{timeout_s:g}", *argv]


def too_slow(answer: NodeAnswer, timeout_s: float) -> bool:
    """Whether `timeout` on the node ended the command: 124 by TERM, 137 by KILL, and not before its time."""
    return answer.returncode in (124, 137) and answer.seconds >= timeout_s
