"""The first cause in the logs of several nodes: the line of the node that explains all ends.

The deepest grade (cause.py) counts, wherever its line is. Of lines of the same grade, the first in
its log counts; of nodes, the first by the lines' stamps if these are further apart than clocks may
be, otherwise the node that ended by itself, and first: if its log has nothing, its exit code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.causes.cause import ECHO, END, MACHINE, MENTION, PROGRAM, SYMPTOM, Cause
from orchestrator.causes.reading import Symptom, is_look_up
from orchestrator.causes.tables import BY_NAME, EXACTER

_CLOCKS_APART = 5.0
"""Seconds that the clocks of two nodes may differ by."""
_NEAR, _MOST_NEAR = 3, 12
"""Lines belong to one episode with at most so many ordinary lines between them; so many are
compared."""
_VAGUE = ("gpu_failed", "rccl_system_error", "peer_lost", "no_answer", "program_failed")
ENDED_BY_LOOP = 143, -1
_SIGNALLED = (132, 135, 136, 137, 139)
"""128 and a signal that nobody sends to a healthy program (SIGILL, SIGBUS, SIGFPE, SIGKILL,
SIGSEGV)."""


@dataclass(frozen=True)
class Ended:
    """The end of a node: its exit code, and the milliseconds of its run (None: unknown)."""

    exit: int | None = None
    lasted: int | None = None


def first_cause(
    by_node: Mapping[str, Sequence[Symptom]], ends: Mapping[str, Ended]
) -> tuple[str, Symptom] | None:
    """Return the node and the line of the first cause. `by_node` is in rank order."""
    firsts = {
        node: first
        for node, symptoms in by_node.items()
        if (first := _first(symptoms, _by_exit(node, by_node, ends)))
    }
    if (gone := _without_log(by_node, ends)) and all(
        symptom.grade > MACHINE for symptom in firsts.values()
    ):
        return gone
    if not firsts:
        return None
    deepest = min(symptom.grade for symptom in firsts.values())
    mute = [node for node, symptoms in by_node.items() if not symptoms]
    if deepest == ECHO and len(mute) == 1 and len(firsts) == len(by_node) - 1:
        # All others only lost a node; some images end with 0 however their program ends.
        code = ends.get(mute[0], Ended()).exit
        end = "no exit code" if code is None else f"exit code {code}"
        return mute[0], Symptom(END, f"{end}, without a last word", -1)
    grades = {deepest}
    if all(symptom.is_remark for symptom in firsts.values() if symptom.grade == deepest):
        # A remark on a node counts before a known failure of others only if it ended first.
        known_grades = [symptom.grade for symptom in firsts.values() if symptom.beats_remarks]
        grades.add(min(known_grades, default=deepest))
    if SYMPTOM in grades:
        grades.add(MENTION)  # processes that wait for a dead node mention that, too
    left = {node: symptom for node, symptom in firsts.items() if symptom.grade in grades}
    stamps = [symptom.time for symptom in left.values() if symptom.time is not None]
    if len(stamps) == len(left):
        # Clocks may be apart: of nodes that failed within seconds, the first that ended counts.
        limit = min(stamps) + _CLOCKS_APART
        left = {node: symptom for node, symptom in left.items() if (symptom.time or 0.0) <= limit}
    return min(
        left.items(),
        key=lambda item: (_order(ends.get(item[0], Ended())), not item[1].is_exact),
    )


def _first(symptoms: Sequence[Symptom], by_exit: Symptom | None) -> Symptom | None:
    """Return the symptom that counts of one log: the first of the deepest grade, or a more exact
    line about the same."""
    if by_exit is not None or not symptoms:
        return by_exit
    first = min(symptoms, key=lambda symptom: symptom.grade)
    if first.is_remark:
        raised = (symptom for symptom in symptoms if symptom.raised)
        first = next((symptom for symptom in raised if symptom.grade == PROGRAM), first)
    first = _named(first, symptoms)
    if first.is_remark:
        first = _known_or(first, symptoms)
    exacter = EXACTER.get(first.cause)
    if not exacter:
        return first
    exact = next((symptom for symptom in symptoms if symptom.cause in exacter), None)
    if exact is None:
        return first
    return replace(first, named=exact.cause, episode=(*first.episode, (exact.text, exact.offset)))


def _known_or(remark: Symptom, symptoms: Sequence[Symptom]) -> Symptom:
    """Return the deepest line with a known meaning, or the remark. Of lines near each other, both
    are quoted."""
    candidates = [symptom for symptom in symptoms if symptom.beats_remarks]
    if not candidates:
        return remark
    first = _named(min(candidates, key=lambda symptom: symptom.grade), symptoms)
    if abs(first.before - remark.before) > _NEAR:
        return first
    return replace(first, episode=(*first.episode, (remark.text, remark.offset)))


def _named(first: Symptom, symptoms: Sequence[Symptom]) -> Symptom:
    """Return a symptom, with the cause that the lines around it name unless it names one itself."""
    if first.is_exact or (first.cause and first.raised and first.cause not in _VAGUE):
        return first
    near = [
        symptom
        for symptom in symptoms
        if abs(symptom.before - first.before) <= _NEAR and _may_name(symptom, first)
    ]
    near.sort(
        key=lambda symptom: (symptom.offset < first.offset, abs(symptom.offset - first.offset))
    )
    for symptom in near[:_MOST_NEAR]:
        if symptom.is_exact:
            episode = (*first.episode, (symptom.text, symptom.offset))
            return replace(first, named=symptom.cause, episode=episode)
    return first


def _may_name(symptom: Symptom, first: Symptom) -> bool:
    """Return whether a line may give the cause of another, and is no consequence of it."""
    if symptom is first:
        return False
    if symptom.grade == MENTION:
        return symptom.before == first.before or not first.raised or is_look_up(first)
    return symptom.grade <= first.grade


def _without_log(
    by_node: Mapping[str, Sequence[Symptom]], ends: Mapping[str, Ended]
) -> tuple[str, Symptom] | None:
    node = ended_first(ends)
    if not node or node in by_node or not by_node:
        return None
    order = _order(ends[node])
    if any(_order(end) <= order for other, end in ends.items() if other != node):
        return None
    text = f"exit code {ends[node].exit}, and its log is missing"
    return node, Symptom(END, text, -1, named="log_missing")


def _by_exit(
    node: str, by_node: Mapping[str, Sequence[Symptom]], ends: Mapping[str, Ended]
) -> Symptom | None:
    """Return the symptom from the exit code of a node that ended by itself, before all others, and
    without a line but remarks. If its log has not even an echo, the others failed because of it."""
    code = ends.get(node, Ended()).exit or 0
    if code not in _SIGNALLED or any(
        symptom.grade < MENTION and not symptom.is_remark for symptom in by_node[node]
    ):
        return None
    order = _order(ends[node])
    if any(_order(end) <= order for other, end in ends.items() if other != node):
        return None
    return Symptom(END if by_node[node] else PROGRAM, f"exit code {code}", -1)


def ended_first(ends: Mapping[str, Ended]) -> str:
    """Return the node that failed by itself before all others, or ""."""
    failed = {node: end for node, end in ends.items() if end.exit and not _order(end)[0]}
    return min(failed, key=lambda node: _order(failed[node]), default="")


def _order(end: Ended) -> tuple[bool, int]:
    """Sort nodes that ended by themselves first, then by their duration."""
    return end.exit in ENDED_BY_LOOP, 1 << 50 if end.lasted is None else end.lasted


def known(symptom: Symptom | None) -> Cause | None:
    return BY_NAME.get(symptom.cause) if symptom is not None else None


def sentence(cause: Cause, node: str = "") -> str:
    return f"{node}: {cause.sentence}" if node else cause.sentence


def cause_of(by_node: Mapping[str, Sequence[Symptom]], ends: Mapping[str, Ended]) -> str:
    """Return the sentence of the first cause, or ""."""
    first = first_cause(by_node, ends)
    cause = known(first[1]) if first else None
    return sentence(cause, first[0] if len(by_node) > 1 else "") if first and cause else ""
