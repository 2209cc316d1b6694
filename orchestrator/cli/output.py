"""Output of commands: results on standard output, remarks on standard error, tables for
terminals and pipes."""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.words import PIPE, UNSHOWN, Screen, bare, clean, facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from orchestrator.words import TextTable


SCHEMA = 1
"""Version of the JSON output: a higher one has lost a member or changed its type
(generated/schemas/)."""


def json_text(kind: str, members: Mapping[str, Any], indent: int | None = 2) -> str:
    """Return an output for programs: an object that starts with its version and kind
    (generated/schemas).

    Text is not escaped, except for control characters.
    """
    document = {"schema": SCHEMA, "kind": kind, **members}
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=str)
    if text.isascii() and "\x7f" not in text:
        return text
    return re.sub(f"[{UNSHOWN}]", lambda match: json.dumps(match[0])[1:-1], text)


def one_or_more(kind: str, documents: Sequence[Mapping[str, Any]]) -> tuple[str, Mapping[str, Any]]:
    """Return kind and members of the output about one folder, or about several: then a list in
    an object (`score`, `scores`)."""
    return (kind, documents[0]) if len(documents) == 1 else (f"{kind}s", {f"{kind}s": documents})


def print_json(kind: str, members: Mapping[str, Any], indent: int | None = 2) -> None:
    """Print json_text(); without `indent` as one line, at once."""
    print(json_text(kind, members, indent), flush=indent is None)


_LEVEL = 0
"""-1 with --quiet, 1 with --verbose."""


def set_level(level: int) -> None:
    global _LEVEL
    _LEVEL = level


def is_verbose() -> bool:
    return _LEVEL > 0


def note(text: str) -> None:
    """Print a remark to standard error, so that pipes get results only; with --quiet nothing."""
    if _LEVEL < 0:
        return
    from orchestrator.words import wrapped_on_stderr

    # A command is never broken: pasted, it would be two.
    lines = (
        line if "orchestrator " in line or line.startswith("  ") else wrapped_on_stderr(line)
        for line in text.split("\n")
    )
    with suppress(OSError):  # an unreadable remark must not end a command that has submitted a job
        print("\n".join(lines), file=sys.stderr)


class Shown:
    """Foreign bytes as text for a terminal, piece by piece: a lone carriage return ends a line,
    too."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, piece: bytes) -> str:
        return clean(
            self._decoder.decode(piece).replace("\r\n", "\n").replace("\r", "\n"), lines=True
        )


def is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def screen() -> Screen:
    """Return the abilities of standard output: on a terminal its width, signs, and colours
    unless NO_COLOR is set."""
    if not is_terminal():
        return PIPE
    import shutil

    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return Screen(
        shutil.get_terminal_size().columns,
        colour=not os.environ.get("NO_COLOR"),
        signs="unicode" if unicode else "ascii",
    )


def draw(lines: Iterable[str]) -> None:
    """Print lines of clean text (`words.cell`): on a terminal with their colours, which `print`
    would escape."""
    out = bare(sys.stdout) if screen().colour else sys.stdout
    for line in lines:
        text = (
            line
            if line.isascii()
            else line.encode(out.encoding, "backslashreplace").decode(out.encoding)
        )
        print(text, file=out)


def draw_text(text: str) -> None:
    """Draw a text of tables and sentences; on a terminal long sentences are wrapped."""
    from orchestrator.words import wrapped

    width = screen().width
    for line in text.split("\n"):  # columns have two spaces between them
        draw([line] if "  " in line.strip() else wrapped(line, width))


def print_table(table: TextTable, rows: Iterable[Sequence[object]]) -> None:
    """Print rows as wide as the terminal; in a pipe with every column, one line each."""
    draw(table.lines(rows, screen()))


def print_closing(lines: Sequence[str]) -> None:
    """Print the last lines about a set in trouble (cli/closing.py), after an empty line."""
    if lines:
        print()
    print_prose(lines)


def print_prose(lines: Iterable[str]) -> None:
    """Print lines of text: on a terminal long lines are wrapped at blanks, but for commands, which
    are indented by two spaces: pasted, a broken command would be two."""
    from orchestrator.words import wrapped

    width = screen().width
    for line in lines:
        for part in [line] if line.startswith("  ") else wrapped(line, width):
            print(part)


def print_facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values in lines; on a terminal long values are folded next to their names."""
    draw(facts(pairs, screen()))
