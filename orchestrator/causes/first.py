"""The first cause in several logs: which line of which node explains why all of them ended.

The deepest grade (cause.py) counts, wherever it is: a root cause, then an unexplained end, then a
symptom, then an echo. Of one grade, the first in its log counts; of several nodes the first by time
stamp if all lines have one, else that of the node that ended first by itself. Symptoms that the
program survived are left out. Without a line, the exit code of the node that ended first by itself
counts.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.causes.cause import ECHO, END, MENTION, PROGRAM, SYMPTOM, Cause
from orchestrator.causes.lines import MOST_LINE, judge, may_say, shape_of
from orchestrator.causes.tables import BY_NAME, EXACTER
from orchestrator.onnode.policy.reports import line
from orchestrator.onnode.policy.trouble import MOST_CHARACTERS

MOST_SYMPTOMS = 20_000
OUTLIVED, OUTLIVED_STEPS = 5, 3
"""After this many MLLOG records, or lines about a step, the program survived the line: when one
rank is dead, the others stop within a step or two."""
LAST_WORDS = 6
"""A remark in passing counts within this many lines of the end."""
_ENDED_BY_US, _NOT_ENDED = 143, -1
_EXITS = {132: "crash", 135: "crash", 136: "crash", 137: "killed", 139: "crash"}
"""128 plus a signal that nobody sends to a healthy program (SIGILL, SIGBUS, SIGFPE, SIGKILL,
SIGSEGV)."""
_MONTHS = "xxxjanfebmaraprmayjunjulaugsepoctnovdec"
_STAMP = re.compile(
    r"(?:\b\d{4}-(\d\d)-(\d\d)[T ]|\b[IWEF](\d\d)(\d\d) |\b([A-Z][a-z][a-z]) {1,2}(\d{1,2}) )(\d\d):(\d\d):(\d\d(?:[.,]\d{1,6})?)"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_SOURCE = re.compile(rb"\s{4}|\s*(?:\[?(?:rank ?)?\d+\]?:\s?)+\s{4}|\s*[\^~]+\s*$")


@dataclass(frozen=True)
class Symptom:
    """One line: the name of its cause ("" for an unknown exception, and for an echo), its grade,
    its place in bytes."""

    cause: str
    grade: int
    text: str
    offset: int
    time: float | None = None
    """Seconds since the start of a year, by the line's own stamp; None if missing."""


@dataclass(frozen=True)
class Ended:
    """The end of a node: its exit code, and the milliseconds of its run (None: unknown)."""

    exit: int | None = None
    lasted: int | None = None


def symptoms(text: bytes) -> list[Symptom]:
    """Return the symptoms in a part of a log, in order. Never raises."""
    found: list[Symptom] = []
    records: deque[int] = deque(maxlen=OUTLIVED)
    steps: deque[int] = deque(maxlen=OUTLIVED_STEPS)
    last: deque[int] = deque([0], maxlen=LAST_WORDS)
    begin, frame = 0, False
    for raw in text.replace(b"\r", b"\n").split(b"\n"):
        if b":::MLLOG" in raw:
            records.append(begin)
        elif raw and not (frame and _SOURCE.match(raw)):
            last.append(begin)
            may_be, signs, step, frame = may_say(shape_of(raw))
            judged = None
            if may_be and len(found) < MOST_SYMPTOMS:
                told = line(
                    _COLOUR.sub("", raw[:MOST_LINE].decode("utf-8", "replace")), MOST_LINE
                ).strip()
                judged = judge(told, signs)
                if judged is not None:
                    found.append(Symptom(*judged, told[:MOST_CHARACTERS], begin, _time(told)))
            if step and judged is None:
                steps.append(begin)
        begin += len(raw) + 1
    outlived = max([seen[0] for seen in (records, steps) if len(seen) == seen.maxlen], default=0)
    return [one for one in found if _counts(one, outlived, last[0])]


def _counts(one: Symptom, outlived: int, last: int) -> bool:
    """Return whether the program neither survived a symptom, nor mentioned it in passing."""
    if one.grade == MENTION:
        return one.offset >= max(last, outlived)
    return one.offset >= outlived or one.grade < PROGRAM or one.grade == ECHO


def _time(text: str) -> float | None:
    found = _STAMP.search(text[:200])
    if found is None:
        return None
    month = _MONTHS.find(found[5].lower()) // 3 if found[5] else int(found[1] or found[3])
    days = month * 31 + int(found[2] or found[4] or found[6])
    return (
        days * 86400.0
        + int(found[7]) * 3600
        + int(found[8]) * 60
        + float(found[9].replace(",", "."))
    )


def first_cause(
    told: Mapping[str, Sequence[Symptom]], ends: Mapping[str, Ended]
) -> tuple[str, Symptom] | None:
    """Return the node and the line of the first cause; None without a symptom. `told` is in rank
    order."""
    firsts = {
        node: first
        for node, found in told.items()
        if (first := _first(found, _by_exit(node, told, ends)))
    }
    if not firsts:
        return None
    deepest = min(one.grade for one in firsts.values())
    grades = (
        (deepest, MENTION) if deepest == SYMPTOM else (deepest,)
    )  # processes that wait for a dead node mention that, too
    left = {node: one for node, one in firsts.items() if one.grade in grades}
    stamps = [one.time for one in left.values() if one.time is not None]
    if len(stamps) == len(left):
        return min(left.items(), key=lambda item: item[1].time or 0.0)
    return min(left.items(), key=lambda item: _order(ends.get(item[0], Ended())))


def _first(found: Sequence[Symptom], by_exit: Symptom | None) -> Symptom | None:
    """Return the symptom that counts of one log: the first of the deepest grade, or a more exact
    line about the same."""
    first = min(found, key=lambda one: one.grade, default=by_exit)
    if first is None or (by_exit is not None and first.grade > by_exit.grade):
        return by_exit
    exacter = EXACTER.get(first.cause, ())
    return next((one for one in found if one.cause in exacter), first)


def _by_exit(
    node: str, told: Mapping[str, Sequence[Symptom]], ends: Mapping[str, Ended]
) -> Symptom | None:
    """Return the symptom from the exit code of a node that ended by itself, before all others,
    and without a line."""
    code = ends.get(node, Ended()).exit or 0
    if code not in _EXITS or any(one.grade < ECHO for one in told[node]):
        return None
    own = _order(ends[node])
    if any(_order(end) <= own for other, end in ends.items() if other != node):
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


def cause_of(told: Mapping[str, Sequence[Symptom]], ends: Mapping[str, Ended]) -> str:
    """Return the sentence of the first cause, "" if unknown."""
    found = first_cause(told, ends)
    cause = known(found[1]) if found else None
    return sentence(cause, found[0] if len(told) > 1 else "") if found and cause else ""
