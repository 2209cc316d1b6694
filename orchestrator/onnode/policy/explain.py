"""The first cause of what several logs tell: which line of which node says why all of them ended.

A line is a symptom when it has a sign of a cause (causes.py), or is an exception that none knows. The deepest grade counts; of
several with that grade, the first in its log, and of several nodes the first by the time stamps of the lines where all have one,
else that of the node that ended by itself, and first. What the program outlived is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from .cause import ECHO, OTHER, PROGRAM, SYMPTOM, Cause
from .causes import BY_NAME, CAUSES, COUNTS, ECHOES, PASSED_OVER
from .said import line
from .trouble import MOST_CHARACTERS, exception_in

MOST_LINE = 4096
MOST_PLACES = 500
"""Of one sign in one text, from its beginning."""
OUTLIVED = 5
"""So many MLLOG records after a line, and the program went on: when one rank is dead, the others stop within a step or two."""
_ENDED_BY_US, _NOT_ENDED = 143, -1
_STAMP = re.compile(r"(?:\b\d{4}-(\d\d)-(\d\d)[T ]|\b[IWEF](\d\d)(\d\d) )(\d\d):(\d\d):(\d\d(?:[.,]\d{1,6})?)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class Symptom:
    """One line: the name of its cause ("" for an exception that none knows, and for an echo), its grade, its place in bytes."""

    cause: str
    grade: int
    text: str
    offset: int
    time: float | None = None
    """Seconds since a year's begin, by the line's own stamp; None where it has none."""


@dataclass(frozen=True)
class Ended:
    """What is known of a node's end: its exit code, and how many milliseconds its run took (None: not known)."""

    exit: int | None = None
    lasted: int | None = None


@cache
def _pieces(sign: str) -> tuple[bool, list[str]]:
    """Return whether a sign stands at the begin of a line, and what lies between its `*`."""
    return sign.startswith("^"), [piece for piece in sign.lstrip("^").split("*") if piece]


def _has(text: str, sign: str) -> bool:
    """Whether the pieces of a sign stand in `text`, in order."""
    begins, pieces = _pieces(sign)
    at = 0
    for piece in pieces:
        found = text.find(piece, at)
        if found < 0 or (begins and at == 0 and found):
            return False
        at = found + len(piece)
    return True


_KEYS = {
    max(_pieces(sign)[1], key=len).encode() for sign in (*(sign for cause in CAUSES for sign in cause.signs), *ECHOES)
}


def _judge(text: str) -> tuple[str, int] | None:
    """Return (cause, grade) of a line; None where it is no symptom."""
    low = text.lower()
    if not any(word in low for word in COUNTS) and any(word in low[:160] for word in PASSED_OVER):
        return None
    cause = cause_in(low)
    if cause is not None and cause.grade <= PROGRAM:
        return cause.name, cause.grade
    if any(_has(low, sign) for sign in ECHOES) and cause is None:
        return "", ECHO
    if cause is not None:
        return cause.name, SYMPTOM
    return ("", OTHER) if exception_in(text) else None


def cause_in(text: str, causes: Sequence[Cause] = CAUSES) -> Cause | None:
    """Return the first cause that has a sign in a line."""
    low = text.lower()
    return next((cause for cause in causes if any(_has(low, sign) for sign in cause.signs)), None)


def symptoms(text: bytes) -> list[Symptom]:
    """Return the symptoms in a part of a log, in order. Raises on no bytes."""
    low = text.lower().replace(b"\r", b"\n")
    found = []
    records = None
    for begin in sorted(_lines_with(low)):
        end = low.find(b"\n", begin)
        raw = text[begin : end if end >= 0 else len(text)][:MOST_LINE]
        if b":::MLLOG" in raw:
            continue
        told = line(_COLOUR.sub("", raw.decode("utf-8", "replace")), MOST_LINE)
        judged = _judge(told.strip())
        if judged is None:
            continue
        if judged[1] in (PROGRAM, OTHER, SYMPTOM):
            records = records if records is not None else [at.start() for at in re.finditer(b":::mllog ", low)]
            if len(records) >= OUTLIVED and records[-OUTLIVED] > begin:
                continue
        found.append(Symptom(*judged, told.strip()[:MOST_CHARACTERS], begin, _time(told)))
    return found


def _lines_with(low: bytes) -> set[int]:
    """Return where lines begin that may be symptoms: with the longest piece of a sign, or with an exception."""
    found = {low.rfind(b"\n", 0, at.start() + 1) + 1 for at in _EXCEPTIONS.finditer(low)}
    for key in _KEYS:
        for at in _places(low, key):
            found.add(low.rfind(b"\n", 0, at) + 1)
    return found


_EXCEPTIONS = re.compile(rb"(?:error|exception|failure|what\(\)):? ?")


def _places(low: bytes, key: bytes) -> Iterator[int]:
    at = low.find(key)
    for _ in range(MOST_PLACES):
        if at < 0:
            return
        yield at
        at = low.find(b"\n", at)
        at = low.find(key, at) if at >= 0 else -1


def _time(text: str) -> float | None:
    found = _STAMP.search(text[:200])
    if found is None:
        return None
    month, day = found[1] or found[3], found[2] or found[4]
    days = int(month) * 31 + int(day)
    return days * 86400.0 + int(found[5]) * 3600 + int(found[6]) * 60 + float(found[7].replace(",", "."))


def first_cause(told: Mapping[str, Sequence[Symptom]], ends: Mapping[str, Ended]) -> tuple[str, Symptom] | None:
    """Return the node and the line that tell the first cause; None where there is no symptom. `told` is in rank order."""
    firsts = {node: min(found, key=lambda one: one.grade) for node, found in told.items() if found}
    if not firsts:
        return None
    deepest = min(one.grade for one in firsts.values())
    left = {node: one for node, one in firsts.items() if one.grade == deepest}
    stamps = [one.time for one in left.values() if one.time is not None]
    if len(stamps) == len(left):
        return min(left.items(), key=lambda item: item[1].time or 0.0)
    return min(left.items(), key=lambda item: _order(ends.get(item[0], Ended())))


def _order(end: Ended) -> tuple[bool, int]:
    """Nodes that ended by themselves before those that we ended, then by the time they took."""
    return end.exit in (_ENDED_BY_US, _NOT_ENDED), 1 << 50 if end.lasted is None else end.lasted


def known(symptom: Symptom | None) -> Cause | None:
    """Return the cause of a symptom; None where it is not known."""
    return BY_NAME.get(symptom.cause) if symptom is not None else None


def sentence(cause: Cause, node: str = "") -> str:
    """Return the cause in words, with the node that told it."""
    return f"{node}: {cause.sentence}" if node else cause.sentence


def cause_of(told: Mapping[str, Sequence[Symptom]], ends: Mapping[str, Ended]) -> str:
    """Return the sentence of the first cause, "" where it is not known."""
    found = first_cause(told, ends)
    cause = known(found[1]) if found else None
    return sentence(cause, found[0] if len(told) > 1 else "") if found and cause else ""
