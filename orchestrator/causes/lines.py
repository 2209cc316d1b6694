"""The cause of a line of a log. No other module compares lines with signs.

First come the signs with a single meaning, then the loose ones (cause.py), in the order of
causes.json; then the generic causes, the signs of a mere echo, and at last any exception.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache, lru_cache
from typing import NamedTuple

from orchestrator.causes.cause import Cause
from orchestrator.causes.fields import with_fields
from orchestrator.causes.prefixes import without_prefixes
from orchestrator.causes.tables import CAUSES, GENERIC, NOT_BY, OUTER, PARENTS

_GRAM = 4
_DIGITS = b"0123456789"


class _Sign(NamedTuple):
    """A sign of a cause; `pieces` are the texts between its `*`."""

    cause: Cause
    tier: int
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

    @property
    def order(self) -> tuple[int, int, str, tuple[str, ...]]:
        """Sort exact signs before vague ones, whatever their order in causes.json."""
        length = sum(len(piece) + _FIELDS.get(piece[0], 0) for piece in self.pieces)
        return self.tier, -length, self.cause.name, self.pieces


_FIELDS = {"#": 20, "!": 8, "@": 8}
"""A field of a line counts for so many letters more."""
KIND, SPEAKER, MERE, LAST, UNKNOWN = 3, 4, 5, 6, 7
"""Tiers of signs. From KIND on a sign names only the kind of the failure, or who speaks of it;
MERE is a speaker alone, LAST are words for the kind of a failure that nothing else names."""


def _sign(cause: Cause, text: str) -> _Sign:
    bare = text.lstrip("+?~^")
    pieces = tuple(piece for piece in bare.split("*") if piece)
    shapes = tuple(piece.encode().translate(None, _DIGITS) for piece in pieces)
    marks = text[: len(text) - len(bare)]
    if "+" in marks:
        tier = 0
    elif len(pieces) == 1 and pieces[0][0] == "@" and cause.name not in GENERIC:
        tier = MERE
    elif cause.name in GENERIC:
        tier = LAST if "?" in marks else KIND
    elif "?" in marks or cause.name in OUTER:
        tier = SPEAKER
    elif "~" in marks:
        tier = 2
    else:
        tier = int(cause.name in PARENTS)
    return _Sign(cause, tier, "^" in marks, pieces, shapes)


@lru_cache(maxsize=16)
def _signs(causes: tuple[Cause, ...]) -> list[_Sign]:
    """Return the signs of `causes`, those of causes.json in the order in which they count."""
    signs = [_sign(cause, text) for cause in causes for text in cause.signs if text]
    return sorted(signs, key=lambda sign: sign.order) if causes is CAUSES else signs


@cache
def _all_signs() -> list[_Sign]:
    return _signs(CAUSES)


@lru_cache(maxsize=1)
def _index() -> tuple[dict[bytes, list[int]], list[int]]:
    """Return the signs by the rarest four letters of each, and the signs that are shorter.

    So the time for a line grows with its length, not with the number of signs.
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


@lru_cache(maxsize=4096)
def _likely(shape: bytes) -> tuple[int, ...]:
    """Return the signs that a line of a shape may have."""
    index, short = _index()
    likely = {
        number
        for start in range(len(shape) - _GRAM + 1)
        for number in index.get(shape[start : start + _GRAM], ())
    }
    return tuple(
        number
        for number in sorted(likely.union(short))
        if all(key in shape for key in _all_signs()[number].shapes)
    )


@lru_cache(maxsize=4096)
def meaning(text: str, episode: tuple[str, ...]) -> tuple[str, int]:
    """Return the name of the cause of a line, "" if it is unknown, and the tier of its sign.

    The line itself counts first, then the other lines of its episode, last its generic cause.
    """
    announces = text.rstrip().endswith(":")
    texts = (*episode, text) if announces else (text, *episode)
    found = [sign for line in texts if (sign := _sign_in(line))]
    exact = next((sign for sign in found if sign.tier < KIND), None)
    sign = exact or next(iter(found), None)
    return (sign.cause.name, sign.tier) if sign else ("", UNKNOWN)


_WITHOUT_MESSAGE = re.compile(r"(.*) \((\w*(?:Error|Exception|StopIteration))\)$")
"""How reading.py quotes an exception without a message, with its source."""


def _sign_in(text: str) -> _Sign | None:
    text = _WITHOUT_MESSAGE.sub(r"\2: \1", text)
    bare = without_prefixes(text).strip()
    start = bare.lower()
    low = with_fields(text, bare)
    likely = _likely(low.encode("utf-8", "replace").translate(None, _DIGITS))
    signs = (_all_signs()[number] for number in likely)
    return next((sign for sign in signs if sign.is_in(start if sign.at_start else low)), None)


def cause_in(text: str, causes: tuple[Cause, ...] = CAUSES) -> Cause | None:
    """Return the first cause with a sign in a text that is known to give a reason."""
    low = with_fields(text, without_prefixes(text))
    return next((sign.cause for sign in _signs(causes) if sign.is_in(low)), None)
