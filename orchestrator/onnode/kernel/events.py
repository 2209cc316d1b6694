"""The event file of a job: nodes' messages, and the loop's observations and decisions, in order.

Only the loop appends. An event is a line of five cells: Unix milliseconds, source (`node`, `loop`
or `slurm`), word, node or "", detail, whose fields UNIT separates (docs/events.md). Messages of
nodes are data: cut to size, without control characters, never evaluated.
"""

from __future__ import annotations

import errno
import json
import re
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from .files import PathLike
from .world import THIS, World

UNIT = "\x1f"
MAX_WORD_BYTES = 4096
"""A longer line is garbage. (srun keeps lines whole up to about a kilobyte.)"""
_MOST_KEPT = 16 << 20
_JOINTS = str.maketrans("+-", "aa")
_CODES = (
    *range(32),
    *range(127, 160),
    *(0x061C, 0x200E, 0x200F),
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
)
UNSHOWN = dict.fromkeys(_CODES, " ")
"""For `str.translate`: replaces control characters, line ends and changes of text direction, as
orchestrator/words.py does."""
_UNSHOWN_BUT_UNIT = {code: " " for code in _CODES if chr(code) != UNIT}


class Event(NamedTuple):
    """A line of the file, its cells in order. `ms`: Unix milliseconds; `node`: "" for the job."""

    ms: int
    source: str
    word: str
    node: str
    detail: str

    @property
    def parts(self) -> list[str]:
        """Return the detail's fields; [""] for an empty detail."""
        return self.detail.split(UNIT)

    def part(self, index: int) -> str:
        """ "" if missing."""
        return next(iter(self.parts[index:]), "")

    def data(self) -> dict[str, Any]:
        """Parse the detail; {} if it is no JSON object."""
        try:
            value = json.loads(self.detail)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def names(self, member: str) -> list[str]:
        """Return the texts in a list of the object."""
        names = self.data().get(member)
        return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


class Pulse(NamedTuple):
    """A node's progress in a run, in milliseconds; `interval_ms`: longest between evaluations of
    the same key, or 0."""

    quiet_ms: int
    began: int
    """1 after run_start."""
    interval_ms: int
    stopped: int
    """1 after run_stop."""


class NetworkUse(NamedTuple):
    """Numbers of processes with RDMA, and with only another network; `line`: an example."""

    rdma: int
    other: int
    line: str


def clean(text: str, limit: int) -> str:
    """Return at most `limit` characters, without hidden characters except UNIT."""
    return text.translate(_UNSHOWN_BUT_UNIT)[:limit]


def number(text: str, digits: int = 15) -> int | None:
    """Return a whole number, or None."""
    bare = text[1:] if text[:1] == "-" else text
    return int(text) if bare.isascii() and bare.isdigit() and len(bare) <= digits else None


def parse_word(line: bytes, known: set[str] | frozenset[str]) -> tuple[str, str, str] | None:
    """Return (word, node, detail) of a line; None for other lines and unknown nodes."""
    if len(line) > MAX_WORD_BYTES:
        return None
    cells = line.decode("utf-8", "replace").split("\t", 2)
    if (
        len(cells) != 3
        or cells[1] not in known
        or not cells[0].isascii()
        or not cells[0].translate(_JOINTS).isalpha()
    ):
        return None
    return cells[0][:20], cells[1], clean(cells[2], MAX_WORD_BYTES)


_NUMBER = f"{UNIT}([0-9]{{1,15}})"


@cache
def _pong() -> re.Pattern[str]:  # `status` reads events and no pongs
    return re.compile(
        f"pong\t([^\t]{{1,255}})\t[^{UNIT}\t]{{0,20}}(?:{UNIT}([0-9.]{{1,40}}){4 * _NUMBER})?"
    )


def parse_pong(line: bytes) -> tuple[str, str, Pulse | None] | None:
    """Return (node, attempt, pulse) of a reply to a ping, the most frequent line; None for others.
    Between runs: attempt "", no pulse."""
    pong = _pong().fullmatch(line.decode("utf-8", "replace")) if line[:5] == b"pong\t" else None
    if pong is None:
        return None
    node, attempt, quiet, began, interval, stopped = pong.groups()
    if attempt is None:
        return node, "", None
    return node, attempt, Pulse(int(quiet), int(began), int(interval), int(stopped))


class EventLog:
    """Appends to an event file. A full disk stops nothing: the text is written later."""

    def __init__(self, path: PathLike, world: World = THIS) -> None:
        self._wall_ms, self._files, self._path = world.wall_ms, world.files, path
        self._file = self._files.appender(path)
        # A killed job's torn line must not swallow the next.
        self._rest = bytearray(b"\n" if self._file.size() else b"")

    def append(
        self, source: str, word: str, node: str = "", detail: str | dict[str, Any] = ""
    ) -> Event:
        """Write and return an event; a dict becomes JSON."""
        text = (
            json.dumps(detail, separators=(",", ":"))
            if isinstance(detail, dict)
            else clean(detail, MAX_WORD_BYTES)
        )
        event = Event(self._wall_ms(), source, word, node, text)
        if len(self._rest) < _MOST_KEPT:
            self._rest += f"{event.ms}\t{source}\t{word}\t{node}\t{text}\n".encode(
                "utf-8", "replace"
            )
        try:
            del self._rest[: self._file.write(self._rest)]
        except OSError as error:
            if error.errno == errno.ESTALE:  # lasts until it is opened anew
                self._reopen()
        return event

    def _reopen(self) -> None:
        with suppress(OSError):  # still away: the next event tries again
            file, self._file = self._file, self._files.appender(self._path)
            self._rest[:0] = b"\n"
            file.close()

    def close(self) -> None:
        self._file.close()
