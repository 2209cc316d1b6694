"""MLLOG records in a part of a log, and the status of its run. The score is the referee's
(orchestrator/mllog/reader.py).

Never raises: torn, damaged and foreign lines are skipped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from .files import HERE, Files, PathLike, raise_if_away
from .mllog_keys import START, STOP

TOKEN = b":::MLLOG "
MAX_LINE = 1 << 20
"""A longer line counts as damaged."""
SEARCH_BYTES = 256 << 20
"""run_stop counts only this close to the end of a log."""
_BLOCK = 1024 * 1024
_DECODER = json.JSONDecoder()
_START, _STOP = START.encode(), STOP.encode()


def lines(chunk: bytes) -> Iterator[dict[str, Any]]:
    """Yield the records that have a key and metadata, in order."""
    chunk = chunk.replace(b"\r", b"\n")
    at = chunk.find(TOKEN)
    while at >= 0:
        end = chunk.find(b"\n", at)
        line = chunk[at : end if end >= 0 else len(chunk)]
        try:
            # Another process may have written after it on the same line.
            record, _ = _DECODER.raw_decode(
                line[line.rfind(TOKEN) + len(TOKEN) :].decode("latin-1").lstrip()
            )
        except (ValueError, RecursionError):
            record = None
        if (
            isinstance(record, dict)
            and isinstance(record.get("key"), str)
            and isinstance(record.get("metadata"), dict)
        ):
            yield record
        at = chunk.find(TOKEN, end) if end >= 0 else -1


def has_start(chunk: bytes) -> bool:
    """Return whether a record says that the run started."""
    return _START in chunk and any(record["key"] == START for record in lines(chunk))


def status_of(record: dict[str, Any]) -> str:
    status = record["metadata"].get("status")
    return status[:40] if isinstance(status, str) else ""


def _last_stop(chunk: bytes) -> str | None:
    """None without a run_stop."""
    if _STOP not in chunk:
        return None
    stops = [record for record in lines(chunk) if record["key"] == STOP]
    return status_of(stops[-1]) if stops else None


class WholeLines:
    """The whole lines of a log that arrives in pieces.

    A line longer than MAX_LINE loses its text before the piece in which it ends: a record in that
    piece counts, a longer record is damage.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        """The unfinished line, or its start."""

    def feed(self, piece: bytes) -> bytes:
        """Return the lines that end in `piece`."""
        cut = piece.rfind(b"\n") + 1
        chunk = b""
        if cut:
            chunk = bytes((self._rest if len(self._rest) <= MAX_LINE else b"") + piece[:cut])
            self._rest.clear()
        if len(self._rest) <= MAX_LINE:
            self._rest += piece[cut:]
        return chunk


class StopFinder:
    """Finds the last run_stop's status in a log that arrives in pieces."""

    def __init__(self) -> None:
        self.status = ""
        self._lines = WholeLines()

    def feed(self, piece: bytes) -> None:
        chunk = self._lines.feed(piece)
        if chunk:
            self._take(chunk)

    def _take(self, chunk: bytes) -> None:
        status = _last_stop(chunk)
        self.status = self.status if status is None else status

    def finish(self) -> None:
        """Parse the unfinished line."""
        self.feed(b"\n")


def last_status(
    path: PathLike, limit: int = SEARCH_BYTES, files: Files = HERE, *, strict: bool = False
) -> str:
    """Return the last run_stop's status, "" if missing in its last `limit` bytes. `strict`: as in
    records.read."""
    try:
        with files.open(path) as file:
            end = os.fstat(file.fileno()).st_size
            lowest, begun = max(0, end - limit), b""
            while end > lowest:
                begin = max(lowest, end - _BLOCK)
                file.seek(begin)
                chunk = file.read(end - begin) + begun
                status = _last_stop(chunk)
                if status is not None:
                    return status
                # The line cut at the start of this block ends the next block.
                begun, end = chunk[: chunk.find(b"\n") + 1 or len(chunk)][:MAX_LINE], begin
    except OSError as error:
        if strict:
            raise_if_away(path, error)
    return ""


def has_record(path: PathLike, files: Files = HERE) -> bool:
    """Search its first megabyte."""
    try:
        with files.open(path) as file:
            return any(True for _ in lines(file.read(_BLOCK)))
    except OSError:
        return False
