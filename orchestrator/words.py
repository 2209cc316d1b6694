"""How words of others, tables and times are written, for every command and page. Standard library only."""

from __future__ import annotations

import re
from math import isfinite

TYPE_CHECKING = False  # importing typing takes a tenth of a cold `orchestrator score`
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TextIO

UNSHOWN = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
"""As a class of characters: what a terminal obeys instead of showing it, lone surrogates (which cannot be encoded), and what turns
the direction of text around. Not the tab and the ends of lines."""
_UNSHOWN = re.compile(f"[{UNSHOWN}\r]")
_UNSHOWN_OR_LINE = re.compile(f"[{UNSHOWN}\t\n\r]")


def clean(text: str, *, lines: bool = False) -> str:
    """Return `text` as a terminal may get it: what is not shown stands there as an escape, `\\x1b`. Names in files and
    words of logs can be anybody's. Ends of lines and tabs stay with `lines` only: in a table they would forge rows."""
    if text.isprintable():
        return text
    return (_UNSHOWN if lines else _UNSHOWN_OR_LINE).sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


class Cleaned:
    """A text stream that passes on what is printed as clean() has it, in the characters that its encoding has."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        text = clean(text, lines=True)
        if not text.isascii() and (encoding := self.stream.encoding):
            text = text.encode(encoding, "backslashreplace").decode(encoding)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def bare(stream: TextIO) -> TextIO:
    """Return `stream` as it is for what draws on a terminal itself; the words in the drawing have to be clean."""
    found: TextIO = getattr(stream, "stream", stream)
    return found


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> list[str]:
    """Return the lines of a table in aligned columns, two spaces apart, cells clean; the columns named in `right` end together."""
    lines = [list(map(clean, row)) for row in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]

    def joined(line: list[str]) -> str:
        cells = (
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(line, widths, header, strict=True)
        )
        return "  ".join(cells).rstrip()

    return [joined(line) for line in lines]


def minutes(value: float | None, missing: str = "-") -> str:
    """Return minutes as text: three digits, five where runs take seconds; `missing` for what is no number."""
    if value is None or not isfinite(value):
        return missing
    return f"{value:.3f}" if abs(value) >= 1 else f"{value:.5f}"


def duration(total_s: float) -> str:
    """Return elapsed seconds as `0.8s`, `12s`, `3m20s`, `5h07m` or `2d04h`."""
    total = int(total_s)
    if total < 10:
        return f"{total_s:.1f}s"
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m{total % 60:02}s"
    if total < 86_400:
        return f"{total // 3600}h{total % 3600 // 60:02}m"
    return f"{total // 86_400}d{total % 86_400 // 3600:02}h"


def seconds(value: float | None, missing: str = "-") -> str:
    """Return a measured time in seconds, with the digits that tell two nodes apart: `4.05 s`, `52.3 s`, `110.2 min`."""
    if value is None:
        return missing
    size = abs(value)
    if size < 6000:
        return f"{value:.{2 if size < 10 else 1 if size < 100 else 0}f} s"
    return f"{value / 60:.1f} min"
