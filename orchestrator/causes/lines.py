"""The cause of a line of a log. No other module compares lines with signs.

First come the signs with a single meaning, then the loose ones (cause.py), in the order of
causes.json; then the generic causes, the signs of a mere echo, and at last any exception.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from orchestrator.causes.cause import ECHO, END, MENTION, Cause
from orchestrator.causes.prefixes import without_prefixes
from orchestrator.causes.tables import (
    ADVICE,
    CAUSES,
    COUNTS,
    ECHOES,
    GENERIC,
    NOT_BY,
    PASSED_OVER,
    WRAPPERS,
)

MOST_LINE = 4096
_NEAR_START = 160
_GRAM = 4
_DIGITS = b"0123456789"
_LABEL = re.compile(r"^(?:\s*\[?(?:rank ?)?\d+\]?:\s?)*\s*")
_EXCEPTION = re.compile(
    r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Failure|Exit|OutOfResources)(?::\s|:?$)"
)
_FAILURE = re.compile(
    r"what\(\):|Fatal Python error|HSA_STATUS_ERROR|(?:HIP|CUDA|hip|NCCL|RCCL) error"
    r"|(?i:^(?:error|fatal|failed)[:\s])|(?i: warn error)"
)
_FAILS = re.compile(r"error|fatal|fail|exception|critical|assert|abort|panic|what\(\)")
_MAY_FAIL = re.compile(rb"error|exception|interrupt|failure|exit|fatal|failed|what\(\)|outofres")
_STEP = re.compile(
    rb"\biteration\s+/|\bit/s\b|s/it\b|\bstep[ :=_]+/?[\s,|]|\blm loss\b|\bthroughput\b|tokens/s"
)


class _Sign(NamedTuple):
    """A sign of a cause; `pieces` are the texts between its `*`."""

    cause: Cause
    is_loose: bool
    at_start: bool
    pieces: tuple[str, ...]
    shapes: tuple[bytes, ...]
    """The pieces without digits."""

    def is_in(self, text: str) -> bool:
        """Return whether the pieces occur in `text`, in order, and the speaker is right."""
        end = 0
        for piece in self.pieces:
            start = text.find(piece, end)
            if start < 0 or (self.at_start and end == 0 and start):
                return False
            end = start + len(piece)
        not_by = NOT_BY.get(self.cause.name)
        return not_by is None or not not_by.search(text)


def _sign(cause: Cause, text: str) -> _Sign:
    pieces = tuple(piece for piece in text.lstrip("~^").split("*") if piece)
    shapes = tuple(piece.encode().translate(None, _DIGITS) for piece in pieces)
    at_start = text.lstrip("~").startswith("^")
    return _Sign(cause, text.startswith("~"), at_start, pieces, shapes)


_ECHO = Cause("", ECHO, "", "", "", " | ".join(ECHOES))


@lru_cache(maxsize=16)
def _signs(causes: tuple[Cause, ...]) -> list[_Sign]:
    """Return the signs of `causes` in the order in which they are compared."""
    signs = [_sign(cause, text) for cause in causes for text in cause.signs if text]
    return sorted(signs, key=lambda sign: (sign.cause.name in GENERIC, sign.is_loose))


@cache
def _all_signs() -> list[_Sign]:
    return [*_signs(CAUSES), *_signs((_ECHO,))]


def shape_of(raw: bytes) -> bytes:
    """Return a line in small letters without its digits: many lines have few shapes."""
    return raw[:MOST_LINE].lower().translate(None, _DIGITS)


@lru_cache(maxsize=1)
def _index() -> tuple[dict[bytes, list[int]], list[int]]:
    """Return the signs by the rarest four letters of each, and the signs that are shorter.

    So the time for a line grows with its length, not with the number of signs (two thousand).
    """
    grams = [
        {key[start : start + _GRAM] for key in sign.shapes for start in range(len(key) - _GRAM + 1)}
        for sign in _all_signs()
    ]
    often = Counter(gram for of_sign in grams for gram in of_sign)
    index: dict[bytes, list[int]] = {}
    for number, of_sign in enumerate(grams):
        if of_sign:
            rarest = min(of_sign, key=lambda gram: (often[gram], gram))
            index.setdefault(rarest, []).append(number)
    return index, [number for number, of_sign in enumerate(grams) if not of_sign]


@dataclass(frozen=True)
class Shape:
    """Properties of all lines of a shape."""

    may_fail: bool
    """Whether a line of it may be a sign of a failure, or an exception."""
    signs: tuple[int, ...]
    is_step: bool
    """Whether it is about a step of training."""


@lru_cache(maxsize=4096)
def read_shape(shape: bytes) -> Shape:
    index, short = _index()
    likely = {
        number
        for start in range(len(shape) - _GRAM + 1)
        for number in index.get(shape[start : start + _GRAM], ())
    }
    signs = tuple(
        number
        for number in sorted(likely.union(short))
        if all(key in shape for key in _all_signs()[number].shapes)
    )
    return Shape(bool(signs or _MAY_FAIL.search(shape)), signs, bool(_STEP.search(shape)))


def is_exception(text: str) -> bool:
    """Return whether a line without prefixes is the last line of a traceback."""
    return _EXCEPTION.match(text) is not None


def judge(text: str, signs: Sequence[int] | None = None) -> tuple[str, int] | None:
    """Return (name of the cause, grade) of a line; None for a line about no failure.

    The name is "" for an exception without a known cause, and for an echo. `signs`: those that
    the line may have (`read_shape`), if they are known.
    """
    bare = without_prefixes(text).strip()
    start = bare.lower()
    low = _LABEL.sub("", text).strip().lower()
    raised = is_exception(bare)
    if ADVICE.match(start):
        return None
    if WRAPPERS.match(start):
        return "", ECHO
    counts = raised or any(word in low for word in COUNTS)
    if not counts and PASSED_OVER.search(low, 0, _NEAR_START):
        return None
    for sign in _all_signs() if signs is None else (_all_signs()[number] for number in signs):
        if sign.is_in(start if sign.at_start else low):
            grade = sign.cause.grade
            in_passing = sign.is_loose and grade < MENTION and not _FAILS.search(low)
            return sign.cause.name, MENTION if in_passing else grade
    return ("", END) if raised or _FAILURE.search(bare) else None


def cause_in(text: str, causes: tuple[Cause, ...] = CAUSES) -> Cause | None:
    """Return the first cause with a sign in a text that is known to give a reason."""
    low = text.lower()
    return next((sign.cause for sign in _signs(causes) if sign.is_in(low)), None)
