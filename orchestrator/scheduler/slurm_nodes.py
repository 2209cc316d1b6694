"""Slurm's nodes: their states (sinfo), and a short allocation of some (salloc)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.errors import SchedulerError
from orchestrator.onnode.kernel.node_names import fold
from orchestrator.scheduler.command import Answer, ask, refused, unknown
from orchestrator.scheduler.slurm import CLUSTER_HINT, FIELD, NO_ANSWER, NO_CLUSTER, QUERY_S
from orchestrator.scheduler.slurm_times import minutes_of
from orchestrator.words import count

_PREFIX = "salloc: "
_GRANTED = re.compile(rf"^{_PREFIX}Granted job allocation (\d+)", re.MULTILINE)
_BUSY = re.compile(r"nodes? (?:are|is) busy|node not available|connection timed out", re.IGNORECASE)
"""For nodes taken, or lost, since sinfo showed them idle. A request still queued when --immediate
ends gets "Connection timed out"."""

_SHARED_OPTIONS = frozenset(
    {
        "--mem",
        "--mem-per-cpu",
        "--exclusive",
        "--gres",
        "--gpus-per-node",
        "--cpus-per-task",
        "-c",
        "--licenses",
        "-L",
        "--comment",
        "--wckey",
        "--switches",
        "--core-spec",
        "-S",
        "--hint",
        "--threads-per-core",
        "--contiguous",
        "--nice",
    }
)
"""Options with the same meaning to sbatch and salloc that matter for a short allocation."""


_DECIDES_LIMIT = re.compile(r"(--partition|-p|--qos|-q)(?![a-z-])")
"""sbatch options with which the limit of the site's partition is not decisive."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node: `state` in Slurm's words (idle, mixed, drained, down*, ...), `reason` in an
    operator's."""

    name: str
    state: str
    reason: str = ""

    @property
    def idle(self) -> bool:
        return self.state == "idle"

    @property
    def unavailable(self) -> bool:
        """True if it takes no jobs until somebody repairs or returns it."""
        return self.state.startswith(("drain", "down", "fail")) or self.state.endswith("*")

    @property
    def completing(self) -> bool:
        """True while its last job is cleaned up: it will be idle in seconds."""
        return self.state.startswith("completing")

    @property
    def reserved(self) -> bool:
        """True if idle only for its reservation; salloc knows whether that is the site's."""
        return self.state in ("reserved", "idle$", "maint")

    @property
    def description(self) -> str:
        """Return `drained: bad fan`; the marks behind a state become words."""
        marks = {
            "*": " (does not answer)",
            "~": " (powered down)",
            "#": " (powering up)",
            "%": " (powering down)",
            "$": " (reserved)",
            "@": " (to be rebooted)",
            "^": " (rebooting)",
            "!": " (to be powered down)",
            "-": " (planned)",
        }
        state = (
            f"{self.state[:-1]}{marks[self.state[-1]]}" if self.state[-1:] in marks else self.state
        )
        return f"{state}: {self.reason}" if self.reason else state


def node_states(partition: str | None, names: Sequence[str] = ()) -> dict[str, NodeState]:
    """Return the nodes of `partition` (None: the default) or those called `names`, by name.

    Raises SchedulerUnknown without an answer, SchedulerError for an unknown partition or node.
    """
    argv = ["sinfo", "--noheader", "--Node", f"--format=%N{FIELD}%T{FIELD}%P{FIELD}%E"]
    argv += [f"--partition={partition}"] if partition else ["--all"]  # sinfo refuses both
    argv += [f"--nodes={','.join(names)}"] if names else []
    answer = ask(argv, timeout_s=QUERY_S)
    if answer.returncode != 0:
        if NO_ANSWER.search(answer.stderr):
            raise unknown(answer, "sinfo does not answer")
        raise refused(
            answer,
            "sinfo",
            hint=CLUSTER_HINT
            if NO_CLUSTER.search(answer.stderr)
            else "check --nodes and the site's partition",
        )
    states = _states(answer, only_default=not partition and not names)
    if not states and not names:
        raise SchedulerError(
            f"partition {partition} has no nodes"
            if partition
            else "Slurm has no default partition",
            argv=argv,
            hint="give the site file its `partition`, or name nodes with --nodes",
        )
    return states


@dataclass(frozen=True, slots=True)
class Demand:
    """The nodes that a job asks for: those of its runs, spares, and excluded names."""

    for_runs: int
    spares: int = 0
    excluded: frozenset[str] = frozenset()

    @property
    def nodes(self) -> int:
        return self.for_runs + self.spares

    def left(self, partition: Iterable[str]) -> list[str]:
        return [name for name in partition if name not in self.excluded]

    def shortage(self, partition: Iterable[str]) -> str:
        """Return why a partition of these nodes is too small for the job, or ""."""
        names = list(partition)
        left = self.left(names)
        if len(left) >= self.nodes:
            return ""
        parts = [f"{count(self.for_runs, 'node')} for the runs"]
        parts += [count(self.spares, "spare")] if self.spares else []
        outside = [name for name in names if name in self.excluded]
        without = f" without the excluded {fold(outside)}" if outside else ""
        return (
            f"the job asks for {count(self.nodes, 'node')} ({', '.join(parts)}), and the partition "
            f"has {len(left)}{without}"
        )


def unavailable_nodes() -> list[str]:
    """Return all partitions' nodes that take no jobs. Raises SchedulerError."""
    argv = ["sinfo", "--all", "--noheader", "--Node", f"--format=%N{FIELD}%T{FIELD}%P{FIELD}%E"]
    answer = ask(argv, timeout_s=QUERY_S)
    if answer.returncode != 0:
        raise refused(answer, "sinfo")
    states = _states(answer, only_default=False)
    return [name for name, state in states.items() if state.unavailable]


def _states(answer: Answer, *, only_default: bool) -> dict[str, NodeState]:
    states: dict[str, NodeState] = {}
    for line in answer.stdout.splitlines():
        cells = line.split(FIELD)
        if len(cells) != 4:
            raise unknown(answer, "sinfo's answer cannot be read")
        name, state, partition, reason = (cell.strip() for cell in cells)
        # A node is listed for each of its partitions; the star marks the default.
        if not only_default or partition.endswith("*"):
            states[name] = NodeState(
                name, state.lower(), "" if reason in ("none", "(null)") else reason
            )
    return states


def partition_limits(partitions: str | None) -> dict[str, int | None]:
    """Return the longest job of each of `partitions` (None: the default) in minutes; None:
    unlimited.

    Raises SchedulerUnknown without a readable answer, SchedulerError if sinfo fails.
    """
    argv = ["sinfo", "--noheader", f"--format=%P{FIELD}%l"]
    argv += [f"--partition={partitions}"] if partitions else ["--all"]
    answer = ask(argv, timeout_s=QUERY_S)
    if answer.returncode != 0:
        raise refused(answer, "sinfo")
    limits: dict[str, int | None] = {}
    for line in answer.stdout.splitlines():
        name, _, limit = (cell.strip() for cell in line.partition(FIELD))
        if partitions or name.endswith("*"):
            try:
                limits[name.removesuffix("*")] = minutes_of(limit)
            except ValueError as error:
                raise unknown(answer, "sinfo's answer cannot be read") from error
    return limits


def allocation_command(
    nodes: Sequence[str],
    options: Sequence[str],
    *,
    minutes: int,
    wait_s: int,
    argv: Sequence[str],
    purpose: str = "preflight",
) -> list[str]:
    """Return an salloc of exactly these nodes, within `wait_s` or not at all, that runs `argv`
    here."""
    return [
        "salloc",
        f"--job-name=orch-{purpose}",
        f"--immediate={wait_s}",
        f"--nodes={len(nodes)}",
        f"--nodelist={','.join(nodes)}",
        "--ntasks-per-node=1",
        f"--time={minutes}",
        "--no-bell",
        "--kill-command=TERM",
        *options,
        "--",
        *argv,
    ]


@dataclass(frozen=True, slots=True)
class AllocationReply:
    """Messages of a short allocation. `problem`: its own error, or ""."""

    granted: bool
    busy: bool
    """Another job took a node meanwhile, or nothing was granted in time."""
    problem: str


def granted_job(messages: str) -> str:
    match = _GRANTED.search(messages)
    return match[1] if match else ""


def allocation_reply(stderr: str) -> AllocationReply:
    lines = [line.strip().removeprefix(_PREFIX) for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    problem = (errors or lines or [""])[-1]
    return AllocationReply(bool(_GRANTED.search(stderr)), bool(_BUSY.search(stderr)), problem)


def without_allocation_messages(lines: Sequence[str]) -> list[str]:
    """Return the lines of the command in the allocation."""
    return [line for line in lines if not line.startswith(_PREFIX)]


def limit_may_differ(options: Sequence[str]) -> bool:
    """Return whether sbatch options may allow more than the site's partition."""
    return any(_DECIDES_LIMIT.match(option) for option in options)


def shared_options(lines: Sequence[str]) -> list[str]:
    """Return the site's sbatch options with the same meaning to salloc."""
    return [line for line in lines if re.split(r"[= ]", line, maxsplit=1)[0] in _SHARED_OPTIONS]
