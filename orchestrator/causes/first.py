"""The first cause in the logs of several nodes: the line of the node that explains all ends.

The deepest grade (cause.py) counts, wherever its line is. Of several lines of one grade, the first
in its log counts; of several nodes, the first by the stamps of the lines if all have one, otherwise
the node that ended by itself, and first. If that node's log has nothing, its exit code counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.causes.cause import ECHO, END, MENTION, SYMPTOM, Cause
from orchestrator.causes.reading import Symptom
from orchestrator.causes.tables import BY_NAME, EXACTER

_ENDED_BY_US, _NOT_ENDED = 143, -1
_EXITS = {132: "crash", 135: "crash", 136: "crash", 137: "killed", 139: "crash"}
"""128 and a signal that nobody sends to a healthy program (SIGILL, SIGBUS, SIGFPE, SIGKILL,
SIGSEGV)."""


@dataclass(frozen=True)
class Ended:
    """The end of a node: its exit code, and how many milliseconds its run took (None: unknown)."""

    exit: int | None = None
    lasted: int | None = None


def first_cause(
    by_node: Mapping[str, Sequence[Symptom]], ends: Mapping[str, Ended]
) -> tuple[str, Symptom] | None:
    """Return the node and the line of the first cause; None without a symptom.

    `by_node` is in rank order.
    """
    firsts = {
        node: first
        for node, symptoms in by_node.items()
        if (first := _first(symptoms, _by_exit(node, by_node, ends)))
    }
    if not firsts:
        return None
    deepest = min(symptom.grade for symptom in firsts.values())
    grades = (
        (deepest, MENTION) if deepest == SYMPTOM else (deepest,)
    )  # processes that wait for a dead node mention that, too
    left = {node: symptom for node, symptom in firsts.items() if symptom.grade in grades}
    stamps = [symptom.time for symptom in left.values() if symptom.time is not None]
    if len(stamps) == len(left):
        return min(left.items(), key=lambda item: item[1].time or 0.0)
    return min(left.items(), key=lambda item: _order(ends.get(item[0], Ended())))


def _first(symptoms: Sequence[Symptom], by_exit: Symptom | None) -> Symptom | None:
    """Return the symptom that counts of one log: the first of the deepest grade, or a more exact
    line about the same."""
    first = min(
        symptoms,
        key=lambda symptom: (symptom.grade, symptom.grade == ECHO and not symptom.cause),
        default=by_exit,
    )
    if first is None or (by_exit is not None and first.grade > by_exit.grade):
        return by_exit
    exacter = EXACTER.get(first.cause, ())
    return next((symptom for symptom in symptoms if symptom.cause in exacter), first)


def _by_exit(
    node: str, by_node: Mapping[str, Sequence[Symptom]], ends: Mapping[str, Ended]
) -> Symptom | None:
    """Return the symptom from the exit code of a node that ended by itself, before all others,
    and without a line."""
    code = ends.get(node, Ended()).exit or 0
    if code not in _EXITS or any(symptom.grade < ECHO for symptom in by_node[node]):
        return None
    order = _order(ends[node])
    if any(_order(end) <= order for other, end in ends.items() if other != node):
        return None
    return Symptom(_EXITS[code], END, f"exit code {code}", -1)


def _order(end: Ended) -> tuple[bool, int]:
    """Sort nodes that ended by themselves before those that we ended, then by their duration."""
    return end.exit in (_ENDED_BY_US, _NOT_ENDED), 1 << 50 if end.lasted is None else end.lasted


def known(symptom: Symptom | None) -> Cause | None:
    """Return the cause of a symptom; None if unknown."""
    return BY_NAME.get(symptom.cause) if symptom is not None else None


def sentence(cause: Cause, node: str = "") -> str:
    """Return the cause in words, with its node."""
    return f"{node}: {cause.sentence}" if node else cause.sentence


def cause_of(by_node: Mapping[str, Sequence[Symptom]], ends: Mapping[str, Ended]) -> str:
    """Return the sentence of the first cause, "" if unknown."""
    first = first_cause(by_node, ends)
    cause = known(first[1]) if first else None
    return sentence(cause, first[0] if len(by_node) > 1 else "") if first and cause else ""
