"""Ranks, waiting nodes, excluded nodes. Rules: docs/preflight.md, "Spare nodes".

`apply` folds `GroupState` from a job's events. Decisions depend on it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from ..kernel.events import Event
from ..kernel.node_names import by_text, fold, ranked, subject
from ..kernel.plural import count
from .job_state import ENDED_BY_SCHEDULER
from .reports import NodeReport


@dataclass
class StepOrders:
    """The loop's orders to the nodes of a step."""

    generation: int = 0
    """The number of the step, from 1."""
    pulling: set[str] = field(default_factory=set)
    """Nodes ordered to pull."""
    releasing: bool = False
    """Ordered to end."""


@dataclass
class AttemptEnds:
    """Ends of a group's attempts."""

    ways: list[str] = field(default_factory=list)
    """Outcome.way of each; "" for late deaths and for successes, which end a repetition."""
    refused: bool = False
    """The program refused its settings in the last attempt."""

    def take(self, outcome: object) -> None:
        """Add an outcome, as recorded."""
        members = outcome if isinstance(outcome, dict) else {}
        way = members.get("way")
        self.ways.append(way if isinstance(way, str) else "")
        self.refused = members.get("refused") is True


@dataclass
class GroupState:
    """The nodes of a group. `in_order` sorts the ranks when all are ready."""

    allocated: tuple[str, ...] = ()
    need: int = 0
    ranks: list[str] = field(default_factory=list)
    """Node per rank, "" if vacant."""
    waiting: list[str] = field(default_factory=list)
    reports: dict[str, NodeReport] = field(default_factory=dict)
    failed: dict[str, tuple[str, str]] = field(default_factory=dict)
    """This step: node -> (kind, reason)."""
    excluded: dict[str, str] = field(default_factory=dict)
    """For the rest of the job: node -> reason."""
    lost: dict[str, str] = field(default_factory=dict)
    """While lost to Slurm: node -> state."""
    blamed: dict[str, int] = field(default_factory=dict)
    """Node -> order of blame: an attempt died there, or its bandwidth was low. Used last."""
    freed: set[str] = field(default_factory=set)
    """Nodes whose blame cost no attempt."""
    silent: set[str] = field(default_factory=set)
    """This step: not answering, not awaited."""
    slow: set[str] = field(default_factory=set)
    orders: StepOrders = field(default_factory=StepOrders)
    ends: AttemptEnds = field(default_factory=AttemptEnds)

    @property
    def workers(self) -> list[str]:
        return [node for node in self.ranks if node]

    @property
    def by_rank(self) -> list[str]:
        """Allocated nodes, those with a rank first."""
        return list(dict.fromkeys([*self.workers, *self.allocated]))


@dataclass(frozen=True)
class Placement:
    """Nodes in rank order, and waiting nodes."""

    ranks: tuple[str, ...]
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pause:
    """Too few fit nodes; `reason` names the excluded nodes."""

    reason: str


# ---- events ----


def apply(group: GroupState, event: Event) -> None:
    """Unknown and incomplete events change nothing."""
    if event.source != "node":
        _apply_own(group, event)
    elif event.node in group.reports:
        group.reports[event.node].apply(event.word, event.detail)
        failure = _failure(group, event)
        if failure is not None:
            group.failed.setdefault(event.node, failure)


def _failure(group: GroupState, event: Event) -> tuple[str, str] | None:
    if event.word == "failed":
        return event.part(0), event.part(1) or event.part(0)
    if event.word == "gone":
        return "container", event.detail
    if event.word != "left" or group.orders.releasing or event.node in group.excluded:
        return None
    if event.detail:  # the loop's absence ends the set, or passes
        return "loop", event.detail
    return "container", "its agent ended before it was ready"


def _apply_own(group: GroupState, event: Event) -> None:
    word, node = event.word, event.node
    if word == "begin":
        # A job restarted by Slurm has two lives in its event file.
        vars(group).update(vars(GroupState()))
        need = event.data().get("need")
        group.allocated = tuple(event.names("allocated"))
        group.need = need if isinstance(need, int) else 0
        group.ranks = [""] * group.need
    elif word == "hold":
        _start_step(group, event.names("nodes"))
    elif word == "placed":
        group.ranks, group.waiting = event.names("ranks"), event.names("waiting")
    elif word == "joined":
        group.allocated += (node,)
    elif word == "ordered":
        group.ranks = event.names("ranks")
    elif word == "outcome":
        group.ends.take(event.data().get("outcome"))
    elif word == "release":
        group.orders.releasing = True
    elif word == "fail":
        group.failed.setdefault(node, (event.part(0), event.part(1)))
    elif word == "aside":
        group.excluded[node] = event.part(1)
        group.failed.pop(node, None)
    elif word == "blamed":
        group.blamed[node] = 1 + max(group.blamed.values(), default=0)
    elif word == "lost":
        group.lost[node] = event.detail
    elif word == "back":
        group.lost.pop(node, None)
    elif word == "free":
        group.freed.add(node)
    elif word == "silent":
        group.silent.add(node)
    elif word == "slow":
        group.slow.add(node)
    elif word == "pull":
        group.orders.pulling.add(node)
    elif word in ("clock", "unseen", "deep") and node in group.reports:
        group.reports[node].apply(word, event.detail)


def _start_step(group: GroupState, nodes: Sequence[str]) -> None:
    """Drop earlier reports."""
    group.orders = StepOrders(group.orders.generation + 1)
    group.failed = {}
    group.silent = set()
    for node in nodes:
        group.reports.setdefault(node, NodeReport()).reset()


# ---- choosing nodes ----


def groups(allocated: Sequence[str], need: int, most: int) -> tuple[list[list[str]], list[str]]:
    """Return at most `most` groups of `need` nodes, and other nodes. A single group gets all."""
    count = min(most, len(allocated) // need)
    if count < 2:
        return [list(allocated)], []
    parts = [list(allocated[index * need : (index + 1) * need]) for index in range(count)]
    return parts, list(allocated[count * need :])


def unblemished(group: GroupState) -> list[str]:
    unfit = group.excluded.keys() | group.lost.keys() | group.blamed.keys()
    return [node for node in group.allocated if node not in unfit]


def unusable(group: GroupState) -> tuple[object, ...]:
    """Return a value that changes with each excluded, blamed or lost node."""
    return len(group.excluded), dict(group.blamed), set(group.lost)


def resembles_job_end(group: GroupState) -> bool:
    """Return whether a node failed as if the scheduler, which does not answer, ended its job."""
    kinds = {kind for node, (kind, _) in group.failed.items() if node not in group.excluded}
    return not kinds.isdisjoint(ENDED_BY_SCHEDULER)


def lost_reason(state: str) -> str:
    return f"Slurm has lost it ({state})"


def candidates(group: GroupState) -> list[str] | Pause:
    """Return usable nodes, those with a rank first, blamed nodes only if needed."""
    excluded = group.excluded.keys() | group.lost.keys()
    usable = [node for node in group.by_rank if node not in excluded]
    nodes = [node for node in usable if node not in group.blamed]
    if len(nodes) < group.need:
        nodes += [node for node in usable if node in group.blamed]
    if len(nodes) >= group.need:
        return nodes
    allocated = count(len(group.allocated), "node")
    shortage = f"{len(nodes)} of {allocated} fit, {group.need} needed"
    reasons = by_text(
        (node, _why_excluded(group, node)) for node in group.allocated if node in excluded
    )
    texts = [f"{subject(nodes, len(group.allocated), {})}: {why}" for why, nodes in reasons.items()]
    return Pause("; ".join([shortage, *texts]))


def _why_excluded(group: GroupState, node: str) -> str:
    if node in group.lost:
        return lost_reason(group.lost[node])
    return group.excluded[node]


def choose(group: GroupState, nodes: Sequence[str], *, first: bool = False) -> Placement | None:
    """Assign the ranks to the fit ones of `nodes`; None if too few.

    Nodes that are not blamed keep their ranks, unless `first`. The other ranks go to new nodes,
    then slow ones, then blamed ones, the oldest blame first.
    """
    need = group.need
    old = [""] * need if first else (group.ranks + [""] * need)[:need]
    unfit = group.failed.keys() | group.excluded.keys()
    fit = [node for node in nodes if node not in unfit]
    blamed = [node for node in fit if node in group.blamed]
    kept = set(old) & (set(fit) - group.blamed.keys())
    ranks = [node if node in kept else "" for node in old]
    unranked = [node for node in fit if node not in group.blamed and node not in kept]
    queue = [node for node in unranked if node not in group.slow]
    queue += [node for node in unranked if node in group.slow]
    queue += sorted(blamed, key=lambda node: group.blamed[node])
    vacant = [rank for rank, node in enumerate(ranks) if not node]
    if len(queue) < len(vacant):
        return None
    taken, waiting = queue[: len(vacant)], queue[len(vacant) :]
    for rank in vacant:  # a reused node gets its old rank
        if old[rank] in taken:
            ranks[rank] = old[rank]
    others = iter([node for node in taken if node not in ranks])
    return Placement(tuple(node or next(others) for node in ranks), tuple(waiting))


def in_order(group: GroupState) -> list[str]:
    """Sort nodes in use like torchrun's c10d rendezvous, by full host name as text (n10 before n9):
    the training's rank 0 is MASTER_ADDR."""

    def name(node: str) -> str:
        return (group.reports[node].host if node in group.reports else "") or node

    return sorted(group.workers, key=name)


def waiting_now(group: GroupState) -> list[str]:
    return [node for node in group.waiting if node not in group.blamed]


def costs_no_attempt(group: GroupState, node: str) -> bool:
    """Return whether the attempt that `node` ended does not count (event `free`): an unused spare
    can replace it, and fewer nodes than spares were freed."""
    unfit = group.excluded.keys() | group.lost.keys() | group.blamed.keys() | {node}
    unfit |= set(group.ranks)
    has_fresh = any(other not in unfit for other in group.allocated)
    spares = len(group.allocated) - group.need
    return has_fresh and node not in group.freed and len(group.freed) < spares


def repeats_itself(group: GroupState, attempts: int) -> bool:
    """Return whether all attempts of this group died alike soon after their start: `attempts` of
    them, at least two. Asked when a run has no attempt left."""
    ways = group.ends.ways
    return len(ways) >= max(attempts, 2) and len(set(ways)) == 1 and ways[0] != ""


def refuses_settings(group: GroupState) -> bool:
    """Return whether the program has always refused its settings in this job."""
    return group.ends.refused and len(set(group.ends.ways)) == 1


# ---- image pulls ----


def lacking(group: GroupState) -> list[str]:
    """Return nodes without the image, those with a rank first."""
    lack = {node for node, report in group.reports.items() if report.lacks_image}
    if not lack:
        return []
    lack -= group.failed.keys() | group.silent
    return [node for node in group.by_rank if node in lack]


def next_to_pull(group: GroupState, at_once: int) -> list[str]:
    lack = lacking(group)
    pulling = group.orders.pulling
    slots = at_once - sum(node in pulling for node in lack)
    return [node for node in lack if node not in pulling][: max(slots, 0)]


# ---- texts ----


def describe_failures(group: GroupState, nodes: Sequence[str]) -> str:
    """Return the failures' reasons with their nodes, in order."""
    return _describe(group, nodes, {node: reason for node, (_, reason) in group.failed.items()})


def describe_lost(group: GroupState, nodes: Sequence[str]) -> str:
    """Return how Slurm has lost which of `nodes`, or ""."""
    return _describe(group, nodes, {node: lost_reason(how) for node, how in group.lost.items()})


def _describe(group: GroupState, nodes: Sequence[str], reasons: Mapping[str, str]) -> str:
    alike = by_text((node, reasons[node]) for node in nodes if node in reasons)
    ranks = ranked(group.ranks)
    return "; ".join(
        f"{subject(some, len(nodes), ranks)}: {reason}" for reason, some in alike.items()
    )


def revert_problems(group: GroupState) -> list[str]:
    """Warn, per reason, about changed host settings, with the reverting command."""
    nodes = by_text(
        (node, report.revert_problem)
        for node, report in group.reports.items()
        if report.revert_problem
    )
    return [
        f"{subject(names, len(group.allocated), {})}: host settings were not reverted: {reason}; "
        f"to revert them: orchestrator tune revert --nodes {quote(fold(names))} --sudo"
        for reason, names in nodes.items()
    ]


def as_json(placement: Placement) -> dict[str, Any]:
    return {"ranks": list(placement.ranks), "waiting": list(placement.waiting)}
