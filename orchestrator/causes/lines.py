"""The meaning of one line of a log: the cause with a matching sign, and its grade. The only reader
of such lines.

Exact signs come first, then the loose ones (cause.py), in the order of the tables. Then follow
echoes of another process's end, and exceptions in general.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from orchestrator.causes.cause import ECHO, END, MENTION, Cause
from orchestrator.causes.symptoms import COUNTS, ECHOES, PASSED_OVER
from orchestrator.causes.tables import CAUSES

MOST_LINE = 4096
_NEAR_BEGIN = 160
_GRAM = 4
_DIGITS = b"0123456789"
_LABEL = re.compile(r"^(?:\s*\[?(?:rank ?)?\d+\]?:\s?)*\s*")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Failure|Exit)(?::\s|:?$)")
_WORDS = re.compile(
    r"what\(\):|Fatal Python error|HSA_STATUS_ERROR|(?:HIP|CUDA|hip|NCCL|RCCL) error|(?i:^(?:error|fatal|failed)[:\s])"
)
_FAILS = re.compile(r"error|fatal|fail|exception|critical|assert|abort|panic|what\(\)")
_PASSED = re.compile(PASSED_OVER)
_LIKE_AN_EXCEPTION = re.compile(rb"error|exception|interrupt|failure|exit|fatal|failed|what\(\)")
_STEP = re.compile(
    rb"\biteration\s+/|\bit/s\b|s/it\b|\bstep[ :=_]+/?[\s,|]|\blm loss\b|\bthroughput\b|tokens/s"
)

_Sign = tuple[Cause, bool, bool, list[str], list[bytes]]


def _sign(cause: Cause, text: str) -> _Sign:
    """Return (cause, is it loose, is it at the start of a line, its pieces between `*`, the same
    without digits)."""
    pieces = [piece for piece in text.lstrip("~^").split("*") if piece]
    return (
        cause,
        text.startswith("~"),
        text.lstrip("~").startswith("^"),
        pieces,
        [piece.encode().translate(None, _DIGITS) for piece in pieces],
    )


_ECHO = Cause("", ECHO, "", "", "", " | ".join(ECHOES))


@lru_cache(maxsize=16)
def _signs(causes: tuple[Cause, ...]) -> list[_Sign]:
    """Return the signs of `causes` in their order of precedence."""
    return sorted(
        (_sign(cause, text) for cause in causes for text in cause.signs if text),
        key=lambda sign: sign[1],
    )


_SIGNS = [*_signs(CAUSES), *_signs((_ECHO,))]


def _has(text: str, begins: bool, pieces: list[str]) -> bool:
    """Return whether `text` contains the pieces of a sign, in order."""
    at = 0
    for piece in pieces:
        found = text.find(piece, at)
        if found < 0 or (begins and at == 0 and found):
            return False
        at = found + len(piece)
    return True


def shape_of(raw: bytes) -> bytes:
    """Return a line without its digits: lines are many, their shapes are few."""
    return raw[:MOST_LINE].lower().translate(None, _DIGITS)


@lru_cache(maxsize=1)
def _index() -> tuple[dict[bytes, list[int]], list[int]]:
    """Return the possible signs of a line by its letter groups (the rarest group of each sign), and
    the signs shorter than a group.

    So a line costs its length, not the number of signs: there are more than a thousand.
    """
    grams = [
        {key[at : at + _GRAM] for key in sign[4] for at in range(len(key) - _GRAM + 1)}
        for sign in _SIGNS
    ]
    often = Counter(gram for found in grams for gram in found)
    index: dict[bytes, list[int]] = {}
    for at, found in enumerate(grams):
        if found:
            index.setdefault(min(found, key=lambda gram: (often[gram], gram)), []).append(at)
    return index, [at for at, found in enumerate(grams) if not found]


@lru_cache(maxsize=4096)
def may_say(shape: bytes) -> tuple[bool, tuple[int, ...], bool, bool]:
    """Return for a line of that shape: can it name a failure, its possible signs, is it about a
    training step, is it a stack frame."""
    index, short = _index()
    likely = {
        at
        for begin in range(len(shape) - _GRAM + 1)
        for at in index.get(shape[begin : begin + _GRAM], ())
    }
    signs = tuple(
        at for at in sorted(likely.union(short)) if all(key in shape for key in _SIGNS[at][4])
    )
    return (
        bool(signs or _LIKE_AN_EXCEPTION.search(shape)),
        signs,
        bool(_STEP.search(shape)),
        b'file "' in shape,
    )


def without_label(text: str) -> str:
    """Return a line without the labels of torchrun and srun: `[rank3]:`, ` 3: `."""
    return _LABEL.sub("", text).strip()


def judge(text: str, signs: Sequence[int] | None = None) -> tuple[str, int] | None:
    """Return (name of the cause, grade) of a line, "" for an unknown exception and for an echo;
    None for other lines.

    `signs`: its possible signs (`may_say`), if known.
    """
    text = without_label(text)
    low = text.lower()
    raised = _EXCEPTION.match(text)
    if (
        not raised
        and _PASSED.search(low, 0, _NEAR_BEGIN)
        and not any(word in low for word in COUNTS)
    ):
        return None
    for cause, loose, begins, pieces, _ in (
        _SIGNS if signs is None else (_SIGNS[at] for at in signs)
    ):
        if _has(low, begins, pieces):
            return cause.name, MENTION if loose and cause.grade < MENTION and not _FAILS.search(
                low
            ) else cause.grade
    return ("", END) if raised or _WORDS.search(text) else None


def cause_in(text: str, causes: tuple[Cause, ...] = CAUSES) -> Cause | None:
    """Return the first cause with a sign in a text about a failure or a wait."""
    low = text.lower()
    return next(
        (cause for cause, _, begins, pieces, _ in _signs(causes) if _has(low, begins, pieces)), None
    )
