"""What commands print: results on standard output, remarks on standard error, tables for terminals and for pipes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import suppress

from orchestrator.words import PIPE, Screen, facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from orchestrator.words import TextTable


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def note(text: str) -> None:
    """A remark that is no result: to standard error, so that pipes get results only."""
    with suppress(OSError):  # a remark that nobody can read must not end a command that has submitted a job
        print(text, file=sys.stderr)


def is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def screen() -> Screen:
    """What standard output can show: on a terminal its width, signs, and colours unless NO_COLOR is set."""
    if not is_terminal():
        return PIPE
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return Screen(
        shutil.get_terminal_size().columns,
        colour=not os.environ.get("NO_COLOR"),
        signs="unicode" if unicode else "ascii",
    )


def print_table(table: TextTable, rows: Iterable[Sequence[object]]) -> None:
    """Print rows as wide as the terminal is; in a pipe with every column, one line each."""
    for line in table.lines(rows, screen()):
        print(line)


def print_facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values below one another; on a terminal long values are folded beside their names."""
    for line in facts(pairs, screen()):
        print(line)
