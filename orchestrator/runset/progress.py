"""What a run's log says about its progress, from its two ends: a log can be a gigabyte, a look must stay cheap."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TAIL_BYTES = 64 * 1024
WHOLE_BYTES = 1024 * 1024
"""Logs up to this size are read as a whole for their times; of larger ones the first and the last TAIL_BYTES."""

TOKEN = b":::MLLOG "
EVALUATIONS = frozenset({"eval_accuracy", "eval_error"})


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The last evaluation of a run: its value, and the samples seen by then (0 where the log does not say)."""

    value: float
    samples: int
    time_ms: int


def records(chunk: bytes) -> Iterator[dict[str, Any]]:
    """The MLLOG records in `chunk`, in order. Torn, damaged and foreign lines are passed over."""
    for line in chunk.replace(b"\r", b"\n").split(b"\n"):
        at = line.rfind(TOKEN)
        if at < 0:
            continue
        try:
            record = json.loads(line[at + len(TOKEN) :].decode("latin-1"))
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("metadata"), dict):
            yield record


def read_tail(path: Path | str, limit: int = TAIL_BYTES) -> bytes:
    """The last `limit` bytes of a file; b"" when it cannot be read."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - limit))
            return file.read(limit)
    except OSError:
        return b""


def last_evaluation(chunk: bytes) -> Evaluation | None:
    """The last evaluation in `chunk`."""
    found = None
    for record in records(chunk):
        value, metadata = record.get("value"), record["metadata"]
        if record.get("key") in EVALUATIONS and isinstance(value, (int, float)):
            samples = metadata.get("samples_count")
            found = Evaluation(float(value), samples if isinstance(samples, int) else 0, _time(record))
    return found


def minutes(path: Path | str) -> float | None:
    """Time-to-train of a successful run in minutes: (run_stop - run_start) / 60000; None when that cannot be seen.

    The last run_start before the first run_stop counts, as with the referee; the last run_stop's status decides.
    For a first impression only: `orchestrator score` reads every byte.
    """
    start = stop = 0
    status = ""
    for record in records(_ends(path)):
        key = record.get("key")
        if key == "run_start" and not stop:
            start = _time(record)
        elif key == "run_stop":
            stop = stop or _time(record)
            status = str(record["metadata"].get("status"))
    return (stop - start) / 60_000 if start and stop and status == "success" else None


def olympic_mean(times: list[float], failed: int = 0) -> float | None:
    """Mean without the fastest and the slowest; one failed run takes the place of the slowest. None below three values.

    Source: MLCommons training rules, "Benchmark results"; the same for any number of runs above two here, because it
    also serves as the projection for a set that is not complete.
    """
    count = len(times) + failed
    if count < 3 or failed > 1:
        return None
    kept = sorted(times)[1:] if failed else sorted(times)[1:-1]
    return sum(kept) / len(kept) if kept else None


def _ends(path: Path | str) -> bytes:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= WHOLE_BYTES:
                return file.read()
            head = file.read(TAIL_BYTES)
            file.seek(size - TAIL_BYTES)
            return head + b"\n" + file.read(TAIL_BYTES)
    except OSError:
        return b""


def _time(record: dict[str, Any]) -> int:
    time_ms = record.get("time_ms")
    return time_ms if isinstance(time_ms, int) else 0


class Logs:
    """How a picture reads logs: each time anew."""

    def minutes(self, result: Path) -> float | None:
        """Time-to-train of a published result."""
        return minutes(result)

    def evaluation(self, log: Path) -> Evaluation | None:
        """Last evaluation of a log that grows."""
        return last_evaluation(read_tail(log))


class KeptLogs(Logs):
    """Remembers: a published result is read once, of a growing log only what is new (at first its last TAIL_BYTES)."""

    def __init__(self) -> None:
        self._minutes: dict[Path, float | None] = {}
        self._tail: LogTail | None = None

    def minutes(self, result: Path) -> float | None:
        if result not in self._minutes:
            self._minutes[result] = minutes(result)
        return self._minutes[result]

    def evaluation(self, log: Path) -> Evaluation | None:
        if self._tail is None or self._tail.path != log:
            self._tail = LogTail(log)
        return self._tail.look()


class LogTail:
    """A log that is read as it grows: each look reads only what is new, the first one the last TAIL_BYTES."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.evaluation: Evaluation | None = None
        self._offset = -1
        self._rest = b""

    def look(self) -> Evaluation | None:
        """Read on and return the last evaluation seen so far."""
        try:
            with open(self.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if not 0 <= self._offset <= size or size - self._offset > TAIL_BYTES:
                    self._offset, self._rest = max(0, size - TAIL_BYTES), b""
                file.seek(self._offset)
                chunk = file.read(TAIL_BYTES)
        except OSError:
            return self.evaluation
        self._offset += len(chunk)
        whole, newline, self._rest = (self._rest + chunk).rpartition(b"\n")
        self.evaluation = (last_evaluation(whole) if newline else None) or self.evaluation
        return self.evaluation
