"""Transports that are local processes: this machine itself, and `srun` inside a Slurm allocation."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from orchestrator.nodes.names import NamedNode
from orchestrator.nodes.transport import NodeAnswer, Until, bounded, too_slow

SLICE_S = 0.25
"""How long a wait goes on before it is asked whether anybody still wants the answer."""
ENDING_S = 5.0

_TASK_ENDED = re.compile(r"srun: error: \S+: task \d+: ")


@dataclass(frozen=True)
class Here:
    """This machine, whatever the node's name is."""

    env: Mapping[str, str] | None = None

    def run(
        self, node: NamedNode, argv: Sequence[str], stdin: bytes, timeout_s: float, until: Until
    ) -> NodeAnswer:
        return answer_of(node, bounded(argv, timeout_s), stdin, timeout_s, until, self.env)


@dataclass(frozen=True)
class Srun:
    """One job step per node and command, inside the allocation `job`, beside whatever else runs there."""

    job: str
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def run(
        self, node: NamedNode, argv: Sequence[str], stdin: bytes, timeout_s: float, until: Until
    ) -> NodeAnswer:
        answer = answer_of(
            node, self.command(node, bounded(argv, timeout_s)), stdin, timeout_s, until, self._env()
        )
        said = answer.stderr.decode("utf-8", "replace")
        # The step's program and srun share one exit code. srun says so when the step itself could not be made.
        if (
            answer.answered
            and answer.returncode
            and "srun: error:" in said
            and not _TASK_ENDED.search(said)
        ):
            return NodeAnswer(
                node.name,
                -1,
                answer.stdout,
                answer.stderr,
                answer.seconds,
                f"srun: {_complaint(said)}",
            )
        return answer

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

    def _env(self) -> dict[str, str]:
        # Options that srun takes from SLURM_* of the batch script (its number of tasks, its distribution) are not ours.
        from orchestrator.scheduler.command import without_scheduler_variables

        return without_scheduler_variables(self.env)


def _complaint(said: str) -> str:
    lines = [
        line.partition("srun: error:")[2].strip()
        for line in said.splitlines()
        if "srun: error:" in line
    ]
    return lines[0] if lines else said.strip()


def answer_of(
    node: NamedNode,
    argv: Sequence[str],
    stdin: bytes,
    timeout_s: float,
    until: Until,
    env: Mapping[str, str] | None,
) -> NodeAnswer:
    """Run the process `argv` and return what it answered as the answer of `node`."""
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
        )
    except OSError as error:
        return NodeAnswer(node.name, -1, problem=f"cannot run {argv[0]}: {error.strerror or error}")
    with process:
        try:
            output = _communicate(process, stdin, until)
        finally:
            _end(process)
    seconds = time.monotonic() - began
    if output is None:
        why = "was interrupted" if until.stopped.is_set() else f"no answer within {timeout_s:g} s"
        return NodeAnswer(node.name, -1, seconds=seconds, problem=why)
    answer = NodeAnswer(node.name, process.returncode, *output, seconds)
    if too_slow(answer, timeout_s):
        return NodeAnswer(
            node.name, -1, *output, seconds, f"the command did not end within {timeout_s:g} s"
        )
    return answer


def _communicate(
    process: subprocess.Popen[bytes], stdin: bytes, until: Until
) -> tuple[bytes, bytes] | None:
    given: bytes | None = stdin
    while not until.over:
        try:
            return process.communicate(given, timeout=min(SLICE_S, max(until.left, 0.01)))
        except subprocess.TimeoutExpired:
            given = None  # the rest of it is remembered by communicate()
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what still runs: TERM first, because srun then ends its step; a killed srun leaves it behind."""
    if process.poll() is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
