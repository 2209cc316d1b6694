"""What commands print: results on standard output, remarks on standard error, tables for terminals and for pipes."""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
from contextlib import suppress

from orchestrator.words import UNSHOWN, aligned, bare, clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def print_json(value: Any) -> None:
    """Letters as they are; what a terminal would obey as JSON's own escapes."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    print(
        text
        if text.isascii() and "\x7f" not in text
        else re.sub(f"[{UNSHOWN}]", lambda one: json.dumps(one[0])[1:-1], text)
    )


def note(text: str) -> None:
    """A remark that is no result: to standard error, so that pipes get results only."""
    with suppress(OSError):  # a remark that nobody can read must not end a command that has submitted a job
        print(text, file=sys.stderr)


class Shown:
    """Bytes of others as text for a terminal, piece by piece: a lone carriage return is the end of a line, too."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, piece: bytes) -> str:
        return clean(self._decoder.decode(piece).replace("\r\n", "\n").replace("\r", "\n"), lines=True)


def is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """A table: drawn with rich on a terminal, aligned columns otherwise. `right` names the columns to align right."""
    if is_terminal():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in header:
            table.add_column(name, justify="right" if name in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(clean(cell)) for cell in row))
        Console(file=bare(sys.stdout)).print(table)
        return
    for line in aligned(header, rows, right):
        print(line)
