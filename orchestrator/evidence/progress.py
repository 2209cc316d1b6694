"""The progress and likely score of a set, from its growing logs, at any size.

The referee reads the logs that count for a score byte by byte (orchestrator/mllog/reader.py).
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from orchestrator.mllog.numbers import finite
from orchestrator.mllog.olympic import dropped_per_side, minutes_between, olympic_mean
from orchestrator.onnode.kernel.files import PathLike
from orchestrator.onnode.kernel.mllog_keys import EVALUATIONS, STOP, StartStop
from orchestrator.onnode.kernel.mllog_tail import MAX_LINE, WholeLines, lines, status_of
from orchestrator.onnode.kernel.walk import ANY, FilesInside

TAIL_BYTES = 64 * 1024
"""Read from the end of a log at first."""
WHOLE_BYTES = 1024 * 1024
"""Logs up to this size are read completely for their times; of larger ones the two ends."""
MOST_POINTS = 200
"""Evaluations and rates kept for curves."""
_MOST = 1 << 53


class Evaluation(NamedTuple):
    """One evaluation: its value, the samples so far (0 if not logged), Unix milliseconds."""

    value: float
    samples: int
    time_ms: int


class Tail:
    """The content of a log so far, fed with its bytes, or made with a path, whose new bytes it
    reads.

    `start_ms` and `stop_ms` are the run's (mllog_keys.StartStop), 0 if unknown so far; `status` is
    the last run_stop's. `rate` is the last logged throughput, in samples per second; `evaluations`
    and `rates` are the last MOST_POINTS.
    `first_bytes`: bytes of the file's end in the first read.
    """

    def __init__(
        self, path: PathLike = "", files: FilesInside = ANY, first_bytes: int = TAIL_BYTES
    ) -> None:
        self.path, self._files = path, files
        self.evaluations: deque[float] = deque(maxlen=MOST_POINTS)
        self.rates: deque[float] = deque(maxlen=MOST_POINTS)
        self._first_bytes = first_bytes
        self._times = StartStop()
        self.status = ""
        self.evaluation: Evaluation | None = None
        self.rate: float | None = None
        self._offset = -1
        self._lines = WholeLines()

    @property
    def start_ms(self) -> int:
        return int(self._times.start or 0)

    @property
    def stop_ms(self) -> int:
        return int(self._times.stop or 0)

    @property
    def minutes(self) -> float | None:
        """Return the time to train; None unless the run ended with success after its start."""
        known = 0 < self.start_ms <= self.stop_ms and self.status == "success"
        return minutes_between(self.start_ms, self.stop_ms) if known else None

    @property
    def samples_per_second(self) -> float | None:
        """Return the samples over the time to train, evaluations included; None if unknown."""
        if not self.minutes or self.evaluation is None or not self.evaluation.samples:
            return None
        return self.evaluation.samples / (60 * self.minutes)

    def feed(self, chunk: bytes) -> None:
        """Parse the next bytes of the log; a line counts once it ends."""
        for record in lines(self._lines.feed(chunk)):
            self._take(record)

    def look(self) -> Evaluation | None:
        """Read the file's new bytes, at first or after a jump its end; return the last
        evaluation."""
        most = MAX_LINE if self._offset >= 0 else self._first_bytes
        try:
            with self._files.open(self.path) as file:
                size = os.fstat(file.fileno()).st_size
                if not 0 <= self._offset <= size or size - self._offset > most:
                    self._offset, self._lines = max(0, size - most), WholeLines()
                file.seek(self._offset)
                chunk = file.read(most)
        except OSError:
            return self.evaluation
        self._offset += len(chunk)
        self.feed(chunk)
        return self.evaluation

    def _take(self, record: dict[str, Any]) -> None:
        key, value, time_ms = record["key"], record.get("value"), _whole(record.get("time_ms"))
        if time_ms:
            self._times.take(key, time_ms)
        if key == STOP:
            self.status = status_of(record)
        elif key in EVALUATIONS and (number := finite(value)) is not None:
            self.evaluation = Evaluation(
                number, _whole(record["metadata"].get("samples_count")), time_ms
            )
            self.evaluations.append(number)
        elif key == "tracked_stats" and isinstance(value, dict):
            rate = finite(value.get("throughput"))
            self.rate = self.rate if rate is None else rate
            self.rates.extend([] if rate is None else [rate])


def tail_of(chunk: bytes) -> Tail:
    """Return the content of `chunk`, its last line included."""
    tail = Tail()
    tail.feed(chunk + b"\n")
    return tail


def age_s(path: PathLike) -> float:
    """Return the seconds since a file's last change; infinite without the file."""
    try:
        return max(0.0, time.time() - os.stat(path).st_mtime)
    except OSError:
        return math.inf


def read_end(path: PathLike, files: FilesInside, limit: int = TAIL_BYTES) -> bytes:
    """Return the last `limit` bytes of a file; b"" if unreadable."""
    try:
        with files.open(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read(limit)
    except OSError:
        return b""


def stand_in(path: PathLike, files: FilesInside) -> bool | None:
    """Return whether a log is of a stand-in; None until it names its benchmark."""
    try:
        with files.open(path) as file:
            head = file.read(TAIL_BYTES)
    except OSError:
        return None
    named = (record for record in lines(head) if record["key"] == "submission_benchmark")
    return next((record["metadata"].get("stand_in") is True for record in named), None)


def read_ends(path: PathLike, files: FilesInside, edge: int = TAIL_BYTES) -> bytes:
    """Return a small log, or `edge` bytes of each end; b"" if unreadable."""
    try:
        with files.open(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= WHOLE_BYTES:
                return file.read(size)
            head = file.read(edge)
            file.seek(max(edge, size - edge))
            return head + b"\n" + file.read(edge)
    except OSError:
        return b""


def minutes(path: PathLike, files: FilesInside) -> float | None:
    """Return a successful run's time to train in minutes, None if the ends of its log do not show
    it."""
    return tail_of(read_ends(path, files)).minutes


def _whole(value: Any) -> int:
    """Return a whole number within limits, else 0."""
    return value if type(value) is int and 0 <= value < _MOST else 0


def score_so_far(benchmark: str, times: list[float], misses: int) -> float | None:
    """Return the score of the runs so far, in minutes as `times` are; None if it drops them all."""
    return olympic_mean(times, misses, dropped_per_side(benchmark))


def time_left(usual_s: float, going_s: Sequence[float], waiting: int) -> float:
    """Return the seconds until the last run ends, if each takes `usual_s`.

    `going_s`: seconds so far of the runs side by side; `waiting` runs follow as places get free.
    """
    free = [max(0.0, usual_s - spent) for spent in going_s] or [0.0]
    heapify(free)
    for _ in range(waiting):
        heapreplace(free, free[0] + usual_s)
    return max(free)


T = TypeVar("T")


class Logs:
    """Reads logs for a picture, each time anew. `brief`: for a table of many sets."""

    def __init__(self, *, brief: bool = False) -> None:
        self.brief = brief

    def once(self, key: tuple[int, int], read: Callable[[], T]) -> T:
        """Return `read()` for an ended attempt, (run, attempt)."""
        return read()

    def minutes(self, result: Path, files: FilesInside) -> float | None:
        return minutes(result, files)

    def stand_in(self, read: Callable[[], bool | None]) -> bool:
        """Return whether a set is of a stand-in, by `read()`; None: unknown so far."""
        return bool(read())

    def tail(self, log: Path, files: FilesInside) -> Tail:
        tail = Tail(log, files)
        tail.look()
        return tail


class KeptLogs(Logs):
    """Remembers, for one set: published results are read once, and of growing logs only new bytes
    (at first the end)."""

    def __init__(self) -> None:
        super().__init__()
        self._once: dict[tuple[int, int], Any] = {}
        self._minutes: dict[Path, float | None] = {}
        self._tails: dict[Path, Tail] = {}
        self._stand_in: bool | None = None

    def once(self, key: tuple[int, int], read: Callable[[], T]) -> T:
        if key not in self._once:
            self._once[key] = read()
        value: T = self._once[key]
        return value

    def minutes(self, result: Path, files: FilesInside) -> float | None:
        if result not in self._minutes:
            self._minutes[result] = minutes(result, files)
        return self._minutes[result]

    def stand_in(self, read: Callable[[], bool | None]) -> bool:
        if self._stand_in is None:
            self._stand_in = read()
        return bool(self._stand_in)

    def tail(self, log: Path, files: FilesInside) -> Tail:
        tail = self._tails.setdefault(log, Tail(log, files, 4 * WHOLE_BYTES))
        tail.look()
        return tail
