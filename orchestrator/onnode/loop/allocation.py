"""A job's nodes with and without a scheduler (Slurm: slurm.py)."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernel.jobs import job_state
from ..kernel.world import World
from ..policy.job_state import JobEnd


class OtherCopy(Exception):
    """The batch script runs on several nodes; the copy on `node` works."""

    def __init__(self, job_id: str, node: str) -> None:
        super().__init__(
            f"job {job_id} started on several nodes; the copy on {node} works on the set, "
            "and this one has nothing to do"
        )


class JobAllocation:
    """Common to all schedulers."""

    name: str
    """slurm or local."""
    spans_hosts = False
    """Nodes are different hosts."""
    job_id: str
    cluster = ""
    restart = 0
    """How often the scheduler restarted the job."""
    allocated: list[str]
    world: World

    def in_step(self, nodes: Sequence[str]) -> list[str]:
        """Sort `nodes` like a step's tasks."""
        return list(nodes)

    def commands(
        self, nodes: Sequence[str], argv: Sequence[str]
    ) -> list[tuple[list[str], dict[str, str]]]:
        """Return commands, each with its additional environment."""
        raise NotImplementedError

    def lost(self, nodes: Sequence[str]) -> dict[str, str] | None:
        """Return node -> state, also of nodes removed from the job; None without an answer."""
        return {}

    def names(self, text: str) -> list[str]:
        return [text]

    def master(self, ranks: Sequence[str]) -> str:
        return "127.0.0.1"

    def is_here(self, node: str) -> bool:
        """False if unknown."""
        return True

    def seconds_left(self) -> float | None:
        """None without a limit or an answer."""
        return None

    def job_end(self) -> JobEnd | None:
        """None without an answer. Without a scheduler the job runs; signals come from people."""
        return JobEnd("JobState=RUNNING")

    def keep_mark(self, word: str, *, urgent: bool) -> None:
        """Keep a word with the job, if the scheduler can. Never raises."""

    def sees(self, job_id: str) -> bool | None:
        """Also locally: a batch job may hold the lease. None without an answer."""
        state = job_state(job_id, 120, self.world.ask) if job_id[:1].isdecimal() else "?"
        return None if state == "?" else bool(state)


class LocalAllocation(JobAllocation):
    """This host, as one node or several."""

    name = "local"

    def __init__(self, environment: dict[str, str], count: int, world: World) -> None:
        """`count`: with spares, for all simultaneous runs."""
        self.world, me = world, world.holder()
        self.job_id = environment.get("ORCH_JOB_ID") or f"local-{me.pid}-{me.start}"
        host = me.host.split(".")[0]
        self.allocated = [host] if count == 1 else [f"local{rank}" for rank in range(count)]

    def commands(
        self, nodes: Sequence[str], argv: Sequence[str]
    ) -> list[tuple[list[str], dict[str, str]]]:
        return [(list(argv), {"ORCH_NODE": node}) for node in nodes]
