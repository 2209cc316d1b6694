"""The cause of a line of a log. No other module compares lines with signs.

Of several signs the lowest tier counts, then the sign that covers most of the line: exact signs,
loose words, then those of generic causes. The order of causes.json has no effect.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache, lru_cache
from itertools import islice
from typing import NamedTuple

from orchestrator.causes.cause import Cause
from orchestrator.causes.fields import with_fields
from orchestrator.causes.forms import EXCEPTION
from orchestrator.causes.prefixes import without_prefixes
from orchestrator.causes.tables import CAUSES, GENERIC, NOT_BY, OUTER, PARENTS

_GRAM = 4
_DIGITS = b"0123456789"


class _Sign(NamedTuple):
    """A sign of a cause: groups of pieces, each with its alternatives.

    In a line, the pieces of a group come in order, groups in any order.
    """

    cause: Cause
    tier: int
    at_start: bool
    groups: tuple[tuple[tuple[str, ...], ...], ...]

    @property
    def pieces(self) -> list[tuple[str, ...]]:
        return [piece for group in self.groups for piece in group]

    def weight_in(self, text: str) -> int:
        """Return how many letters of `text` the sign covers; 0 without a match."""
        weights = [_weight_of(group, text, self.at_start) for group in self.groups]
        not_by = NOT_BY.get(self.cause.name)
        if not all(weights) or (not_by is not None and not_by.search(text)):
            return 0
        return sum(weights)


def _weight_of(group: tuple[tuple[str, ...], ...], text: str, at_start: bool) -> int:
    """Return how many letters the pieces of a group cover in order; 0 without a match."""
    for begin in islice(_pattern(group[0]).finditer(text), _MOST_STARTS):
        if at_start and begin.start():
            break
        places = [begin]
        for piece in group[1:]:
            end = places[-1].end()
            far = len(text) if piece[0][:1] in _FIELDS else end + _GAP
            place = _pattern(piece).search(text, end, far)
            if place is None:
                break
            places.append(place)
        else:
            return sum(len(place[0]) + _FIELDS.get(place[0][:1], 0) for place in places)
    return 0


_MOST_STARTS = 8
"""So the time for a line grows with its length."""
_GAP = 90
"""Pieces further apart belong to different sentences."""
_SHORT = 5
"""A piece with so few letters begins at the start of a word: `ring` is not in `string`."""


@cache
def _pattern(piece: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of the alternatives of a piece; `$` ends a word."""
    parts = []
    for part in piece:
        text = re.escape(part.rstrip("$")) + (r"(?![a-z])" if part.endswith("$") else "")
        is_short = part[:1].isalpha() and len(part.rstrip("$")) <= _SHORT
        parts.append(rf"(?<![a-z]){text}" if is_short else text)
    return re.compile("|".join(parts))


_FIELDS = {"#": 20, "!": 8, "@": 8}
"""A field of a line counts for so many letters more."""
FIRST, KIND, SPEAKER, MERE, LAST, UNKNOWN = -1, 3, 4, 5, 6, 7
"""Tiers of signs. From KIND on a sign names only the kind of the failure, or its speaker; MERE is a
speaker alone, LAST are words for the kind of a failure that nothing else names."""
_LOOSE, _LEAST = 2, 7
"""The tier of loose words, and the fewest letters of an exact sign."""
_CHOICE = re.compile(r"\{([^{}]*)\}")


def _alternatives(text: str) -> list[str]:
    """Return a text for each combination of its choices, `a {b,c}` as `a b` and `a c`."""
    choice = _CHOICE.search(text)
    if choice is None:
        return [text]
    before, after = text[: choice.start()], text[choice.end() :]
    return [
        f"{before}{part}{rest}" for part in choice[1].split(",") for rest in _alternatives(after)
    ]


def _groups(text: str) -> tuple[tuple[tuple[str, ...], ...], ...]:
    groups = [[piece for piece in part.split("*") if piece] for part in text.split(" & ")]
    return tuple(tuple(tuple(_alternatives(piece)) for piece in group) for group in groups)


def _sign(cause: Cause, text: str) -> _Sign:
    bare = text.lstrip("+?~^")
    groups = _groups(bare)
    marks = text[: len(text) - len(bare)]
    first = groups[0][0][0]
    if "+" in marks:
        tier = FIRST
    elif bare == first and first[0] == "@" and cause.name not in GENERIC:
        tier = MERE
    elif cause.name in GENERIC:
        tier = LAST if "?" in marks else KIND
    elif "?" in marks or cause.name in OUTER:
        tier = SPEAKER
    elif "~" in marks:
        tier = _LOOSE
    else:
        tier = int(cause.name in PARENTS)
    return _Sign(cause, tier, "^" in marks, groups)


@lru_cache(maxsize=16)
def _signs(causes: tuple[Cause, ...]) -> list[_Sign]:
    return [_sign(cause, text) for cause in causes for text in cause.signs if text]


@cache
def _all_signs() -> list[_Sign]:
    return _signs(CAUSES)


def _shape(text: str) -> bytes:
    return text.encode("utf-8", "replace").translate(None, _DIGITS)


def _grams(text: str) -> set[bytes]:
    shape = _shape(text.rstrip("$"))
    return {shape[start : start + _GRAM] for start in range(len(shape) - _GRAM + 1)}


@lru_cache(maxsize=1)
def _index() -> tuple[dict[bytes, list[int]], list[int]]:
    """Return the signs by the rarest four letters of each, and all shorter signs.

    So the time for a line grows with its length, not with the number of signs. Of a sign the piece
    with the longest shortest alternative counts, with four letters of each alternative.
    """
    often = Counter(
        gram
        for sign in _all_signs()
        for piece in sign.pieces
        for part in piece
        for gram in _grams(part)
    )
    index: dict[bytes, list[int]] = {}
    short: list[int] = []
    for number, sign in enumerate(_all_signs()):
        piece = max(
            sign.pieces, key=lambda parts: min(len(_shape(part.rstrip("$"))) for part in parts)
        )
        keys = {
            min(_grams(part), key=lambda gram: (often[gram], gram), default=b"") for part in piece
        }
        if b"" in keys:
            short.append(number)
            continue
        for key in keys:
            index.setdefault(key, []).append(number)
    return index, short


@lru_cache(maxsize=4096)
def _likely(shape: bytes) -> tuple[_Sign, ...]:
    """Return the signs that a line of a shape may have."""
    index, short = _index()
    likely = {
        number
        for start in range(len(shape) - _GRAM + 1)
        for number in index.get(shape[start : start + _GRAM], ())
    }
    return tuple(_all_signs()[number] for number in sorted(likely.union(short)))


@lru_cache(maxsize=4096)
def meaning(text: str, episode: tuple[str, ...]) -> tuple[str, int]:
    """Return the name of the cause of a line, or "", and the tier of its sign.

    The line itself counts first, then the others of its episode, last its generic cause.
    """
    announces = text.rstrip().endswith(":")
    texts = (*episode, text) if announces else (text, *episode)
    signs = [sign for line in texts if (sign := _sign_in(line))]
    exact = next((sign for sign in signs if sign.tier < KIND), None)
    sign = exact or next(iter(signs), None)
    return (sign.cause.name, sign.tier) if sign else ("", UNKNOWN)


_WITHOUT_MESSAGE = re.compile(r"(.*) \((\w*(?:Error|Exception|StopIteration))\)$")
"""An exception without a message, with its source, as reading.py quotes it."""


def _sign_in(text: str) -> _Sign | None:
    """Return the most exact sign of a line: of the first tier, and of most letters."""
    text = _WITHOUT_MESSAGE.sub(r"\2: \1", text)
    bare = without_prefixes(text).strip()
    start = bare.lower()
    low = with_fields(text, bare)
    message = _without_type(low, bare)
    weights = [
        (_tier_in(sign, weight, low), -weight, sign.cause.name, sign)
        for sign in _likely(_shape(low))
        if (weight := sign.weight_in(_compared(sign, low, start, message)))
    ]
    return min(weights, key=lambda weighed: weighed[:3])[3] if weights else None


def _without_type(low: str, bare: str) -> str:
    """Return a line without the module and type of its exception."""
    raised = EXCEPTION.match(bare)
    return low.replace(raised[0].strip().lower(), "", 1) if raised else low


def _compared(sign: _Sign, low: str, start: str, message: str) -> str:
    """Return the part of a line to compare with a sign: for loose words the message only."""
    if sign.at_start:
        return start
    return message if sign.tier == _LOOSE else low


def _tier_in(sign: _Sign, weight: int, text: str) -> int:
    """Return the tier of a sign in a line. A few letters are weak evidence, and loose words count
    for less than a known speaker; an address of the web is no speaker."""
    if sign.tier == _LOOSE and " @" in text and " @http" not in text:
        return MERE
    return max(sign.tier, _LOOSE) if weight < _LEAST else sign.tier


def cause_in(text: str, causes: tuple[Cause, ...]) -> Cause | None:
    """Return the first of `causes` with a sign in a text known to be a reason."""
    low = with_fields(text, without_prefixes(text))
    return next((sign.cause for sign in _signs(causes) if sign.weight_in(low)), None)
