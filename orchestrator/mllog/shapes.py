"""Skip records that no rule reads, unparsed and without a mistake.

Most records of a dense log are training statistics that differ in their numbers alone. A `Shapes`
learns the exact text of such records, once parsed, with JSON's grammar of numbers in their place.
One regular expression then blanks every whole line of that shape. Other lines are parsed. Line ends
stay, so line numbers stay.
"""

from __future__ import annotations

import json
import re

from orchestrator.mllog.blocks import TOKEN
from orchestrator.mllog.repeats import Repeats
from orchestrator.onnode.kernel.mllog_keys import EVALUATIONS, STOP

SKIPPED_KEYS = frozenset({"tracked_stats", "train_loss"})
"""Keys that no rule of any round names (a test proves it)."""

TELLING = (
    *(key.encode() for key in (*EVALUATIONS, STOP)),
    b"global_batch_size",
    b"submission_benchmark",
    b"throughput",
)
"""A record with any of these in its text is never skipped: the referee's RCP test searches for the
first five as plain text, and the report needs the throughput."""

MOST_SHAPES = 24
SAMPLE = 48

# Bounded digits: an integer of thousands of digits must stay a parse error of Python's json.
_NUMBER = rb"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,40})?(?:[eE][-+]?\d{1,2})?"
_INTEGER = rb"-?(?:0|[1-9]\d{0,17})"
# A line may start with a launcher's rank label, padded to a column: ` 8: `.
_LINE_START = rb"\n[ \d]{0,8}:? ?"
_LINE_END = rb"(?=\r?\n)"
_PART = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*')


class Shapes:
    """Learned shapes; one instance for all logs of a set."""

    def __init__(self) -> None:
        self.repeats = Repeats()
        self._shapes: list[bytes] = []
        self._lines: re.Pattern[bytes] | None = None
        self._records: re.Pattern[bytes] | None = None

    def blank(self, block: bytes) -> bytes:
        """Return `block` with lines of known shapes emptied, after learning new shapes if that
        pays."""
        rest = self._apply(block)
        for _ in range(4):
            if rest.count(TOKEN) < SAMPLE or not self._learn(_sample(rest)):
                return rest
            rest = self._apply(rest)
        return rest

    def unknown(self, texts: list[bytes]) -> list[int]:
        """Return the indices of texts (behind the token) without a known shape."""
        if len(texts) < SAMPLE:
            return list(range(len(texts)))
        if self._records is None:
            self._learn(texts[:SAMPLE])
        known = self._records
        return (
            [index for index, text in enumerate(texts) if not known.fullmatch(text)]
            if known
            else list(range(len(texts)))
        )

    def _apply(self, block: bytes) -> bytes:
        return self._lines.sub(b"\n", block) if self._lines else block

    def _learn(self, texts: list[bytes]) -> bool:
        known = len(self._shapes)
        for text in texts:
            if len(self._shapes) >= MOST_SHAPES:
                break
            shape = _shape(text.removesuffix(b"\r"))
            if shape and shape not in self._shapes:
                self._shapes.append(shape)
        if len(self._shapes) == known:
            return False
        any_shape = b"(?:" + b"|".join(self._shapes) + b")"
        self._lines = re.compile(_LINE_START + re.escape(TOKEN) + any_shape + _LINE_END)
        self._records = re.compile(any_shape)
        return True


def _sample(block: bytes) -> list[bytes]:
    """Return texts from all over the block: statistics start late in a log, after the settings."""
    texts, stride = [], max(1, len(block) // SAMPLE)
    start = block.find(TOKEN)
    while start >= 0:
        end = block.find(b"\n", start)
        if end > 0:
            texts.append(block[start + len(TOKEN) : end])
        start = block.find(TOKEN, start + stride)
    return texts


def _shape(text: bytes) -> bytes | None:
    """Return the pattern of such records with any numbers; None if not skippable."""
    # A carriage return is white space to JSON, and ends the line for the referee.
    if b"\r" in text or TOKEN in text or any(word in text for word in TELLING):
        return None
    try:
        record = json.loads(text.decode("latin-1"))
    except (ValueError, RecursionError):
        return None
    if not _skippable(record):
        return None
    pattern: list[bytes] = []
    position = 0
    for match in _PART.finditer(text):
        token = match[0]
        if not token.startswith(b'"'):
            pattern += [
                re.escape(text[position : match.start()]),
                _INTEGER if token.isdigit() else _NUMBER,
            ]
            position = match.end()
    return b"".join([*pattern, re.escape(text[position:])])


def _skippable(record: object) -> bool:
    return (
        isinstance(record, dict)
        and record.get("key") in SKIPPED_KEYS
        and type(record.get("time_ms")) is int
        and "value" in record
        and "metadata" in record
    )
