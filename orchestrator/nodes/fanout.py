"""Running one command on many nodes: bounded parallelism, one answer per node, no node ends the others.

    for answer in run_on_nodes(nodes, ["uname", "-r"], transport=choose_transport(), timeout_s=30):
        print(answer.node, answer.text if answer.ok else answer.words)

A transport makes one connection and one round trip per node and command. Inside a Slurm allocation that is `srun`,
outside it is SSH, on this machine it is a plain process.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from orchestrator.errors import UsageError
from orchestrator.nodes.names import Node

LIMIT = 16
"""Nodes at a time, when the caller does not say."""
GRACE_S = 10.0
"""How much longer than the command's own time-out a transport waits for its answer."""

Item = TypeVar("Item")
Result = TypeVar("Result")


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
        lines = [line.strip() for line in self.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
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

    def run(self, node: Node, argv: Sequence[str], stdin: bytes, timeout_s: float, until: Until) -> NodeAnswer:
        """Run `argv` on `node` with `stdin` and return its answer; never raises for what the node does.

        The command is ended after `timeout_s`, and no answer is awaited after `until`.
        """
        ...


def run_on_nodes(
    nodes: Iterable[str | Node],
    argv: Sequence[str],
    *,
    transport: Transport,
    stdin: bytes = b"",
    timeout_s: float = 60.0,
    limit: int = LIMIT,
) -> Iterator[NodeAnswer]:
    """Run `argv` on every node, at most `limit` at a time, and yield each answer as it comes.

    `timeout_s` holds per node, from the moment its turn comes. `argv` is passed word by word: nothing in it is read as
    shell syntax. Who stops reading the answers ends what still runs. Raises UsageError for arguments that cannot be
    meant; everything a node does wrong is in its answer's `problem`.
    """
    if not argv or not 0 < timeout_s <= 604_800:
        raise UsageError(f"a command and a time-out of up to a week are needed, not {list(argv)!r} and {timeout_s!r} s")
    if any("\0" in word for word in argv):
        raise UsageError(f"a word of the command holds a zero byte: {list(argv)!r}")
    wanted = [node if isinstance(node, Node) else Node(node) for node in nodes]

    def one(node: Node, stopped: threading.Event) -> NodeAnswer:
        return transport.run(node, argv, stdin, timeout_s, Until(timeout_s + GRACE_S, stopped))

    for _, answer in each(wanted, one, limit=limit):
        yield answer


def each(
    items: Sequence[Item], work: Callable[[Item, threading.Event], Result], *, limit: int = LIMIT
) -> Iterator[tuple[Item, Result]]:
    """Call `work(item, stopped)` for every item in at most `limit` threads and yield results as they come.

    When the reader stops early, what has not begun is left out and `stopped` is set for what runs.
    An exception of `work` is raised here, as soon as it comes.
    """
    from concurrent.futures import ThreadPoolExecutor, as_completed

    if limit < 1:
        raise UsageError(f"at least one node at a time, not {limit}")
    stopped = threading.Event()
    pool = ThreadPoolExecutor(max_workers=max(1, min(limit, len(items))), thread_name_prefix="node")
    try:
        futures = {pool.submit(work, item, stopped): item for item in items}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)


def choose_transport(env: Mapping[str, str] | None = None, *, ssh_config: str | None = None) -> Transport:
    """Return srun inside a Slurm allocation, SSH outside one."""
    job = (os.environ if env is None else env).get("SLURM_JOB_ID", "")
    if job.isdecimal():
        from orchestrator.nodes.process import Srun

        return Srun(job)
    from orchestrator.nodes.ssh import Ssh

    return Ssh(config_file=ssh_config)


def bounded(argv: Sequence[str], timeout_s: float) -> list[str]:
    """Return `argv` under coreutils' `timeout` on the node, so that it ends there too when nobody waits any more."""
    return ["timeout", "--kill-after=5", f"{timeout_s:g}", *argv]


def too_slow(answer: NodeAnswer, timeout_s: float) -> bool:
    """Whether `timeout` on the node ended the command: 124 by TERM, 137 by KILL, and not before its time."""
    return answer.returncode in (124, 137) and answer.seconds >= timeout_s
