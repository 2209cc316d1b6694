"""What became of an attempt, and whose fault it was. Rules: docs/set-folder.md, docs/preflight.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from .hang import stands_out
from .trouble import in_one, way_of

NOT_ENDED = -1
ENDED_BY_US = 143
CONTAINER_ENDED = 125
QUICK_MS = 60_000

Blamed = tuple[tuple[str, str, str], ...]
"""(node, kind, reason)"""


@dataclass(frozen=True)
class AttemptFacts:
    """What is known of an attempt when it is over. `ranks`: its nodes; `exits`: node -> exit code, absent where none was told."""

    run: int
    ranks: tuple[str, ...]
    exits: Mapping[str, int] = field(default_factory=dict)
    stops: Mapping[str, str] = field(default_factory=dict)
    """node -> status of the last run_stop in its log, "" for none."""
    gate: Mapping[str, str] = field(default_factory=dict)
    """node -> why it was not ready for the run."""
    gate_problem: str = ""
    timed_out: int = 0
    """The limit in seconds, when it was that which ended the run."""
    ending: str = ""
    """Why the set is ending; "" when it is not."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """node -> the last telling line of its log, where there is one."""
    lasted: Mapping[str, int] = field(default_factory=dict)
    """node -> milliseconds from its start to its end."""
    cause: str = ""
    """Why it died, in a sentence, if it was not the program."""
    remark: str = ""
    """What else is wrong with a run that ended well, such as sockets instead of RDMA."""
    ended: str = ""
    """Why the loop ended it before its time: it hung, or it did not use RDMA."""
    quiet: Mapping[str, int] = field(default_factory=dict)
    """node -> milliseconds since its last output when it was last asked."""
    doing: Mapping[str, str] = field(default_factory=dict)
    """node -> what its processes did when it hung."""
    sockets: Sequence[str] = ()
    """The nodes that did not use RDMA, where that ended it."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """node -> how it broke the protocol, for which the loop gave it up."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """node -> its own reason why it cannot go on, such as storage that it could not write to."""


@dataclass(frozen=True)
class Outcome:
    """`outcome`: success, not_converged, infrastructure or interrupted. `rank`: whose log is the result, None for no result."""

    outcome: str
    reason: str
    codes: Mapping[str, int]
    rank: int | None = None
    clean: bool = False
    """Nothing went wrong: the containers can be used again."""
    blamed: Blamed = ()
    silent: tuple[str, ...] = ()
    way: str = ""
    """How it died, where that was soon after its start: equal for attempts that died alike."""

    @property
    def state(self) -> str:
        return "success" if self.outcome == "success" else "failed"


def result_rank(attempt: AttemptFacts) -> int | None:
    """Return the rank whose log has the run's end: ranks of the program need not be ours (c10d sorts host names)."""
    found = [rank for rank, node in enumerate(attempt.ranks) if attempt.stops.get(node)]
    good = [rank for rank in found if attempt.stops[attempt.ranks[rank]] == "success"]
    return next(iter(good or found), None)


def decide(attempt: AttemptFacts) -> Outcome:
    """Return what became of an attempt. Only run_stop with success proves a good run; what went wrong after it is told."""
    if attempt.gate_problem:
        if attempt.ending:
            return Outcome("interrupted", attempt.ending, {})
        gate = tuple((node, "gate", reason) for node, reason in attempt.gate.items())
        return Outcome("infrastructure", attempt.gate_problem, {}, blamed=gate)
    codes = {node: attempt.exits.get(node, NOT_ENDED) for node in attempt.ranks}
    bad, rank = (
        bad_nodes(attempt.ranks, codes, attempt.broken, attempt.failed),
        result_rank(attempt),
    )
    status = "" if rank is None else attempt.stops[attempt.ranks[rank]]
    if status == "success":
        return Outcome(
            "success",
            _joined(bad and f"after run_stop: {bad}", attempt.ended, attempt.remark),
            codes,
            rank,
            not bad,
        )
    if attempt.ending:
        return Outcome("interrupted", attempt.ending, codes)
    if status:
        return Outcome(
            "not_converged",
            _joined(f"run_stop says {status}", bad, attempt.ended, attempt.remark),
            codes,
            rank,
            not bad,
        )
    return _died(attempt, codes, bad)


def _died(attempt: AttemptFacts, codes: Mapping[str, int], bad: str) -> Outcome:
    """Return what became of an attempt that has no result."""
    told = in_one(attempt.ranks, attempt.errors)
    if attempt.timed_out:
        reason = _joined(
            attempt.cause, f"no run_stop within {attempt.timed_out} s (run time-out)", bad, told
        )
        return Outcome("infrastructure", reason, codes)
    if attempt.ended:
        return _ended(attempt, codes)
    blamed, silent = blame(
        attempt.run, attempt.ranks, codes, attempt.errors, attempt.lasted, attempt.failed
    )
    if attempt.broken:  # whatever the others ended with is a consequence
        blamed = tuple(
            (node, "protocol", f"in run {attempt.run} {why}")
            for node, why in attempt.broken.items()
        )
    if len(codes) > 1 and told.startswith("all "):  # the codes tell no more
        bad = ""
    reason = _joined(attempt.cause, "no run_stop", bad, told)
    return Outcome(
        "infrastructure", reason, codes, blamed=blamed, silent=silent, way=_way(attempt, codes)
    )


def _ended(attempt: AttemptFacts, codes: Mapping[str, int]) -> Outcome:
    """Return what became of an attempt that the loop ended: the exit codes only tell that."""
    if attempt.sockets:
        few = len(attempt.sockets) <= len(attempt.ranks) // 2
        blamed = [
            (node, "network", f"run {attempt.run} did not use RDMA there")
            for node in attempt.sockets
            if few
        ]
        return Outcome("infrastructure", attempt.ended, codes, blamed=tuple(blamed))
    node, words = stands_out(attempt.ranks, attempt.quiet, attempt.doing)
    told = in_one(attempt.ranks, attempt.errors)
    if not node:
        return Outcome(
            "infrastructure",
            _joined(attempt.ended, in_one(attempt.ranks, attempt.doing), told),
            codes,
        )
    reason = _joined(
        attempt.ended, f"node {node} (rank {attempt.ranks.index(node)}) stands out: {words}", told
    )
    return Outcome(
        "infrastructure",
        reason,
        codes,
        blamed=((node, "hung", f"run {attempt.run} hung there: {words}"),),
    )


def _way(attempt: AttemptFacts, codes: Mapping[str, int]) -> str:
    """Return how the first node that ended by itself died, where that was soon after its start."""
    own = [node for node in attempt.ranks if codes[node] not in (ENDED_BY_US, NOT_ENDED)]
    first = min(own, key=lambda node: attempt.lasted.get(node, QUICK_MS), default="")
    if attempt.lasted.get(first, QUICK_MS) >= QUICK_MS:
        return ""
    return way_of(attempt.errors.get(first, "")) or f"exit {codes[first]}"


def _joined(*words: str) -> str:
    return "; ".join(filter(None, words))


def bad_nodes(
    ranks: Sequence[str],
    codes: Mapping[str, int],
    broken: Mapping[str, str] = MappingProxyType({}),
    failed: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return words about the nodes that did not end with 0, were given up because they are `broken`, or say why they `failed`."""
    words = []
    for rank, node in enumerate(ranks):
        if node in broken:
            words.append(f"node {node} (rank {rank}) was given up: {broken[node]}")
        elif node in failed:
            words.append(f"node {node} (rank {rank}) failed: {failed[node]}")
        elif codes[node] == NOT_ENDED:
            words.append(f"node {node} (rank {rank}) had not ended")
        elif codes[node]:
            words.append(f"node {node} (rank {rank}) exited {codes[node]}")
    return ", ".join(words)


def blame(
    run: int,
    ranks: Sequence[str],
    codes: Mapping[str, int],
    errors: Mapping[str, str] = MappingProxyType({}),
    lasted: Mapping[str, int] = MappingProxyType({}),
    failed: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Blamed, tuple[str, ...]]:
    """Return who is to blame, and the silent ones.

    In this order: a container ended under its run; a node went silent; a few exited by themselves while the others were ended
    by us; the first that ended with 0 and no run_stop (images hide the code). When most of them failed by themselves, or said
    the same in the end, it is the program, and nobody is blamed. Nor is anybody if a node gives its own reason: its storage may
    be away for all, and it is looked at again before the next attempt.
    """
    few = max(1, len(ranks) // 2)
    broken = [node for node in ranks if codes[node] == CONTAINER_ENDED]
    silent = [node for node in ranks if codes[node] == NOT_ENDED]
    own = [node for node in ranks if codes[node] not in (0, ENDED_BY_US, NOT_ENDED)]
    if 0 < len(broken) <= few:
        return tuple(
            (node, "container", f"its container ended in run {run}") for node in broken
        ), ()
    if 0 < len(silent) <= few and len(silent) < len(ranks):
        return tuple((node, "silent", f"it went silent in run {run}") for node in silent), tuple(
            silent
        )
    alike = max(Counter(filter(None, errors.values())).values(), default=0) > few
    if alike or failed or len(ranks) == 1:
        return (), ()
    if own:
        blamed = own if len(own) <= few and len(own) < len(ranks) else []
        words = "died there (its exit code was not 0)"
    else:
        blamed = _first_to_end(
            [node for node in ranks if codes[node] == 0], few, len(ranks), errors, lasted
        )
        words = "ended there first, without run_stop"
    said = {node: f": {errors[node]}" for node in blamed if errors.get(node)}
    return tuple((node, "exit", f"run {run} {words}{said.get(node, '')}") for node in blamed), ()


def _first_to_end(
    ended: Sequence[str], few: int, nodes: int, errors: Mapping[str, str], lasted: Mapping[str, int]
) -> list[str]:
    """Return the node that ended first, of those whose log has an error where some have; [] where that tells nothing."""
    told = [node for node in ended if errors.get(node)]
    if (
        len(ended) == nodes and len(told) > few
    ):  # all ended by themselves, and most have something to say
        return []
    found = told or (ended if len(ended) < nodes else [])
    return sorted(found, key=lambda node: lasted.get(node, QUICK_MS * 10**6))[:1]
