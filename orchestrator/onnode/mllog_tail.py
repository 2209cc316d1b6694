"""What a log says about its run while it grows: start, stop, the last evaluation, the last throughput. Cheap at any size.

For first impressions and for the loop; what counts for a score is read by the referee (orchestrator/mllog/reader.py), byte by
byte. Nothing in here raises on any bytes: torn, damaged and foreign lines are passed over.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .records import PathLike, open_regular

TOKEN = b":::MLLOG "
EVALUATIONS = ("eval_accuracy", "eval_error")
TAIL_BYTES = 64 * 1024
"""Read at the end of a log at the first look; also what is kept of a line that has no end."""
WHOLE_BYTES = 1024 * 1024
"""Logs up to this size are read as a whole for their times; of larger ones the first and the last TAIL_BYTES."""
SEARCH_BYTES = 256 << 20
"""How far from its end a log is searched for its run_stop."""
_BLOCK = 1024 * 1024
_DECODER = json.JSONDecoder()
_MOST = 1 << 53


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: its value, the samples seen by then (0 where the log does not say), Unix milliseconds."""

    value: float
    samples: int
    time_ms: int


def lines(chunk: bytes) -> Iterator[dict[str, Any]]:
    """Yield the MLLOG records in `chunk` that have a key and metadata, in order."""
    chunk = chunk.replace(b"\r", b"\n")
    at = chunk.find(TOKEN)
    while at >= 0:
        end = chunk.find(b"\n", at)
        line = chunk[at : end if end >= 0 else len(chunk)]
        try:
            # What another process wrote behind it on the same line does not take the record away.
            record, _ = _DECODER.raw_decode(line[line.rfind(TOKEN) + len(TOKEN) :].decode("latin-1").lstrip())
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict) and isinstance(record.get("key"), str) and isinstance(record.get("metadata"), dict):
            yield record
        at = chunk.find(TOKEN, end) if end >= 0 else -1


class Tail:
    """What a log has said so far. Fed with its bytes as they come; or, made with a path, it looks at what was added.

    `start_ms` is the last run_start before the first run_stop, `stop_ms` the first run_stop (0: none yet), as with the referee;
    `status` is the last run_stop's. `rate` is the last throughput that was logged, in samples per second.
    """

    def __init__(self, path: PathLike = "") -> None:
        self.path = path
        self.start_ms = self.stop_ms = 0
        self.stopped = False
        self.status = ""
        self.evaluation: Evaluation | None = None
        self.rate: float | None = None
        self._offset = -1
        self._rest = b""

    @property
    def minutes(self) -> float | None:
        """Time to train; None until the run has ended with success."""
        known = self.start_ms and self.stop_ms and self.status == "success"
        return (self.stop_ms - self.start_ms) / 60_000 if known else None

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the log; a line counts when its end is there."""
        whole, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._rest = (self._rest + chunk)[-TAIL_BYTES:]
            return
        for record in lines(self._rest + whole):
            self._take(record)
        self._rest = rest[-TAIL_BYTES:]

    def look(self) -> Evaluation | None:
        """Read what was added to the file, at the first look or after a jump its last TAIL_BYTES; return the last evaluation."""
        try:
            with open_regular(self.path) as file:
                size = os.fstat(file.fileno()).st_size
                if not 0 <= self._offset <= size or size - self._offset > TAIL_BYTES:
                    self._offset, self._rest = max(0, size - TAIL_BYTES), b""
                file.seek(self._offset)
                chunk = file.read(TAIL_BYTES)
        except OSError:
            return self.evaluation
        self._offset += len(chunk)
        self.feed(chunk)
        return self.evaluation

    def _take(self, record: dict[str, Any]) -> None:
        key, value, time_ms = record["key"], record.get("value"), _whole(record.get("time_ms"))
        if key == "run_start" and not self.stopped:
            self.start_ms = time_ms
        elif key == "run_stop":
            status = record["metadata"].get("status")
            self.stopped, self.stop_ms = True, self.stop_ms or time_ms
            self.status = status[:40] if isinstance(status, str) else ""
        elif key in EVALUATIONS and (number := _finite(value)) is not None:
            self.evaluation = Evaluation(number, _whole(record["metadata"].get("samples_count")), time_ms)
        elif key == "tracked_stats" and isinstance(value, dict):
            rate = _finite(value.get("throughput"))
            self.rate = self.rate if rate is None else rate


def tail_of(chunk: bytes) -> Tail:
    """Return what `chunk` says, its last line included."""
    tail = Tail()
    tail.feed(chunk + b"\n")
    return tail


def read_end(path: PathLike, limit: int = TAIL_BYTES) -> bytes:
    """Return the last `limit` bytes of a file; b"" when it cannot be read."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read(limit)
    except OSError:
        return b""


def read_ends(path: PathLike) -> bytes:
    """Return a small log, or the two ends of a large one; b"" when it cannot be read."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= WHOLE_BYTES:
                return file.read(size)
            head = file.read(TAIL_BYTES)
            file.seek(size - TAIL_BYTES)
            return head + b"\n" + file.read(TAIL_BYTES)
    except OSError:
        return b""


def minutes(path: PathLike) -> float | None:
    """Return the time to train of a successful run in minutes, None when that cannot be seen at the two ends of its log."""
    return tail_of(read_ends(path)).minutes


def last_status(path: PathLike, limit: int = SEARCH_BYTES) -> str:
    """Return the status of the last run_stop in a log, "" without one in its last `limit` bytes."""
    try:
        with open_regular(path) as file:
            end = os.fstat(file.fileno()).st_size
            lowest, begun = max(0, end - limit), b""
            while end > lowest:
                begin = max(lowest, end - _BLOCK)
                file.seek(begin)
                chunk = file.read(end - begin) + begun
                if b"run_stop" in chunk and (tail := tail_of(chunk)).stopped:
                    return tail.status
                # The line that is cut at the beginning of this block ends the next one.
                begun, end = chunk[: chunk.find(b"\n") + 1 or len(chunk)][:TAIL_BYTES], begin
    except OSError:
        pass
    return ""


def _whole(value: Any) -> int:
    """A whole number that can be counted with; 0 for anything else."""
    return value if type(value) is int and 0 <= value < _MOST else 0


def _finite(value: Any) -> float | None:
    if type(value) not in (int, float) or abs(value) >= _MOST:
        return None
    return float(value) if math.isfinite(value) else None
