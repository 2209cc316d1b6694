"""Nodes borrowed from Slurm in an allocation that ends with this process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread

from orchestrator.errors import SchedulerError
from orchestrator.nodes.names import NamedNode
from orchestrator.nodes.transport import AllocationStep, NodeAnswer, NodeCommand
from orchestrator.scheduler.command import not_on_path
from orchestrator.scheduler.slurm_nodes import (
    allocation_command,
    allocation_reply,
    granted_job,
)

WAIT_S = 15
"""Idle nodes take seconds; after longer, a job has them."""
ENDING_S = 15.0


@dataclass(frozen=True)
class Lent:
    """The way to borrowed nodes; those `away` answer with the reason."""

    step: AllocationStep
    away: Mapping[str, str]

    def run(self, node: NamedNode, command: NodeCommand, stopped: Event) -> NodeAnswer:
        if node.name in self.away:
            return NodeAnswer(node.name, -1, problem=self.away[node.name])
        return self.step.run(node, command, stopped)


@contextmanager
def borrowed(
    nodes: Sequence[str], options: Sequence[str], *, minutes: int, purpose: str
) -> Iterator[AllocationStep]:
    """Hold an allocation of exactly these nodes, and yield the way to them.

    It ends with the context, and with this process: its command waits for the end of a pipe. Raises
    SchedulerError unless granted at once.
    """
    argv = allocation_command(
        nodes, options, minutes=minutes, wait_s=WAIT_S, argv=["cat"], purpose=purpose
    )
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise not_on_path(argv, "with --via ssh") from error
    lines: list[str] = []
    granted = Event()

    def read() -> None:
        for line in process.stderr or ():
            lines.append(line)
            if granted_job(line):
                granted.set()
        if process.stderr:
            process.stderr.close()
        granted.set()

    reader = Thread(target=read, daemon=True)
    reader.start()
    try:
        granted.wait(WAIT_S + ENDING_S)
        job = granted_job("".join(lines))
        if not job:
            raise _not_granted(argv, "".join(lines))
        yield AllocationStep(job)
    finally:
        _end(process)


def _not_granted(argv: Sequence[str], messages: str) -> SchedulerError:
    reply = allocation_reply(messages)
    problem = reply.problem or "no answer"
    if reply.busy:
        problem = f"the nodes were taken, or not given within {WAIT_S} s ({problem})"
    return SchedulerError(
        f"Slurm lends no nodes: {problem}",
        argv=[*argv],
        stderr=messages,
        hint="ask again, name other nodes with --nodes, or reach them with --via ssh",
    )


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(OSError):
        if process.stdin:
            process.stdin.close()
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_S)
