"""A cluster that answers Slurm's commands in text, and fails as real clusters.

tests/lab/test_simulated_slurm.py compares it with a real Slurm. Its hosts keep UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

from orchestrator.simulation.engine import NEVER
from orchestrator.simulation.slurm_call import Call, Read, Rejected, Reply, Unsupported
from orchestrator.simulation.slurm_commands import (
    NO_CONTACT,
    PROGRAMS,
    TIMED_OUT,
    Program,
    host_names,
    unreached,
)
from orchestrator.simulation.slurm_controller import Controller, SlurmConf
from orchestrator.simulation.slurm_job import Runner, SimJob

__all__ = ["Cluster", "Reply", "Runner", "SimJob", "SlurmConf", "Unsupported"]


def read_here(host: str, path: Path) -> str:
    return path.read_text()


REFUSAL_S, SILENCE_S = 9.0, 10.0
"""A client tries to reach a dead slurmctld, and waits for a silent slurmctld."""
BUSY_S = 120.0
"""sbatch retries (MAX_RETRIES of sbatch.c)."""
HANGS = 0.25
"""The share of clients that never return after a lost answer; others notice."""


PlannedFault = Literal["reply lost", "command lost", "empty", "submission lost", "busy", "refused"]
"""Of commands, then of submissions; `submission lost`: accepted without an answer."""


class Cluster(Controller):
    """A cluster as seen by hosts. `count`: the next commands or submissions."""

    read: Read = staticmethod(read_here)
    """For sbatch; a world with its own storage replaces it."""
    _share_lost = 0.0
    _slow_s = _slow_until = 0.0

    @cached_property
    def _faults(self) -> dict[PlannedFault, int]:
        return dict.fromkeys(get_args(PlannedFault), 0)

    def lose_replies(self, count: int = 0, *, share: float = 0.0) -> None:
        """Lose answers, not effects: of the next commands, and a share of all later commands."""
        self._share_lost = share
        self.plan("reply lost", count)

    def slow(self, seconds: float, for_s: float) -> None:
        self._slow_s, self._slow_until = seconds, self.engine.now + for_s

    def empty_answers(self, count: int = 1) -> None:
        """Make commands print nothing, with exit status 0."""
        self.plan("empty", count)

    def plan(self, fault: PlannedFault, count: int = 1) -> None:
        """Plan a fault of the next commands or submissions. Raises KeyError for an unknown
        fault."""
        self._faults[fault] += count

    def _due(self, fault: PlannedFault) -> bool:
        due = self._faults[fault] > 0
        self._faults[fault] -= due
        return due

    def command(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        *,
        host: str,
        uid: int = 1000,
        given: str = "",
    ) -> Reply:
        """Run a command at once; the reply has its delay."""
        call = Call(tuple(argv), env, cwd, host, uid, self.read, given)
        program = PROGRAMS.get(call.program)
        if program is None:
            return Reply(127, "", f"{call.program}: command not found\n")
        if tuple(argv[1:3]) == ("show", "hostnames"):
            return host_names(call)
        try:
            reply = self._asked(program, call)
        except Rejected as refused:
            reply = refused.reply
        slow_s = self._slow_s if self.engine.now < self._slow_until else 0.0
        return replace(
            reply,
            delay_s=max(reply.delay_s, self.engine.between(*self.answer_s), self.absent_s) + slow_s,
        )

    def _asked(self, program: Program, call: Call) -> Reply:
        if self.absent_s > REFUSAL_S * call.attempts:
            return unreached(call, NO_CONTACT, REFUSAL_S * call.attempts)
        if self._due("command lost"):
            return self._silence(call)
        if (
            call.program == "sbatch"
            and "--test-only" not in call.argv
            and (reply := self._turned_away())
        ):
            return reply
        reply = program(self, call)
        submitted = call.program == "sbatch" and not reply.status and self._due("submission lost")
        if submitted or self._due("reply lost") or self.engine.random.random() < self._share_lost:
            return self._silence(call)
        return (
            replace(reply, out="")
            if not reply.status and reply.out and self._due("empty")
            else reply
        )

    def _turned_away(self) -> Reply | None:
        if self._due("busy"):
            first = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
            problem = (
                "sbatch: error: Batch job submission failed: Resource temporarily unavailable\n"
            )
            return Reply(1, "", first + problem, BUSY_S)
        if self._due("refused"):
            problem = (
                "Job violates accounting/QOS policy "
                "(job submit limit, user's size and/or time limits)"
            )
            return Reply(1, "", f"sbatch: error: Batch job submission failed: {problem}\n")
        return None

    def _silence(self, call: Call) -> Reply:
        """Lose the answer: the client usually notices, sometimes hangs."""
        if self.engine.random.random() < HANGS:
            return Reply(1, delay_s=NEVER)
        return unreached(call, TIMED_OUT, SILENCE_S * call.attempts)
