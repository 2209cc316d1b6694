"""The nodes of a job, with and without a scheduler. For Slurm's see slurm.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..kernel.system import job_state
from ..kernel.world import World
from ..policy.job_state import JobEnd


class Nodes:
    """The nodes of a job: the parts common to all schedulers."""

    name: str
    """Of the scheduler: slurm or local."""
    spans_hosts = False
    """The nodes are different hosts."""
    job_id: str
    cluster = ""
    restart = 0
    """How often the scheduler has restarted this job."""
    allocated: list[str]
    world: World

    def in_step(self, nodes: Sequence[str]) -> list[str]:
        """Return `nodes` in the order of the tasks of a step on them."""
        return list(nodes)

    def commands(
        self, nodes: Sequence[str], argv: Sequence[str]
    ) -> list[tuple[list[str], dict[str, str]]]:
        """Return the commands that start `argv` on `nodes`, each with additional environment."""
        raise NotImplementedError

    def lost(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return the nodes that the scheduler has lost, with their state; {} without an answer."""
        return {}

    def names(self, text: str) -> list[str]:
        """Return the nodes in `n[1-3]`."""
        return [text]

    def master(self, ranks: Sequence[str]) -> str:
        """Return the address of the first rank."""
        return "127.0.0.1"

    def seconds_left(self) -> float | None:
        """Return the seconds until the job's time limit; None without a limit or an answer."""
        return None

    def job_end(self) -> JobEnd | None:
        """Return the scheduler's account of this job's end; None without an answer."""
        return JobEnd()

    def sees(self, job_id: str) -> bool | None:
        """Return whether the scheduler shows a job.

        None without an answer, and for a job of no scheduler.
        """
        state = job_state(job_id, 120, self.world.ask) if job_id[:1].isdecimal() else "?"
        return None if state == "?" else bool(state)


class LocalNodes(Nodes):
    """This host: one node, or several as processes side by side."""

    name = "local"

    def __init__(self, environment: dict[str, str], count: int, world: World) -> None:
        """`count`: nodes of all simultaneous runs, and spares."""
        self.world, me = world, world.holder()
        self.job_id = environment.get("ORCH_JOB_ID") or f"local-{me.pid}-{me.start}"
        host = me.host.split(".")[0]
        self.allocated = [host] if count == 1 else [f"local{rank}" for rank in range(count)]

    def commands(
        self, nodes: Sequence[str], argv: Sequence[str]
    ) -> list[tuple[list[str], dict[str, str]]]:
        """Return a command for each node."""
        return [(list(argv), {"ORCH_NODE": node}) for node in nodes]


def node_command(python: str, bundle: Path, action: str) -> list[str]:
    """Return the command of the program on a node.

    It is isolated, so that no module in a user's folder replaces one of the bundle, and writes no
    byte code.
    """
    return [python or "python3", "-I", "-S", "-B", str(bundle / "lib"), "node", action]
