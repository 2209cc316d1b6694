"""What commands print: results on standard output, remarks on standard error, tables for terminals and for pipes."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress

from orchestrator.words import aligned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def note(text: str) -> None:
    """A remark that is no result: to standard error, so that pipes get results only."""
    with suppress(OSError):  # a remark that nobody can read must not end a command that has submitted a job
        print(text, file=sys.stderr)


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
            table.add_row(*(Text(cell) for cell in row))
        Console().print(table)
        return
    for line in aligned(header, rows, right):
        print(line)
