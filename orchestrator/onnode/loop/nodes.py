"""The nodes of a job: how their processes are started, by srun or here without Slurm, and what Slurm shows of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..kernel.events import number
from ..kernel.system import job_state
from ..kernel.world import World
from ..policy.ending import job_fields

ANSWER_S = 4.0
"""How long Slurm is asked why a job ends: that is part of the time that is left to it."""


class Nodes:
    """The nodes of a job: what is the same with and without Slurm."""

    name: str
    job_id: str
    cluster = ""
    restart = 0
    """How often Slurm has started this job again."""
    allocated: list[str]
    world: World

    def in_step(self, nodes: Sequence[str]) -> list[str]:
        """Return `nodes` in the order in which a step on them numbers its tasks."""
        return list(nodes)

    def commands(
        self, nodes: Sequence[str], argv: Sequence[str]
    ) -> list[tuple[list[str], dict[str, str]]]:
        """Return the commands that start `argv` on `nodes`, each with more environment."""
        raise NotImplementedError

    def lost(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return the nodes that Slurm has lost, with their state. No answer: none."""
        return {}

    def names(self, words: str) -> list[str]:
        """Return the nodes that are meant by words of srun."""
        return [words]

    def master(self, ranks: Sequence[str]) -> str:
        return "127.0.0.1"

    def seconds_left(self) -> float | None:
        """Return the seconds until the time limit of the job; None without one, or without an answer."""
        return None

    def job_fields(self) -> str | None:
        """Return the fields by which Slurm explains this job's end (policy/ending.py), "" without Slurm; None without an answer."""
        return ""

    def sees(self, job_id: str) -> bool | None:
        """Return whether Slurm shows a job; None when it does not answer, and of a job that is none of Slurm's."""
        state = job_state(job_id, 120, self.world.ask) if job_id[:1].isdecimal() else "?"
        return None if state == "?" else bool(state)


class SlurmNodes(Nodes):
    """The nodes of the allocation that this process is in."""

    name = "slurm"

    def __init__(self, environment: dict[str, str], world: World) -> None:
        """Raises LookupError, with what is missing, outside of an allocation."""
        self.world = world
        if not environment.get("SLURM_JOB_ID"):
            raise LookupError(
                "this is not inside a Slurm allocation; use: sbatch job.sh (or run_with_docker.sh on one node)"
            )
        self.job_id = environment["SLURM_JOB_ID"]
        self.cluster = environment.get("SLURM_CLUSTER_NAME", "")
        self.restart = number(environment.get("SLURM_RESTART_COUNT", ""), 6) or 0
        status, names = self.world.ask(
            ["scontrol", "show", "hostnames", environment.get("SLURM_JOB_NODELIST", "")], 60
        )
        if status < 0 or status == 127:
            raise LookupError(f"scontrol show hostnames: {names or 'no answer within 60 s'}")
        self.allocated = names.split()
        # The batch script's own limits must not shape the steps: each step says what it needs.
        # And every node has its own name.
        # srun has its step use SLURM_UMASK, which is that of the submission, before its own.
        for name in (
            "SLURM_UMASK",
            "SLURM_CPU_BIND",
            "SLURM_MEM_PER_CPU",
            "SLURM_MEM_PER_NODE",
            "SLURM_EXPORT_ENV",
            "SLURM_DISTRIBUTION",
            "SLURM_HOSTFILE",
            "SLURM_LABELIO",
            "SLURM_UNBUFFEREDIO",
            "ORCH_NODE",
        ):
            environment.pop(name, None)
        if environment.get("SLURM_CPUS_PER_TASK"):
            environment["SRUN_CPUS_PER_TASK"] = environment["SLURM_CPUS_PER_TASK"]

    def in_step(self, nodes: Sequence[str]) -> list[str]:
        """Return `nodes` in the order of the allocation, which is that of the tasks at most sites (senders.py has the others)."""
        wanted = frozenset(nodes)
        return [node for node in self.allocated if node in wanted]

    def commands(
        self, nodes: Sequence[str], argv: Sequence[str]
    ) -> list[tuple[list[str], dict[str, str]]]:
        """Return the one command that starts `argv` on each of `nodes`; one that fails, or is lost, does not end the others.

        If there are several nodes, srun labels each line with the task that sent it (loop/senders.py). A token that a node
        repeats would not do: environment and input of a step are the same for all nodes, so no node could have a secret.
        """
        size = [
            f"--nodes={len(nodes)}",
            f"--ntasks={len(nodes)}",
            "--ntasks-per-node=1",
            f"--nodelist={','.join(nodes)}",
        ]
        how = [
            "--overlap",
            "--export=ALL",
            "--mpi=none",
            "--cpu-bind=none",
            "--quiet",
            "--kill-on-bad-exit=0",
            "--no-kill",
            *(["--label"] if len(nodes) > 1 else []),
        ]
        return [(["srun", *how, *size, *argv], {})]

    def lost(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return the nodes that Slurm has lost, with their state. No answer: none."""
        status, text = self.world.ask(
            ["sinfo", "--noheader", "--Node", f"--nodes={','.join(nodes)}", "--format=%N %T"], 20
        )
        rows = (line.split() for line in text.splitlines() if status >= 0)
        states = {row[0]: row[1] for row in rows if len(row) == 2 and row[0] in nodes}
        bad = ("down", "fail", "unknown", "power")
        return {
            node: state
            for node, state in states.items()
            if state.startswith(bad) or state.endswith("*")
        }

    def seconds_left(self) -> float | None:
        """Return the seconds until the time limit of the job; None without one, or without an answer."""
        status, text = self.world.ask(
            ["squeue", "--noheader", f"--jobs={self.job_id}", "--format=%L"], 20
        )
        parts = (
            re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip())
            if status == 0
            else None
        )
        if parts is None:  # UNLIMITED, INVALID
            return None
        days, hours, minutes, seconds = (int(one or 0) for one in parts.groups())
        return float(86400 * days + 3600 * hours + 60 * minutes + seconds)

    def job_fields(self) -> str | None:
        """Return the fields by which Slurm explains this job's end; None without an answer within ANSWER_S."""
        status, text = self.world.ask(
            ["scontrol", "--oneliner", "show", "job", self.job_id], ANSWER_S, errors=True
        )
        fields = job_fields(text) if status >= 0 else ""
        return fields if fields or status == 0 else None

    def names(self, words: str) -> list[str]:
        """Return the nodes that Slurm means by `n1` or `n[1-3,5]`; none when it does not say."""
        if "[" not in words:
            return [words]
        status, names = self.world.ask(["scontrol", "show", "hostnames", words], 20)
        return names.split() if status == 0 else []

    def master(self, ranks: Sequence[str]) -> str:
        """Return the address of the first rank. A single node needs no name: it may resolve nowhere."""
        return ranks[0] if len(ranks) > 1 else "127.0.0.1"


class LocalNodes(Nodes):
    """This host: one node as in the published single-node flow, or several as processes side by side."""

    name = "local"

    def __init__(self, environment: dict[str, str], count: int, world: World) -> None:
        """`count`: nodes of all runs that go on at once, and spares."""
        self.world, me = world, world.holder()
        self.job_id = environment.get("ORCH_JOB_ID") or f"local-{me.pid}-{me.start}"
        host = me.host.split(".")[0]
        self.allocated = [host] if count == 1 else [f"local{rank}" for rank in range(count)]
        # A shell inside an allocation has Slurm's variables; runs get their own.
        for name in ("SLURM_NODEID", "SLURM_NNODES", "SLURM_JOB_ID", "SLURMD_NODENAME"):
            environment.pop(name, None)

    def commands(
        self, nodes: Sequence[str], argv: Sequence[str]
    ) -> list[tuple[list[str], dict[str, str]]]:
        """Return a command for each node."""
        return [(list(argv), {"ORCH_NODE": node}) for node in nodes]


def node_command(python: str, bundle: Path, action: str) -> list[str]:
    """Return what runs on a node. Isolated, so that no module of a user's folder is taken for one of ours; no byte code."""
    return [python or "python3", "-I", "-S", "-B", str(bundle / "lib"), "node", action]
