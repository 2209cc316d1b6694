"""Run a command on many nodes, with a limit on parallelism and an answer for each node.

for answer in run_on_nodes(nodes, ["uname", "-r"], transport=choose_transport(), timeout_s=30):
    print(answer.node, answer.text if answer.ok else answer.message)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Event
from typing import TypeVar

from orchestrator.errors import UsageError
from orchestrator.nodes.names import NamedNode
from orchestrator.nodes.transport import (
    AllocationStep,
    NodeAnswer,
    NodeCommand,
    ThisHost,
    Transport,
)
from orchestrator.scheduler.advice import GET_ALLOCATION
from orchestrator.scheduler.slurm_step import STEP
from orchestrator.scheduler.slurm_variables import current_allocation

LIMIT = 16
"""Nodes at a time."""
LONGEST_S = 7 * 86_400

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
    """Run `argv` on every node, at most `limit` at a time, and yield answers as they arrive.

    No shell interprets `argv`. `timeout_s` counts for each node. Closing the iterator ends the
    rest. Raises UsageError; failures of a node are in its answer.
    """
    if not argv or not 0 < timeout_s <= LONGEST_S:
        raise UsageError(
            "a command and a time-out of up to a week are needed, "
            f"not {list(argv)!r} and {timeout_s!r} s"
        )
    if any("\0" in word for word in argv):
        raise UsageError(f"a word of the command holds a zero byte: {list(argv)!r}")
    wanted = [node if isinstance(node, NamedNode) else NamedNode(node) for node in nodes]

    command = NodeCommand(argv, stdin, timeout_s)

    def run(node: NamedNode, stopped: Event) -> NodeAnswer:
        return transport.run(node, command, stopped)

    for _, answer in each(wanted, run, limit=limit):
        yield answer


def each(
    items: Sequence[Item], work: Callable[[Item, Event], Result], *, limit: int = LIMIT
) -> Iterator[tuple[Item, Result]]:
    """Call `work(item, stopped)` in at most `limit` threads and yield results as they arrive.

    Closing the iterator skips waiting items and sets `stopped` for the others.
    """
    from concurrent.futures import ThreadPoolExecutor, as_completed

    if limit < 1:
        raise UsageError(f"at least one node at a time, not {limit}")
    stopped = Event()
    pool = ThreadPoolExecutor(max_workers=max(1, min(limit, len(items))), thread_name_prefix="node")
    try:
        futures = {pool.submit(work, item, stopped): item for item in items}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)


def choose_transport(
    via: str = "auto", *, ssh_config: str | None = None, env: Mapping[str, str] | None = None
) -> Transport:
    """Return the transport `via`: local, ssh, STEP, or auto: a step inside an allocation, else ssh.
    Raises UsageError for a step outside."""
    job = current_allocation(env).job
    if via == "local":
        return ThisHost()
    if via == STEP or (via == "auto" and job):
        if not job:
            raise UsageError(
                f"--via {STEP} works inside a Slurm allocation only",
                hint=f"{GET_ALLOCATION}, then this command in its shell",
            )
        return AllocationStep(job)
    from orchestrator.nodes.ssh import Ssh

    return Ssh(config_file=ssh_config)
