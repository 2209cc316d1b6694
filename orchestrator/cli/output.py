"""Results on standard output, remarks on standard error, tables for terminals and pipes."""

from __future__ import annotations

import codecs
import json
import os
import sys
from contextlib import suppress

from orchestrator.words import PIPE, Screen, bare, clean, encodable, unshown

TYPE_CHECKING = False  # importing typing is slow
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from orchestrator.views.parts import Part


SCHEMA = 1
"""Version of the JSON output; it grows if a member is lost or changes type."""


def json_text(kind: str, members: Mapping[str, Any], indent: int | None = 2) -> str:
    """Return JSON by generated/schemas/. For UTF-8 only control characters are escaped."""
    document = {"schema": SCHEMA, "kind": kind, **members}
    text = json.dumps(document, indent=indent, ensure_ascii=not _is_utf8(), default=str)
    if text.isascii() and "\x7f" not in text:
        return text
    return unshown().sub(lambda match: json.dumps(match[0])[1:-1], text)


def one_or_more(kind: str, documents: Sequence[Mapping[str, Any]]) -> tuple[str, Mapping[str, Any]]:
    """Return kind and members of a single folder, or of a list (`score`, `scores`)."""
    return (kind, documents[0]) if len(documents) == 1 else (f"{kind}s", {f"{kind}s": documents})


def print_json(kind: str, members: Mapping[str, Any], indent: int | None = 2) -> None:
    """Without `indent`: as one line, at once."""
    print(json_text(kind, members, indent), flush=indent is None)


_LEVEL = 0
"""-1 with --quiet, 1 with --verbose."""


def set_level(level: int) -> None:
    global _LEVEL
    _LEVEL = level


def is_verbose() -> bool:
    return _LEVEL > 0


def warn(text: str) -> None:
    note(f"warning: {text}")


def note(text: str) -> None:
    """Print to standard error, unless --quiet."""
    if _LEVEL < 0:
        return
    from orchestrator.words import wrapped_on_stderr

    # Never break a command: pasted, it would be two.
    lines = (
        line if "orchestrator " in line or line.startswith("  ") else wrapped_on_stderr(line)
        for line in text.split("\n")
    )
    with suppress(OSError):  # a failed remark must not end a command that has submitted a job
        print("\n".join(lines), file=sys.stderr)


def ask(question: str, default: str = "") -> str:
    """Return the answer, `default` for an empty answer; "" at the end of the input."""
    shown = f"{question} [{default}]: " if default else f"{question}: "
    try:
        return input(shown if sys.stdin.isatty() else "").strip() or default
    except EOFError:
        return ""


class Shown:
    """Foreign bytes as terminal text, piece by piece; carriage returns end lines."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, piece: bytes) -> str:
        return clean(
            self._decoder.decode(piece).replace("\r\n", "\n").replace("\r", "\n"), lines=True
        )


def _is_utf8() -> bool:
    return codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"


def is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def screen() -> Screen:
    """Return standard output's width, signs, and colours unless NO_COLOR is set."""
    if not is_terminal():
        return PIPE
    import shutil

    return Screen(
        shutil.get_terminal_size().columns,
        colour=not os.environ.get("NO_COLOR"),
        signs="unicode" if _is_utf8() else "ascii",
    )


def draw(lines: Iterable[str]) -> None:
    """Print clean lines (`words.cell`), with the terminal's colours, which `print` would escape."""
    out = bare(sys.stdout) if screen().colour else sys.stdout
    for line in lines:
        print(encodable(line, out), file=out)


def print_parts(parts: Iterable[Part]) -> None:
    """Print the parts of a view as wide as the terminal; in a pipe all columns."""
    from orchestrator.views.terminal import lines

    draw(lines(parts, screen()))


def print_closing(lines: Sequence[str]) -> None:
    if lines:
        print()
    print_prose(lines)


def print_prose(lines: Iterable[str]) -> None:
    """Print sentences, and commands, indented by two blanks."""
    from orchestrator.views.parts import with_commands

    print_parts([with_commands(lines)])
