"""An attempt's outcome and the nodes to blame. Rules: docs/set-folder.md, docs/preflight.md."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ..kernel.node_names import by_text, ranked, subject
from .hang import stands_out
from .job_state import ENDED_BY_SCHEDULER
from .trouble import in_one, is_echo, way_of

NOT_ENDED = -1
ENDED_BY_US = 143
"""128 + SIGTERM: an order to stop; nobody is blamed for it."""
CONTAINER_ENDED = 125
"""A run's exit code after its container ended (agent/run.py)."""
REFUSED = 2
"""Exit code of programs that refuse their settings: argparse, getopt, bash."""
QUICK_MS = 60_000
"""A death within a minute would repeat; later, it may be chance."""
TOGETHER_MS = 500
"""Nodes that end this close together do so in any order."""

SIGNALS = (4, 6, 7, 8, 9, 11)
"""Signals that end a failing program, or kill it from outside."""

MOST_ENDS = 3
"""Ends of nodes, and nodes of an end, in a reason."""

Blamed = tuple[tuple[str, str, str], ...]
"""(node, kind, reason)"""


@dataclass(frozen=True)
class AttemptFacts:
    """An ended attempt. `ranks`: its nodes; `exits`: node -> exit code."""

    run: int
    ranks: tuple[str, ...]
    exits: Mapping[str, int] = field(default_factory=dict)
    stops: Mapping[str, str] = field(default_factory=dict)
    """Node -> status of its last run_stop, or ""."""
    gate: Mapping[str, str] = field(default_factory=dict)
    """Node -> why it was not ready for the run."""
    gate_problem: str = ""
    timed_out: int = 0
    """The limit in seconds, if reached."""
    ending: str = ""
    """Why the set is ending, or ""."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """Node -> the best explanation of its end in its log (trouble.py)."""
    lasted: Mapping[str, int] = field(default_factory=dict)
    """Node -> milliseconds of its run."""
    cause: str = ""
    """Why it died, if known without logs."""
    remark: str = ""
    """A good run's flaw, such as sockets instead of RDMA."""
    cut_short: str = ""
    """Why the loop ended it early: a hang, or missing RDMA."""
    quiet: Mapping[str, int] = field(default_factory=dict)
    """Node -> milliseconds between its output and its last reply."""
    doing: Mapping[str, str] = field(default_factory=dict)
    """Node -> activity before the end."""
    sockets: Sequence[str] = ()
    """Nodes without RDMA, if ended for that."""
    protocol_errors: Mapping[str, str] = field(default_factory=dict)
    """Node -> how it broke the protocol."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Node -> its reason to give up, such as its storage."""
    silent_ms: Mapping[str, int] = field(default_factory=dict)
    """Silent node -> milliseconds from the run's start to its last message."""
    started: bool = False
    """A log without a result has a run_start."""
    unanswered: bool = False
    """The scheduler did not answer about the job's end."""


@dataclass(frozen=True)
class Outcome:
    """`outcome`: success, not_converged, infrastructure or interrupted; `rank`: of the result's
    log."""

    outcome: str
    reason: str
    codes: Mapping[str, int]
    rank: int | None = None
    clean: bool = False
    """The containers can be used again."""
    blamed: Blamed = ()
    silent: tuple[str, ...] = ()
    """Also if nobody is blamed."""
    way: str = ""
    """How it died soon after its start; equal for equal deaths."""
    refused: bool = False
    """The program refused its settings, as it would again."""

    @property
    def state(self) -> str:
        return "success" if self.outcome == "success" else "failed"


def result_rank(attempt: AttemptFacts) -> int | None:
    """Return the rank whose log ends the run. The program's ranks may differ (c10d)."""
    ranks = [rank for rank, node in enumerate(attempt.ranks) if attempt.stops.get(node)]
    good = [rank for rank in ranks if attempt.stops[attempt.ranks[rank]] == "success"]
    return next(iter(good or ranks), None)


def decide(attempt: AttemptFacts) -> Outcome:
    """Only run_stop with success proves a good run; the reason has later problems."""
    if attempt.gate_problem:
        if attempt.ending:
            return Outcome("interrupted", attempt.ending, {})
        gate = tuple((node, "gate", reason) for node, reason in attempt.gate.items())
        gate = _own_faults(attempt, gate)
        return Outcome("infrastructure", attempt.gate_problem, {}, blamed=gate)
    codes = {node: attempt.exits.get(node, NOT_ENDED) for node in attempt.ranks}
    rank = result_rank(attempt)
    ends = bad_ends(attempt, codes, has_result=rank is not None)
    stopped = sum(code == ENDED_BY_US for node, code in codes.items() if node not in ends)
    bad = describe_ends(attempt.ranks, ends, stopped)
    status = "" if rank is None else attempt.stops[attempt.ranks[rank]]
    if status == "success":
        after = f"after run_stop: {bad}" if bad else ""
        reason = _joined(after, attempt.cut_short, attempt.remark)
        return Outcome("success", reason, codes, rank, clean=not bad)
    if attempt.ending:
        return Outcome("interrupted", attempt.ending, codes)
    if status:
        reason = _joined(f"run_stop says {status}", bad, attempt.cut_short, attempt.remark)
        return Outcome("not_converged", reason, codes, rank, clean=not bad)
    return _died(attempt, codes, ends, bad)


def _died(
    attempt: AttemptFacts, codes: Mapping[str, int], ends: Mapping[str, str], bad: str
) -> Outcome:
    """Decide without a result. The reason starts with the culprits."""
    sources = [node for node in attempt.ranks if not is_echo(attempt.errors.get(node, ""))]
    errors = in_one(list(dict.fromkeys((*ends, *sources, *attempt.ranks))), attempt.errors)
    odd, odd_text = _odd_node(attempt) if attempt.doing else ("", "")
    if attempt.timed_out:
        limit = f"no run_stop within {attempt.timed_out} s (run time-out)"
        reason = _joined(attempt.cause, odd_text, limit, bad, errors)
        return Outcome("infrastructure", reason, codes)
    if attempt.cut_short:
        return _cut_short(attempt, codes)
    run = attempt.run
    blamed, silent = blame(
        run, attempt.ranks, codes, attempt.errors, attempt.lasted, attempt.failed
    )
    if attempt.protocol_errors:  # other ends are consequences
        breaches = attempt.protocol_errors.items()
        blamed = tuple((node, "protocol", f"in run {run} {why}") for node, why in breaches)
    elif odd and not (blamed or attempt.failed) and len(attempt.ranks) > 1:
        blamed = _hung(run, odd, odd_text)
    blamed = _own_faults(attempt, blamed)
    if len(codes) > 1 and errors.startswith("all "):  # the codes add nothing
        bad = ""
    if not bad:
        bad = _mute(attempt) if errors else "no run_stop"
    reason = _joined(attempt.cause, odd_text, bad, errors)
    way = _way(attempt, codes)
    has_reason = blamed or attempt.failed or attempt.started
    refused = bool(way) and not has_reason and _is_refusal(attempt, codes)
    return Outcome(
        "infrastructure", reason, codes, blamed=blamed, silent=silent, way=way, refused=refused
    )


def _is_refusal(attempt: AttemptFacts, codes: Mapping[str, int]) -> bool:
    """Return whether all nodes that were not stopped refused alike."""
    nodes = [node for node, code in codes.items() if code != ENDED_BY_US]
    ways = {way_of(attempt.errors.get(node, "")) for node in nodes}
    return {codes[node] for node in nodes} == {REFUSED} and len(ways) == 1


def _mute(attempt: AttemptFacts) -> str:
    """Describe the only node without a last message, if all others lost a node, or "". Some images
    always exit 0."""
    mute = [node for node in attempt.ranks if not attempt.errors.get(node)]
    if len(mute) != 1 or not all(map(is_echo, attempt.errors.values())):
        return ""
    return f"node {mute[0]} (rank {attempt.ranks.index(mute[0])}) ended without a last word"


def _own_faults(attempt: AttemptFacts, blamed: Blamed) -> Blamed:
    """Return the blame that stands.

    A scheduler ends a job's processes first, and not all at once. Without its answer, nobody is
    blamed for an end that it causes, for an exit code only with an error in the log, for not being
    ready only by the node's report.
    """
    if not attempt.unanswered:
        return blamed
    nodes = {node for node, error in attempt.errors.items() if not is_echo(error)}
    faults = {"gate": set(attempt.failed), "exit": nodes}
    return tuple(
        (node, kind, reason)
        for node, kind, reason in blamed
        if kind not in ENDED_BY_SCHEDULER and node in faults.get(kind, (node,))
    )


def _odd_node(attempt: AttemptFacts) -> tuple[str, str]:
    """("", "") if no node stands out in the silence."""
    node, activity = stands_out(attempt.ranks, attempt.quiet, attempt.doing)
    rank = attempt.ranks.index(node) if node else 0
    verb = " stands out" if len(attempt.ranks) > 1 else ""
    return node, f"node {node} (rank {rank}){verb}: {activity}" if node else ""


def _cut_short(attempt: AttemptFacts, codes: Mapping[str, int]) -> Outcome:
    """The exit codes mean nothing: the loop ended the attempt."""
    run, ranks = attempt.run, attempt.ranks
    if attempt.sockets:
        few = len(attempt.sockets) <= len(ranks) // 2
        reason = f"run {run} did not use RDMA there"
        blamed = tuple((node, "network", reason) for node in attempt.sockets) if few else ()
        return Outcome("infrastructure", attempt.cut_short, codes, blamed=blamed)
    node, odd = _odd_node(attempt)
    # Its processes were stopped, which is no error.
    sources = {node: text for node, text in attempt.errors.items() if not is_echo(text)}
    errors = in_one(ranks, sources)
    if not node or len(ranks) == 1:
        reason = _joined(
            odd, attempt.cut_short, "" if odd else in_one(ranks, attempt.doing), errors
        )
        return Outcome("infrastructure", reason, codes)
    reason = _joined(odd, attempt.cut_short, errors)
    return Outcome("infrastructure", reason, codes, blamed=_hung(run, node, odd))


def _hung(run: int, node: str, text: str) -> Blamed:
    return ((node, "hung", f"run {run} hung there: {text.partition(': ')[2]}"),)


def _way(attempt: AttemptFacts, codes: Mapping[str, int]) -> str:
    """Return how the first nodes that ended by themselves died within QUICK_MS."""
    ended = {
        node: attempt.lasted.get(node, QUICK_MS)
        for node in attempt.ranks
        if codes[node] not in (ENDED_BY_US, NOT_ENDED)
    }
    first_ms = min(ended.values(), default=QUICK_MS)
    if first_ms >= QUICK_MS:
        return ""
    first = [node for node, end_ms in ended.items() if end_ms <= first_ms + TOGETHER_MS]
    errors = sorted(error for node in first if (error := way_of(attempt.errors.get(node, ""))))
    errors.sort(key=is_echo)
    return errors[0] if errors else f"exit {max(codes[node] for node in first)}"


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def bad_ends(
    attempt: AttemptFacts, codes: Mapping[str, int], *, has_result: bool
) -> dict[str, str]:
    """Return node -> its bad end, culprits first, in the order of their ends.

    Nodes ended by the loop count only without others.
    """
    ends: list[tuple[int, float, str, str]] = []
    for node in attempt.ranks:
        code, end_ms = codes[node], float(attempt.lasted.get(node, math.inf))
        if node in attempt.protocol_errors:
            ends.append((0, end_ms, node, f"was given up: {attempt.protocol_errors[node]}"))
        elif node in attempt.failed:
            ends.append((0, end_ms, node, f"failed: {attempt.failed[node]}"))
        elif code == NOT_ENDED:
            silent_ms = attempt.silent_ms.get(node)
            text = "did not end" if silent_ms is None else f"went silent {_moment(silent_ms)}"
            ends.append((1, end_ms if silent_ms is None else silent_ms, node, text))
        elif code not in (0, ENDED_BY_US):
            ends.append((1, end_ms, node, exited(code)))
    if ends:
        return {node: text for _, _, node, text in sorted(ends, key=lambda end: end[:2])}
    quiet = [node for node in attempt.ranks if codes[node] == 0]
    if any(codes.values()) and quiet and not has_result:
        # Images hide exit codes: the others waited for these, and were stopped.
        quiet.sort(key=lambda node: attempt.lasted.get(node, math.inf))
        return dict.fromkeys(quiet, "ended without a result")
    if attempt.timed_out and not has_result:
        return {}
    return {node: exited(code) for node, code in codes.items() if code}


def exited(code: int) -> str:
    """Return `exited 137 (killed by signal 9)`."""
    signal = code - 128
    return f"exited {code} (killed by signal {signal})" if signal in SIGNALS else f"exited {code}"


def _moment(ms: float) -> str:
    """In minutes: nodes send messages about every 30 s."""
    minutes = ms / 60_000
    return "in the first minute" if minutes < 1 else f"{minutes:.0f} min into the run"


def describe_ends(ranks: Sequence[str], ends: Mapping[str, str], stopped: int = 0) -> str:
    """Describe equal ends together, in order, and the number of `stopped`."""
    alike = by_text(ends.items())
    rank_of = ranked(ranks)
    texts = [f"{subject(nodes, len(ranks), rank_of)} {text}" for text, nodes in alike.items()]
    more = len(texts) - MOST_ENDS
    if more > 0:
        texts[MOST_ENDS:] = [f"{more} more ended otherwise"]
    if ends and stopped:
        others = "the other" if len(ends) + stopped == len(ranks) else "another"
        texts.append(f"{others} {stopped} were stopped" if stopped > 1 else f"{others} was stopped")
    return ", ".join(texts)


def blame(
    run: int,
    ranks: Sequence[str],
    codes: Mapping[str, int],
    errors: Mapping[str, str] = MappingProxyType({}),
    lasted: Mapping[str, int] = MappingProxyType({}),
    failed: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Blamed, tuple[str, ...]]:
    """Return the nodes to blame, and the silent nodes.

    In this order:
    1. few nodes whose container ended
    2. few silent nodes
    3. nobody, if most failed alike, or a node `failed` for a reason of its own, such as storage
    4. few nodes not ended by the loop
    5. the first to end with 0 and no run_stop: images hide the code
    """
    few = max(1, len(ranks) // 2)
    stopped = [node for node in ranks if codes[node] == CONTAINER_ENDED]
    silent = [node for node in ranks if codes[node] == NOT_ENDED]
    exited = [node for node in ranks if codes[node] not in (0, ENDED_BY_US, NOT_ENDED)]
    if 0 < len(stopped) <= few:
        reason = f"its container ended in run {run}"
        return tuple((node, "container", reason) for node in stopped), ()
    if 0 < len(silent) <= few and len(silent) < len(ranks):
        reason = f"it went silent in run {run}"
        return tuple((node, "silent", reason) for node in silent), tuple(silent)
    alike = max(Counter(filter(None, errors.values())).values(), default=0) > few
    if alike or failed or len(ranks) == 1:
        return (), ()
    if exited:
        blamed = exited if len(exited) <= few and len(exited) < len(ranks) else []
        reason = f"run {run} died there (its exit code was not 0)"
    else:
        ended = [node for node in ranks if codes[node] == 0]
        blamed = _first_to_end(ended, few, len(ranks), errors, lasted)
        reason = f"run {run} ended there first, without run_stop"
    return tuple((node, "exit", _with_error(reason, errors.get(node))) for node in blamed), ()


def _with_error(reason: str, error: str | None) -> str:
    return f"{reason}: {error}" if error else reason


def _first_to_end(
    ended: Sequence[str], few: int, nodes: int, errors: Mapping[str, str], lasted: Mapping[str, int]
) -> list[str]:
    """Prefer a node with an error; [] if the first end means nothing."""
    with_error = [node for node in ended if errors.get(node)]
    if len(ended) == nodes and len(with_error) > few:
        return []
    suspects = with_error or (ended if len(ended) < nodes else [])
    return sorted(suspects, key=lambda node: lasted.get(node, QUICK_MS * 10**6))[:1]
