"""A log's bytes in blocks of whole lines, in constant memory.

Lines end as in the referee's text mode: by a line feed, a carriage return, or both.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from orchestrator.onnode.kernel.walk import ANY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gzip import GzipFile
    from typing import BinaryIO

    from orchestrator.onnode.kernel.walk import FilesInside

    Stream = BinaryIO | GzipFile

TOKEN = b":::MLLOG "
BLOCK = 1 << 20
LONGEST_LINE = 4 << 20
"""A longer line loses the text before its last record; a longer record is damage."""
MOST_BYTES = 1 << 30
"""A submission takes logs of 50 MB (submission/refusal.py)."""


def open_log(path: str, files: FilesInside = ANY) -> Stream:
    """Open a log, through gzip for a name in .gz. Raises OSError, also for special or too long
    files."""
    if path.endswith(".gz"):
        import gzip

        packed = gzip.GzipFile(fileobj=(file := files.open(path)))
        packed.myfileobj = file  # type: ignore[assignment]  # closed with it
        return packed
    file = files.open(path, raw=True)
    if os.fstat(file.fileno()).st_size > MOST_BYTES:
        file.close()
        raise _too_long()
    return file


def _too_long() -> OSError:
    return OSError(errno.EFBIG, f"it is longer than {MOST_BYTES >> 20} MiB, which no log is")


def blocks(stream: Stream, size: int = BLOCK) -> Iterator[tuple[int, bytes, int, int]]:
    """Yield (file offset of data[0], data, start, end): data[start:end] are whole lines; the last
    may lack its end.

    Lines cut by a read become small blocks: big blocks are never copied. Raises OSError beyond
    MOST_BYTES: compressed logs hide their length.
    """
    offset, carry = 0, b""
    while data := stream.read(size):
        if offset > MOST_BYTES:
            raise _too_long()
        # A carriage return at the very end may be half of a \r\n: it waits for the next read.
        feed = data.rfind(b"\n")
        end = max(feed, data.rfind(b"\r", feed + 1, len(data) - 1)) + 1
        start = 0
        if carry and end:
            start = _first_end(data, carry)
            line = carry + data[:start]
            yield offset - len(carry), line, 0, len(line)
            carry = b""
        if start < end:
            yield offset, data, start, end
        carry = carry + data[end:]
        offset += len(data)
        if len(carry) > LONGEST_LINE:
            carry = _essential(carry)
    if carry:
        yield offset - len(carry), carry, 0, len(carry)


def _first_end(data: bytes, carry: bytes) -> int:
    """Return the end in `data` of the line that began in `carry`."""
    if carry.endswith(b"\r") and not data.startswith(b"\n"):
        return 0
    feed = data.find(b"\n")
    lone = data.find(b"\r", 0, feed if feed >= 0 else len(data))
    if lone < 0:
        return feed + 1
    return lone + 2 if data[lone + 1 : lone + 2] == b"\n" else lone + 1


def _essential(line: bytes) -> bytes:
    """Return an unfinished line from its last token, or a possible start of a token, on."""
    start = line.rfind(TOKEN)
    if start < 0:
        return line[-len(TOKEN) :]
    if len(line) - start > LONGEST_LINE:
        # Still damage at the end of the line, without growing: half a record stays half a record.
        return TOKEN + b'{"longer than": "%d bytes' % LONGEST_LINE
    return line[start:]


def count_lines(data: bytes) -> int:
    """Count line ends: \\n, \\r\\n and a lone \\r each count once."""
    returns = data.count(b"\r")
    lines = data.count(b"\n")
    return lines + returns - data.count(b"\r\n") if returns else lines


def line_numbers(path: str, offsets: list[int], files: FilesInside = ANY) -> dict[int, int]:
    """Return the line numbers (from 1) at `offsets`. Reads the file again: only for messages."""
    wanted, numbers, lines = sorted(set(offsets), reverse=True), {}, 0
    with open_log(path, files) as stream:
        for base, data, start, end in blocks(stream):
            position = start
            while wanted and wanted[-1] < base + end:
                offset = wanted.pop()
                lines += count_lines(data[position : max(position, offset - base)])
                position = max(position, offset - base)
                numbers[offset] = 1 + lines
            if not wanted:
                break
            lines += count_lines(data[position:end])
    return numbers | dict.fromkeys(wanted, 1 + lines)
