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
    """What is known of the nodes of an allocation. When all are ready, ranks are put `in_order`."""

    allocated: tuple[str, ...] = ()
    need: int = 0
    ranks: list[str] = field(default_factory=list)
    """Node of each rank; "" where none has it yet."""
    waiting: list[str] = field(default_factory=list)
    reports: dict[str, NodeReport] = field(default_factory=dict)
    failed: dict[str, tuple[str, str]] = field(default_factory=dict)
    """In the present hold: node -> (kind, reason)."""
    excluded: dict[str, str] = field(default_factory=dict)
    """Failed a check, or could not be made ready: out for this job."""
    lost: dict[str, str] = field(default_factory=dict)
    """Slurm has lost it: out as long as Slurm says so."""
    blamed: dict[str, int] = field(default_factory=dict)
    """A run died there: out as long as another node can take its rank. The value is the order of the last blame."""
    freed: set[str] = field(default_factory=set)
    """Nodes that have cost a run an attempt which was not counted."""
    silent: set[str] = field(default_factory=set)
    """Of the present hold: they do not answer any more, and are not waited for."""
    slow: set[str] = field(default_factory=set)
    ways: list[str] = field(default_factory=list)
    """How the attempts of this job died, "" for all that did not die soon; see Outcome."""
    pulling: set[str] = field(default_factory=set)
    """Of the present hold: they were told to pull the image."""
    generation: int = 0
    releasing: bool = False
    """The nodes were told to let go."""

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
    """The nodes in rank order, and those that wait."""

    ranks: tuple[str, ...]
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pause:
    """Too few nodes are fit; `reason` names every one that is out and why."""

    reason: str


def apply(cluster: ClusterState, event: Event) -> None:
    """Fold one event into `cluster`. Words that are not known, or not whole, change nothing."""
    if event.source != "node":
        _fold(cluster, event)
    elif event.node in cluster.reports:
        cluster.reports[event.node].apply(event.word, event.detail)
        if event.word == "failed":
            cluster.failed.setdefault(event.node, (event.part(0), event.part(1) or event.part(0)))
        elif event.word == "gone":
            cluster.failed.setdefault(event.node, ("container", event.detail))
        elif event.word == "left" and not cluster.releasing and event.node not in cluster.excluded:
            # A node that missed the loop did as it should: whatever kept the loop away ends the set, or passes.
            kind = "loop" if event.detail else "container"
            cluster.failed.setdefault(
                event.node, (kind, event.detail or "it let go before it was ready")
            )


def _fold(cluster: ClusterState, event: Event) -> None:
    """Fold what the loop decided or saw, or what Slurm says."""
    word, node = event.word, event.node
    if word == "begin":
        vars(cluster).update(
            vars(ClusterState())
        )  # Slurm may have started the job again: its event file has two lives then
        cluster.allocated, need = tuple(event.names("allocated")), event.data().get("need")
        cluster.need = need if isinstance(need, int) else 0
        cluster.ranks = [""] * cluster.need
    elif word == "hold":  # a new step on the nodes: what was said in the last one is forgotten
        cluster.generation += 1
        cluster.failed, cluster.silent, cluster.pulling, cluster.releasing = (
            {},
            set(),
            set(),
            False,
        )
        for one in event.names("nodes"):
            cluster.reports.setdefault(one, NodeReport()).reset()
    elif word == "placed":
        cluster.ranks, cluster.waiting = event.names("ranks"), event.names("waiting")
    elif word == "joined":
        cluster.allocated += (node,)
    elif word == "ordered":
        cluster.ranks = event.names("ranks")
    elif word == "outcome":
        about = event.data().get("outcome")
        way = about.get("way") if isinstance(about, dict) else ""
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
    elif word in ("free", "silent", "slow", "pull"):
        sets = {
            "free": cluster.freed,
            "silent": cluster.silent,
            "slow": cluster.slow,
            "pull": cluster.pulling,
        }
        sets[word].add(node)
    elif word in ("clock", "unseen", "deep") and node in cluster.reports:
        cluster.reports[node].apply(word, event.detail)


def groups(allocated: Sequence[str], need: int, most: int) -> tuple[list[list[str]], list[str]]:
    """Return the nodes of each group that works on runs side by side with the others, and those that are left for all of them.

    There are at most `most` groups of `need` nodes. A single one has all nodes, and chooses among them.
    """
    count = min(most, len(allocated) // need)
    if count < 2:
        return [list(allocated)], []
    return [list(allocated[at * need : (at + 1) * need]) for at in range(count)], list(
        allocated[count * need :]
    )


def healthy(cluster: ClusterState) -> list[str]:
    """Return the nodes that are neither out nor blamed. With fewer than it needs, a group takes one of those left for all."""
    out = cluster.excluded.keys() | cluster.lost.keys() | cluster.blamed.keys()
    return [node for node in cluster.allocated if node not in out]


def lost_reason(state: str) -> str:
    return f"Slurm has lost it ({state})"


def candidates(cluster: ClusterState) -> list[str] | Pause:
    """Return the nodes that may work, those with a rank first; or Pause. Before a set has to stop, blamed nodes are asked again."""
    nodes = cluster.by_rank
    out = cluster.excluded.keys() | cluster.lost.keys()
    found = [node for node in nodes if node not in out and node not in cluster.blamed]
    if len(found) < cluster.need:
        found += [node for node in nodes if node not in out and node in cluster.blamed]
    if len(found) >= cluster.need:
        return found
    reasons = [
        f"node {node}: {lost_reason(cluster.lost[node]) if node in cluster.lost else cluster.excluded[node]}"
        for node in cluster.allocated
        if node in out
    ]
    words = f"{len(found)} of {len(cluster.allocated)} nodes are fit, {cluster.need} are needed"
    return Pause("; ".join([words, *reasons]))


def choose(cluster: ClusterState, nodes: Sequence[str], *, first: bool = False) -> Placement | None:
    """Give every rank one of `nodes` that has not failed; None when there are too few.

    Who has a rank keeps it, but for blamed nodes when others can do. The queue for free ranks: nodes of good repute, then those
    that are slow, then the blamed ones, the oldest blame first. `first`: nobody has a rank yet that a better node could not take.
    """
    old = [""] * cluster.need if first else (cluster.ranks + [""] * cluster.need)[: cluster.need]
    fit = [node for node in nodes if node not in cluster.failed and node not in cluster.excluded]
    kept = set(old) & (set(fit) - cluster.blamed.keys())
    ranks = [node if node in kept else "" for node in old]
    free = [node for node in fit if node not in cluster.blamed and node not in kept]
    queue = [node for node in free if node not in cluster.slow] + [
        node for node in free if node in cluster.slow
    ]
    queue += sorted(
        (node for node in fit if node in cluster.blamed), key=lambda node: cluster.blamed[node]
    )
    vacant = [rank for rank, node in enumerate(ranks) if not node]
    if len(queue) < len(vacant):
        return None
    taken, waiting = queue[: len(vacant)], queue[len(vacant) :]
    for rank in vacant:  # one that is asked again gets its own rank back
        if old[rank] in taken:
            ranks[rank] = old[rank]
    others = iter([node for node in taken if node not in ranks])
    return Placement(tuple(node or next(others) for node in ranks), tuple(waiting))


def in_order(cluster: ClusterState) -> list[str]:
    """Return the nodes in use as torchrun's c10d rendezvous numbers them: by full host name, as texts (n10 before n9).

    So our rank 0, MASTER_ADDR and the rank 0 of the training are one node. Who has told no host name counts by the node's
    name; equal ones stay in their order.
    """

    def name(node: str) -> str:
        return (cluster.reports[node].host if node in cluster.reports else "") or node

    return sorted(cluster.workers, key=name)


def waiting_now(cluster: ClusterState) -> list[str]:
    """Return the nodes that wait, without those that only do so as a last resort."""
    return [node for node in cluster.waiting if node not in cluster.blamed]


def is_free(cluster: ClusterState, node: str) -> bool:
    """Whether the attempt that `node` cost is not counted: once per spare, as long as a fresh one can take its rank."""
    out = cluster.excluded.keys() | cluster.lost.keys() | cluster.blamed.keys() | {node}
    fresh = any(one not in out and one not in cluster.ranks for one in cluster.allocated)
    return (
        fresh
        and node not in cluster.freed
        and len(cluster.freed) < len(cluster.allocated) - cluster.need
    )


def is_repeated(cluster: ClusterState, attempts: int) -> bool:
    """Whether all attempts of this job died in one way soon after their start: as many as a run has, and two at least."""
    return (
        len(cluster.ways) >= max(attempts, 2)
        and len(set(cluster.ways)) == 1
        and cluster.ways[0] != ""
    )


def lacking(cluster: ClusterState) -> list[str]:
    """Return the nodes that still have to get the image, those with a rank first."""
    lack = {node for node, report in cluster.reports.items() if report.lacks_image}
    if not lack:
        return []
    out = cluster.failed.keys() | cluster.silent
    return [node for node in cluster.by_rank if node in lack and node not in out]


def next_to_pull(cluster: ClusterState, at_once: int) -> list[str]:
    """Return the nodes that may start to pull the image now; `at_once` may pull at a time."""
    lack = lacking(cluster)
    free = at_once - sum(node in cluster.pulling for node in lack)
    return [node for node in lack if node not in cluster.pulling][: max(free, 0)]


def describe_failures(cluster: ClusterState, nodes: Sequence[str]) -> str:
    """Return what is wrong with which node, in the order of `nodes`; what several nodes say alike is said once."""
    rank_of = {node: rank for rank, node in enumerate(cluster.ranks)}
    told: dict[str, list[str]] = {}
    for node in nodes:
        if node in cluster.failed:
            words = f"node {node} (rank {rank_of[node]})" if node in rank_of else f"node {node}"
            told.setdefault(cluster.failed[node][1], []).append(words)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in told.items())


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
