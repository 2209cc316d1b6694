"""The first cause of what several logs tell: which line of which node says why all of them ended.

A line is a symptom when it has a sign of a cause (causes.py), or is an exception that none knows. The deepest grade counts; of
several with that grade, the first in its log, and of several nodes the first by the time stamps of the lines where all have one,
else that of the node that ended by itself, and first. What the program outlived is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .cause import ECHO, OTHER, PROGRAM, Cause
from .causes import BY_NAME, CAUSES, COUNTS, ECHOES, PASSED_OVER
from .said import line
from .trouble import MOST_CHARACTERS, exception_in

MOST_LINE = 4096
MOST_SYMPTOMS = 20_000
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


def _pieces(sign: str) -> tuple[bool, list[str]]:
    """Return whether a sign stands at the begin of a line, and what lies between its `*`."""
    return sign.startswith("^"), [piece for piece in sign.lstrip("^").split("*") if piece]


def _has(text: str, begins: bool, pieces: list[str]) -> bool:
    """Whether the pieces of a sign stand in `text`, in order."""
    at = 0
    for piece in pieces:
        found = text.find(piece, at)
        if found < 0 or (begins and at == 0 and found):
            return False
        at = found + len(piece)
    return True


_DIGITS = b"0123456789"
_ECHO = Cause("", ECHO, "", "", "", "")
_SIGNS = [
    (cause, *_pieces(sign), [piece.encode().translate(None, _DIGITS) for piece in _pieces(sign)[1]])
    for cause, signs in (*((cause, cause.signs) for cause in CAUSES), (_ECHO, ECHOES))
    for sign in signs
]
"""(cause, at the begin of a line, pieces, pieces without digits), in the order in which they count."""
_LIKE_AN_EXCEPTION = re.compile(
    rb"error|exception|interrupt|failure|exit|fatal|failed|what\(\)|not found|denied|fault|no such"
)


@lru_cache(maxsize=4096)
def _may_be(shape: bytes) -> tuple[bool, tuple[int, ...]]:
    """Return whether a line without its digits may be a symptom, and by which signs: lines are many, their shapes are few."""
    signs = tuple(at for at, (_, _, _, keys) in enumerate(_SIGNS) if all(key in shape for key in keys))
    return bool(signs or _LIKE_AN_EXCEPTION.search(shape)), signs


def _judge(text: str, signs: Sequence[int]) -> tuple[str, int] | None:
    """Return (cause, grade) of a line that may have `signs`; None where it is no symptom."""
    low = text.lower()
    if not any(word in low for word in COUNTS) and any(word in low[:160] for word in PASSED_OVER):
        return None
    for cause, begins, pieces, _ in (_SIGNS[at] for at in signs):
        if _has(low, begins, pieces):
            return cause.name, cause.grade
    return ("", OTHER) if exception_in(text) else None


def cause_in(text: str, causes: Sequence[Cause] = CAUSES) -> Cause | None:
    """Return the first cause that has a sign in a line."""
    low = text.lower()
    return next((cause for cause in causes if any(_has(low, *_pieces(sign)) for sign in cause.signs)), None)


def symptoms(text: bytes) -> list[Symptom]:
    """Return the symptoms in a part of a log, in order. Raises on no bytes."""
    found: list[Symptom] = []
    records: list[int] = []
    begin = 0
    for raw in text.replace(b"\r", b"\n").split(b"\n"):
        if b":::MLLOG" in raw:
            records.append(begin)
        elif raw:
            may_be, signs = _may_be(raw[:MOST_LINE].lower().translate(None, _DIGITS))
            if may_be and len(found) < MOST_SYMPTOMS:
                told = line(_COLOUR.sub("", raw[:MOST_LINE].decode("utf-8", "replace")), MOST_LINE).strip()
                judged = _judge(told, signs)
                if judged is not None:
                    found.append(Symptom(*judged, told[:MOST_CHARACTERS], begin, _time(told)))
        begin += len(raw) + 1
    outlived = records[-OUTLIVED] if len(records) >= OUTLIVED else 0
    return [one for one in found if one.offset >= outlived or one.grade < PROGRAM or one.grade == ECHO]


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
