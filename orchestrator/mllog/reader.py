"""One pass over a log: every relevant record, in file order, and all damage.

The rules of a record are the referee's (mlperf_logging/compliance_checker/mlp_parser): the LAST
token `:::MLLOG ` of a line counts, wherever it is, and the text behind it, stripped of white space,
must be one JSON value. Text is Latin-1, so no byte can fail. `read_log` raises only if a file
cannot be opened or read.
"""

from __future__ import annotations

import gc
import json
from itertools import accumulate

from orchestrator.mllog.blocks import TOKEN, blocks, count_lines, line_numbers, open_log
from orchestrator.mllog.numbers import finite
from orchestrator.mllog.olympic import minutes_between
from orchestrator.mllog.repeats import Repeats
from orchestrator.mllog.shapes import SKIPPED_KEYS, Shapes
from orchestrator.onnode.kernel.mllog_keys import EVALUATIONS, START, STOP, StartStop
from orchestrator.onnode.kernel.walk import ANY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from orchestrator.onnode.kernel.walk import FilesInside

DENSE = 1024
"""A block with a record per this many bytes of its first 16 KiB is cut at the tokens; others are
searched."""
MANY = 400
"""Records of a dense block that pay for learning shapes."""

# The referee's RCP test searches the text of every record for these words, whatever its key.
EVALUATION, RUN_STOP, BATCH_SIZE, BENCHMARK = 1, 2, 4, 8
_WORDS = (
    *((key.encode(), EVALUATION) for key in EVALUATIONS),
    (STOP.encode(), RUN_STOP),
    (b"global_batch_size", BATCH_SIZE),
    (b"submission_benchmark", BENCHMARK),
)

# Measured values never repeat.
_MEASURED = (*EVALUATIONS, "seed", *SKIPPED_KEYS)

# Joins a block's records into one JSON array. A text that closes the array early or runs into the
# next record cannot keep the separators in place, which is checked.
_SEPARATOR = ',"<record boundary 7c41b6>",'


class Record:
    """`time` is in Unix milliseconds; `words` are the RCP test's words in the record's text
    (EVALUATION, ...)."""

    __slots__ = ("key", "lines", "metadata", "offset", "time", "value", "words")

    def __init__(
        self,
        time: float,
        key: Any,
        value: Any,
        metadata: Any,
        flags: int,
        offset: int,
        lines: int = 0,
    ) -> None:
        self.time = time
        self.key = key
        self.value = value
        self.metadata = metadata
        self.words = flags
        self.offset = offset
        self.lines = lines


class Damage:
    """A line with the token but without a record. `fatal`: the referee stops there."""

    __slots__ = ("fatal", "json", "lines", "message", "offset", "words")

    def __init__(
        self, message: str, fatal: bool, flags: int, offset: int, lines: int, json: Any = None
    ) -> None:
        self.message = message
        self.fatal = fatal
        self.words = flags
        self.offset = offset
        self.lines = lines
        self.json = json
        """The object, if the line holds one: the RCP test reads it despite other damage."""


def _last_value(key: str) -> Any:
    """Return a property: the value of the last record with `key`, or None."""

    def value(log: Log) -> Any:
        record = log.last(key)
        return None if record is None else record.value

    return property(value)


class Log:
    """The content of a file. Times are Unix milliseconds; a missing member is None."""

    def __init__(self, path: str, files: FilesInside = ANY) -> None:
        self.path, self.files = path, files
        self.entries: list[Record | Damage] = []
        """Records and damaged lines in file order, without unneeded statistics."""
        self.records: list[Record] = []
        self.by_key: dict[Any, list[Record]] = {}
        """Records per text key."""
        self.damage: list[Damage] = []
        self.statistics: list[Record] = []
        """`tracked_stats` and `train_loss` with a throughput; `read_log(..., full=True)` keeps
        all."""

    def line(self, entry: Record | Damage) -> int:
        """Return an entry's line number. Reads the file again."""
        return self.lines([entry])[0]

    def lines(self, entries: list[Record | Damage]) -> list[int]:
        """Return several line numbers, in one more pass over the file."""
        numbers = line_numbers(self.path, [entry.offset for entry in entries], self.files)
        return [numbers[entry.offset] + entry.lines for entry in entries]

    def with_key(self, key: str) -> list[Record]:
        return self.by_key.get(key, [])

    def first(self, key: str) -> Record | None:
        return self.by_key[key][0] if key in self.by_key else None

    def last(self, key: str) -> Record | None:
        return self.by_key[key][-1] if key in self.by_key else None

    benchmark = _last_value("submission_benchmark")
    division = _last_value("submission_division")
    org = _last_value("submission_org")
    batch_size = _last_value("global_batch_size")
    gradient_accumulation = _last_value("gradient_accumulation_steps")

    @property
    def seeds(self) -> list[tuple[Any, Any, Any]]:
        """Return (metadata.file, metadata.lineno, value) of every `seed`."""
        values = []
        for record in self.with_key("seed"):
            metadata = record.metadata if isinstance(record.metadata, dict) else {}
            values.append((metadata.get("file"), metadata.get("lineno"), record.value))
        return values

    @property
    def evaluations(self) -> list[tuple[float, Any, Any]]:
        """Return (time, samples_count or epoch_num, value) of every evaluation, in file order."""
        points = []
        wanted = [record for key in EVALUATIONS for record in self.with_key(key)]
        if all(key in self.by_key for key in EVALUATIONS):
            wanted = [record for record in self.records if record.key in EVALUATIONS]
        for record in wanted:
            if isinstance(record.metadata, dict):
                metadata = record.metadata
                points.append(
                    (
                        record.time,
                        metadata.get("samples_count", metadata.get("epoch_num")),
                        record.value,
                    )
                )
        return points

    @property
    def throughput(self) -> list[tuple[float, float]]:
        """Return (time, samples per second) of the logged throughputs."""
        rates = []
        for record in self.statistics:
            rate = record.value.get("throughput") if isinstance(record.value, dict) else None
            if (number := finite(rate)) is not None:
                rates.append((record.time, number))
        return rates

    @property
    def start_stop(self) -> tuple[float | None, float | None]:
        """Return the run's start and stop (mllog_keys.StartStop)."""
        starts, stops = self.with_key(START), self.with_key(STOP)
        has_repeats = len(starts) > 1 or len(stops) > 1
        times = StartStop()
        for record in self.records if has_repeats else (*starts, *stops):
            if times.is_known:
                break
            times.take(record.key, record.time)
        return times.start, times.stop

    @property
    def minutes(self) -> float | None:
        """Return the time to train."""
        start, stop = self.start_stop
        return None if start is None or stop is None else minutes_between(start, stop)

    @property
    def status(self) -> Any:
        """Return `metadata.status` of the last `run_stop`."""
        stop = self.last(STOP)
        return stop.metadata.get("status") if stop and isinstance(stop.metadata, dict) else None


def read_log(
    path: str, files: FilesInside = ANY, *, shapes: Shapes | None = None, full: bool = False
) -> Log:
    """Read a log (plain or .gz). A set's logs share `shapes`, learned once.

    `full` keeps all training statistics (for charts). Raises OSError, and EOFError or zlib.error
    for a damaged .gz file.

    """
    collecting = gc.isenabled()
    # Half of a big parse would go into collecting garbage: records make no cycles.
    gc.disable()
    try:
        return _read(Log(path, files), shapes or Shapes(), full)
    finally:
        if collecting:
            gc.enable()


def _read(log: Log, shapes: Shapes, full: bool) -> Log:
    with open_log(log.path, log.files) as stream:
        for offset, data, start, end in blocks(stream):
            position = data.find(TOKEN, start, end)
            if position < 0:
                continue
            head = min(end, start + 16384)
            many = data.count(TOKEN, start, head)
            if many * DENSE > head - start:
                _read_dense(log, data[start:end], offset + start, shapes, full)
            else:
                _read_sparse(log, data, position, end, offset, shapes, full)
    return log


def _read_dense(log: Log, block: bytes, offset: int, shapes: Shapes, full: bool) -> None:
    """Cut the block at every token: most of it is records."""
    blanked = not full and block.count(TOKEN) >= MANY
    if blanked:
        block = shapes.blank(block)
    pieces = block.split(TOKEN)
    texts, lines, returns = [], 0, b"\r" in block
    places: list[tuple[int, int]] = []
    starts = list(accumulate(map(len, pieces)))
    last = len(pieces) - 1
    for index in range(1, len(pieces)):
        piece = pieces[index]
        end = piece.find(b"\n")
        if returns:
            lone = piece.find(b"\r", 0, end if end >= 0 else len(piece))
            end = lone if lone >= 0 else end
        if blanked:
            # Offsets inside a blanked block mean nothing: keep the block's offset and count lines.
            lines += count_lines(pieces[index - 1])
        if end >= 0:
            texts.append(piece[:end])
        elif index == last:
            texts.append(piece)
        else:
            continue  # another token follows on the same line, and the last one counts
        places.append(
            (offset, lines) if blanked else (offset + starts[index - 1] + 9 * (index - 1), 0)
        )
    _add(log, texts, places, shapes.repeats, full)


def _read_sparse(
    log: Log, data: bytes, position: int, end: int, offset: int, shapes: Shapes, full: bool
) -> None:
    """Search the block for tokens: most of it is console text, never copied."""
    texts: list[bytes] = []
    places: list[tuple[int, int]] = []
    while position >= 0:
        text, start, stop = _line_rest(data, position, end)
        places.append((offset + start, 0))
        texts.append(text)
        position = data.find(TOKEN, stop, end)
    if not full:
        wanted = shapes.unknown(texts)
        texts, places = [texts[index] for index in wanted], [places[index] for index in wanted]
    _add(log, texts, places, shapes.repeats, full)


def _line_rest(data: bytes, position: int, limit: int) -> tuple[bytes, int, int]:
    """Return (text after the line's last token, that token's position, the line's end)."""
    end = data.find(b"\n", position, limit)
    end = limit if end < 0 else end
    lone = data.find(b"\r", position, end)
    end = end if lone < 0 else lone
    start = data.rfind(TOKEN, position, end)
    return data[start + len(TOKEN) : end], start, end


def _add(
    log: Log, texts: list[bytes], places: list[tuple[int, int]], repeats: Repeats, full: bool
) -> None:
    find = repeats.find
    known = [find(text) for text in texts]
    new = [index for index, parts in enumerate(known) if parts is None]
    parsed = dict(zip(new, _parse_all([texts[index] for index in new]), strict=True))
    for index, parts in enumerate(known):
        offset, lines = places[index]
        if parts:
            time, (key, value, metadata, flags) = parts
            entry = Record(time, key, value, metadata, flags, offset, lines)
        else:
            made = _entry(*parsed[index], offset, lines)
            if isinstance(made, Damage):
                log.entries.append(made)
                log.damage.append(made)
                continue
            entry = made
            if entry.key not in _MEASURED:
                repeats.keep(
                    texts[index], entry.time, (entry.key, entry.value, entry.metadata, entry.words)
                )
        key = entry.key
        if key.__class__ is str:
            if key in SKIPPED_KEYS:
                if full or (entry.value.__class__ is dict and "throughput" in entry.value):
                    log.statistics.append(entry)
                if not entry.words:
                    continue
            if key in log.by_key:
                log.by_key[key].append(entry)
            else:
                log.by_key[key] = [entry]
        log.entries.append(entry)
        log.records.append(entry)


def _parse_all(texts: list[bytes]) -> list[tuple[Any, int]]:
    """Return (JSON value or exception, words of the RCP test) of each text."""
    flags = _words(texts)
    return [(value, flags.get(index, 0)) for index, value in enumerate(_parse(texts))]


def _entry(value: Any, flags: int, offset: int, lines: int) -> Record | Damage:
    try:
        return Record(
            float(value["time_ms"]),
            value["key"],
            value["value"],
            value["metadata"],
            flags,
            offset,
            lines,
        )
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        return _damage(error, value, flags, offset, lines)


def _words(texts: list[bytes]) -> dict[int, int]:
    """Return index -> bits of the RCP test's words. One search of all texts per word."""
    flags: dict[int, int] = {}
    together = b"\n".join(texts)
    ends = list(accumulate(map(len, texts)))
    for word, bit in _WORDS:
        position = together.find(word)
        if position < 0:
            continue
        # Text i ends at ends[i] plus the i line feeds before it.
        index = 0
        while position >= 0:
            while position >= ends[index] + index:
                index += 1
            flags[index] = flags.get(index, 0) | bit
            position = together.find(word, ends[index] + index)
    return flags


def _parse(texts: list[bytes]) -> list[Any]:
    return _parse_together(texts) or [_parse_one(text) for text in texts]


def _parse_together(texts: list[bytes]) -> list[Any] | None:
    """Parse all texts as one JSON array, in half the time; None unless each is one JSON value."""
    joined = _SEPARATOR.encode().join(texts).decode("latin-1")
    if joined.count(_SEPARATOR) != len(texts) - 1:
        return None
    try:
        values = json.loads(f"[{joined}]")
    except (ValueError, RecursionError):
        return None
    separator = _SEPARATOR[2:-2]
    if len(values) != 2 * len(texts) - 1 or values[1::2].count(separator) != len(texts) - 1:
        return None
    every_other: list[Any] = values[::2]
    return every_other


def _parse_one(text: bytes) -> Any:
    try:
        # The referee strips the line with the token before it: only the end loses space unknown to
        # JSON.
        return json.loads(text.decode("latin-1").rstrip())
    except (ValueError, RecursionError) as error:
        return error


def _damage(error: Exception, value: Any, flags: int, offset: int, lines: int) -> Damage:
    """Return damage that the referee reports (not fatal) or stops at (fatal)."""
    message, fatal, json_value = "", True, None
    if isinstance(value, RecursionError):
        message = "the JSON is nested too deeply"
    elif isinstance(value, ValueError):
        message, fatal = f"not one JSON object: {value}", False
    elif value is None:
        message, fatal = "the record is null", False
    elif not isinstance(value, dict):
        message = f"the record is not a JSON object but {type(value).__name__}"
    elif isinstance(error, KeyError):
        message = f"the record has no {error.args[0]!r}"
    else:
        # A text that is no number is reported; a null, a list or a number beyond all floats ends
        # the referee.
        message, fatal = (
            f"`time_ms` is not a number: {str(value['time_ms'])[:40]}",
            not isinstance(error, ValueError),
        )
        json_value = value
    return Damage(message, fatal, flags, offset, lines, json_value)
