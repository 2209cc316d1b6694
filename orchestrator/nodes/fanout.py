"""Running one command on many nodes: bounded parallelism, one answer per node, no node ends the others.

    for answer in run_on_nodes(nodes, ["uname", "-r"], transport=choose_transport(), timeout_s=30):
        print(answer.node, answer.text if answer.ok else answer.words)

A transport makes one connection and one round trip per node and command. Inside a Slurm allocation that is `srun`,
outside it is SSH, on this machine it is a plain process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from orchestrator.errors import UsageError
from orchestrator.nodes.names import NamedNode
from orchestrator.nodes.transport import GRACE_S, NodeAnswer, Transport, Until

LIMIT = 16
"""Nodes at a time, when the caller does not say."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_on_nodes(
    nodes: Iterable[str | NamedNode],
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
        raise UsageError(
            f"a command and a time-out of up to a week are needed, not {list(argv)!r} and {timeout_s!r} s"
        )
    if any("\0" in word for word in argv):
        raise UsageError(f"a word of the command holds a zero byte: {list(argv)!r}")
    wanted = [node if isinstance(node, NamedNode) else NamedNode(node) for node in nodes]

    def one(node: NamedNode, stopped: threading.Event) -> NodeAnswer:
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


def choose_transport(
    env: Mapping[str, str] | None = None, *, ssh_config: str | None = None
) -> Transport:
    """Return srun inside a Slurm allocation, SSH outside one."""
    job = (os.environ if env is None else env).get("SLURM_JOB_ID", "")
    if job.isdecimal():
        from orchestrator.nodes.process import Srun

        return Srun(job)
    from orchestrator.nodes.ssh import Ssh

    return Ssh(config_file=ssh_config)
