"""A cluster that answers Slurm's commands in Slurm's words, and fails to as real ones do.

Held against a real one by tests/lab/test_simulated_slurm.py. Its hosts keep UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.simulation.engine import Engine
from orchestrator.simulation.slurm_commands import PROGRAMS, Call, Read, Refused, Reply, Unsupported, host_names
from orchestrator.simulation.slurm_controller import Controller, Runner, SimJob

__all__ = ["Cluster", "Reply", "Runner", "SimJob", "Unsupported"]


def read_here(host: str, path: Path) -> str:
    """Read a script from the real storage, whatever the host."""
    return path.read_text()


class Cluster(Controller):
    """A cluster as the hosts see it that have its commands. See Controller for what can happen to its nodes and jobs."""

    def __init__(
        self,
        engine: Engine,
        nodes: Sequence[str],
        runner: Runner,
        name: str = "sim",
        *,
        read: Read = read_here,
        partition: str = "batch",
        max_time_s: float | None = None,
        default_time_s: float | None = None,
        kill_wait_s: float = 30.0,
        min_job_age_s: float = 300.0,
        slurmd_timeout_s: float = 300.0,
        first_job_id: int = 1,
    ) -> None:
        super().__init__(
            engine,
            nodes,
            runner,
            name,
            partition=partition,
            max_time_s=max_time_s,
            default_time_s=default_time_s,
            kill_wait_s=kill_wait_s,
            min_job_age_s=min_job_age_s,
            slurmd_timeout_s=slurmd_timeout_s,
            first_job_id=first_job_id,
        )
        self._read = read

    def command(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, *, host: str, uid: int = 1000) -> Reply:
        """Do at once what a command asks for; the caller waits for the reply as long as this says."""
        call = Call(tuple(argv), env, cwd, host, uid, self._read)
        program = PROGRAMS.get(call.program)
        if program is None:
            return Reply(127, "", f"{call.program}: command not found\n")
        try:
            if tuple(argv[1:3]) == ("show", "hostnames"):
                return host_names(call)
            reply = program(self, call)
        except Refused as refused:
            reply = refused.reply
        return reply
