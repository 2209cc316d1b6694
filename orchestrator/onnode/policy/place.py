"""Which node has which rank, which nodes wait, which are excluded.

Rules: docs/preflight.md, "Spare nodes". `ClusterState` is folded from the events of a job by
`apply`. Decisions depend on it alone, so equal events give equal decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..kernel.events import Event
from .reports import NodeReport


@dataclass
class ClusterState:
    """The state of an allocation's nodes. When all are ready, ranks are put `in_order`."""

    allocated: tuple[str, ...] = ()
    need: int = 0
    ranks: list[str] = field(default_factory=list)
    """Node of each rank, "" if vacant."""
    waiting: list[str] = field(default_factory=list)
    reports: dict[str, NodeReport] = field(default_factory=dict)
    failed: dict[str, tuple[str, str]] = field(default_factory=dict)
    """In the present step: node -> (kind, reason)."""
    excluded: dict[str, str] = field(default_factory=dict)
    """Node unused for the rest of the job -> reason."""
    lost: dict[str, str] = field(default_factory=dict)
    """Node unused while Slurm reports it as lost -> its state."""
    blamed: dict[str, int] = field(default_factory=dict)
    """Node unused while others can take its rank, because a run died there -> order of blame."""
    freed: set[str] = field(default_factory=set)
    """Nodes whose blame made an attempt not count."""
    silent: set[str] = field(default_factory=set)
    """In the present step: no longer answering, and not waited for."""
    slow: set[str] = field(default_factory=set)
    ways: list[str] = field(default_factory=list)
    """How the attempts of this job died, "" for those that lived longer; see Outcome."""
    pulling: set[str] = field(default_factory=set)
    """In the present step: ordered to pull the image."""
    generation: int = 0
    releasing: bool = False
    """The nodes were ordered to end."""

    @property
    def workers(self) -> list[str]:
        """The nodes with a rank, in rank order."""
        return [node for node in self.ranks if node]

    @property
    def by_rank(self) -> list[str]:
        """All allocated nodes, those with a rank first."""
        return list(dict.fromkeys([*self.workers, *self.allocated]))


@dataclass(frozen=True)
class Placement:
    """The nodes in rank order, and the waiting nodes."""

    ranks: tuple[str, ...]
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pause:
    """Too few nodes are fit; `reason` names each excluded node and why."""

    reason: str


# ---- events ----


def apply(cluster: ClusterState, event: Event) -> None:
    """Fold one event into `cluster`. Unknown and incomplete events change nothing."""
    if event.source != "node":
        _apply_own(cluster, event)
    elif event.node in cluster.reports:
        cluster.reports[event.node].apply(event.word, event.detail)
        failure = _failure(cluster, event)
        if failure is not None:
            cluster.failed.setdefault(event.node, failure)


def _failure(cluster: ClusterState, event: Event) -> tuple[str, str] | None:
    """Return kind and reason of the failure that a node reports; None for other messages."""
    if event.word == "failed":
        return event.part(0), event.part(1) or event.part(0)
    if event.word == "gone":
        return "container", event.detail
    if event.word != "left" or cluster.releasing or event.node in cluster.excluded:
        return None
    if event.detail:  # it missed the loop: whatever keeps the loop away ends the set, or passes
        return "loop", event.detail
    return "container", "it let go before it was ready"


def _apply_own(cluster: ClusterState, event: Event) -> None:
    """Fold an event of the loop or of Slurm."""
    word, node = event.word, event.node
    if word == "begin":
        # The event file of a job that Slurm restarted has two lives.
        vars(cluster).update(vars(ClusterState()))
        need = event.data().get("need")
        cluster.allocated = tuple(event.names("allocated"))
        cluster.need = need if isinstance(need, int) else 0
        cluster.ranks = [""] * cluster.need
    elif word == "hold":
        _start_step(cluster, event.names("nodes"))
    elif word == "placed":
        cluster.ranks, cluster.waiting = event.names("ranks"), event.names("waiting")
    elif word == "joined":
        cluster.allocated += (node,)
    elif word == "ordered":
        cluster.ranks = event.names("ranks")
    elif word == "outcome":
        outcome = event.data().get("outcome")
        way = outcome.get("way") if isinstance(outcome, dict) else ""
        cluster.ways.append(way if isinstance(way, str) else "")
    elif word == "release":
        cluster.releasing = True
    elif word == "fail":
        cluster.failed.setdefault(node, (event.part(0), event.part(1)))
    elif word == "aside":
        cluster.excluded[node] = event.part(1)
        cluster.failed.pop(node, None)
    elif word == "blamed":
        cluster.blamed[node] = 1 + max(cluster.blamed.values(), default=0)
    elif word == "lost":
        cluster.lost[node] = event.detail
    elif word == "back":
        cluster.lost.pop(node, None)
    elif word == "free":
        cluster.freed.add(node)
    elif word == "silent":
        cluster.silent.add(node)
    elif word == "slow":
        cluster.slow.add(node)
    elif word == "pull":
        cluster.pulling.add(node)
    elif word in ("clock", "unseen", "deep") and node in cluster.reports:
        cluster.reports[node].apply(word, event.detail)


def _start_step(cluster: ClusterState, nodes: Sequence[str]) -> None:
    """Start a new step: reports of the previous one are forgotten."""
    cluster.generation += 1
    cluster.failed = {}
    cluster.silent = set()
    cluster.pulling = set()
    cluster.releasing = False
    for node in nodes:
        cluster.reports.setdefault(node, NodeReport()).reset()


# ---- choosing nodes ----


def groups(allocated: Sequence[str], need: int, most: int) -> tuple[list[list[str]], list[str]]:
    """Divide nodes into at most `most` groups of `need`, for runs side by side.

    Return the groups and the unassigned nodes. A single group gets all nodes.
    """
    count = min(most, len(allocated) // need)
    if count < 2:
        return [list(allocated)], []
    parts = [list(allocated[index * need : (index + 1) * need]) for index in range(count)]
    return parts, list(allocated[count * need :])


def healthy(cluster: ClusterState) -> list[str]:
    """Return the nodes neither excluded, lost nor blamed."""
    unfit = cluster.excluded.keys() | cluster.lost.keys() | cluster.blamed.keys()
    return [node for node in cluster.allocated if node not in unfit]


def lost_reason(state: str) -> str:
    return f"Slurm has lost it ({state})"


def candidates(cluster: ClusterState) -> list[str] | Pause:
    """Return the usable nodes, those with a rank first; or Pause.

    Blamed nodes are used again before a set has to stop.
    """
    excluded = cluster.excluded.keys() | cluster.lost.keys()
    usable = [node for node in cluster.by_rank if node not in excluded]
    nodes = [node for node in usable if node not in cluster.blamed]
    if len(nodes) < cluster.need:
        nodes += [node for node in usable if node in cluster.blamed]
    if len(nodes) >= cluster.need:
        return nodes
    count = f"{len(nodes)} of {len(cluster.allocated)} nodes are fit, {cluster.need} are needed"
    reasons = [
        f"node {node}: {_why_excluded(cluster, node)}"
        for node in cluster.allocated
        if node in excluded
    ]
    return Pause("; ".join([count, *reasons]))


def _why_excluded(cluster: ClusterState, node: str) -> str:
    if node in cluster.lost:
        return lost_reason(cluster.lost[node])
    return cluster.excluded[node]


def choose(cluster: ClusterState, nodes: Sequence[str], *, first: bool = False) -> Placement | None:
    """Give every rank an unfailed node of `nodes`; None if these are too few.

    Nodes keep their rank, except blamed nodes if others can take it. Vacant ranks go to healthy
    nodes, then to slow, then to blamed, the oldest blame first. `first`: no rank is kept.
    """
    need = cluster.need
    old = [""] * need if first else (cluster.ranks + [""] * need)[:need]
    unfit = cluster.failed.keys() | cluster.excluded.keys()
    fit = [node for node in nodes if node not in unfit]
    blamed = [node for node in fit if node in cluster.blamed]
    kept = set(old) & (set(fit) - cluster.blamed.keys())
    ranks = [node if node in kept else "" for node in old]
    free = [node for node in fit if node not in cluster.blamed and node not in kept]
    queue = [node for node in free if node not in cluster.slow]
    queue += [node for node in free if node in cluster.slow]
    queue += sorted(blamed, key=lambda node: cluster.blamed[node])
    vacant = [rank for rank, node in enumerate(ranks) if not node]
    if len(queue) < len(vacant):
        return None
    taken, waiting = queue[: len(vacant)], queue[len(vacant) :]
    for rank in vacant:  # a node used again gets its old rank
        if old[rank] in taken:
            ranks[rank] = old[rank]
    others = iter([node for node in taken if node not in ranks])
    return Placement(tuple(node or next(others) for node in ranks), tuple(waiting))


def in_order(cluster: ClusterState) -> list[str]:
    """Return the nodes in use as torchrun's c10d rendezvous numbers them.

    By full host name as text (n10 before n9), else by node name. So rank 0, MASTER_ADDR and rank 0
    of the training are the same node.
    """

    def name(node: str) -> str:
        return (cluster.reports[node].host if node in cluster.reports else "") or node

    return sorted(cluster.workers, key=name)


def waiting_now(cluster: ClusterState) -> list[str]:
    """Return the waiting nodes without blame."""
    return [node for node in cluster.waiting if node not in cluster.blamed]


def is_free(cluster: ClusterState, node: str) -> bool:
    """Return whether the attempt that `node` cost does not count.

    Once per spare, while a fresh node can take its rank.
    """
    unfit = cluster.excluded.keys() | cluster.lost.keys() | cluster.blamed.keys() | {node}
    unfit |= set(cluster.ranks)
    has_fresh = any(other not in unfit for other in cluster.allocated)
    spares = len(cluster.allocated) - cluster.need
    return has_fresh and node not in cluster.freed and len(cluster.freed) < spares


def is_repeated(cluster: ClusterState, attempts: int) -> bool:
    """Return whether all attempts of this job died alike soon after their start.

    They must be `attempts`, those of a run, and at least two.
    """
    ways = cluster.ways
    return len(ways) >= max(attempts, 2) and len(set(ways)) == 1 and ways[0] != ""


# ---- image pulls ----


def lacking(cluster: ClusterState) -> list[str]:
    """Return the nodes that still need the image, those with a rank first."""
    lack = {node for node, report in cluster.reports.items() if report.lacks_image}
    if not lack:
        return []
    lack -= cluster.failed.keys() | cluster.silent
    return [node for node in cluster.by_rank if node in lack]


def next_to_pull(cluster: ClusterState, at_once: int) -> list[str]:
    """Return the nodes to start a pull now, if `at_once` may pull at a time."""
    lack = lacking(cluster)
    free = at_once - sum(node in cluster.pulling for node in lack)
    return [node for node in lack if node not in cluster.pulling][: max(free, 0)]


# ---- texts ----


def describe_failures(cluster: ClusterState, nodes: Sequence[str]) -> str:
    """Return each reason of failure once, with its nodes, in the order of `nodes`."""
    rank_of = {node: rank for rank, node in enumerate(cluster.ranks)}
    names: dict[str, list[str]] = {}
    for node in nodes:
        if node in cluster.failed:
            name = f"node {node} (rank {rank_of[node]})" if node in rank_of else f"node {node}"
            names.setdefault(cluster.failed[node][1], []).append(name)
    return "; ".join(f"{', '.join(some)}: {reason}" for reason, some in names.items())


def revert_problems(cluster: ClusterState) -> list[str]:
    """Return a warning for each reason why host settings were not reverted.

    It names the nodes, and the command that reverts the settings.
    """
    nodes: dict[str, list[str]] = {}
    for node, report in cluster.reports.items():
        if report.revert_problem:
            nodes.setdefault(report.revert_problem, []).append(node)
    return [
        f"node {', '.join(names)}: host settings were not reverted: {reason}; "
        f"to revert them: orchestrator tune revert --nodes {','.join(names)} --sudo"
        for reason, names in nodes.items()
    ]


def as_json(placement: Placement) -> dict[str, Any]:
    return {"ranks": list(placement.ranks), "waiting": list(placement.waiting)}
