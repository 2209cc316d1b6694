"""The documents as tests see them: pages, their blocks of commands with what they show, and their examples."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_NOT_RUN = re.compile(r"<!-- not run: (?P<why>[^>]+) -->\s*\Z")


@dataclass
class Command:
    """One line that begins with `$`, and what is shown below it."""

    line: int
    words: str
    shown: list[str] = field(default_factory=list)


def recorded(printed: str) -> list[str]:
    """What a page shows of a command's output: all of it, or its beginning and its end; long lines are cut."""
    lines = [
        line if len(line) <= 120 else f"{line[:117]}..."
        for line in printed.rstrip("\n").splitlines()
    ]
    return lines if len(lines) <= 22 else [*lines[:14], "...", *lines[-4:]]


def record(page: str, outputs: dict[int, str]) -> None:
    """Write into a page what its commands print now: line of the command -> output. What shows nothing, or begins with `...`, stays."""
    path = DOCS / f"{page}.md"
    lines = path.read_text().splitlines()
    for command in sorted(
        (one for block in blocks(page) for one in block.commands), key=lambda one: -one.line
    ):
        if command.line in outputs and command.shown and command.shown[0].strip() != "...":
            indent = lines[command.line - 1].partition("$")[0]
            new = [f"{indent}{line}".rstrip() for line in recorded(outputs[command.line])]
            lines[command.line : command.line + len(command.shown)] = new
    path.write_text("\n".join(lines) + "\n")


@dataclass
class Block:
    """A fenced block of commands. `not_run`: why it is not run; ""."""

    page: str
    commands: list[Command]
    not_run: str


def pages() -> list[str]:
    """Every page below docs/, by its path without `.md`."""
    return sorted(path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md"))


def blocks(page: str) -> list[Block]:
    """The blocks of a page that have a line beginning with `$`, in order."""
    text = (DOCS / f"{page}.md").read_text()
    found = []
    for fence in _FENCE.finditer(text):
        commands: list[Command] = []
        first = text.count("\n", 0, fence.start("text")) + 1
        for number, line in enumerate(fence["text"].splitlines(), first):
            line = line.removeprefix(fence["indent"])
            if line.startswith("$ "):
                commands.append(Command(number, line[2:]))
            elif commands:
                commands[-1].shown.append(line)
        reason = _NOT_RUN.search(text, 0, fence.start())
        if commands:
            found.append(Block(page, commands, reason["why"] if reason else ""))
    return found


def examples(page: str) -> dict[str, str]:
    """The YAML blocks of a page that begin with `# example: NAME`, by their name."""
    text = (DOCS / f"{page}.md").read_text()
    named = {}
    for fence in _FENCE.finditer(text):
        if fence["language"] == "yaml" and (name := re.match(r"# example: (.+)\n", fence["text"])):
            named[name[1]] = fence["text"]
    return named


def same_words(shown: str, printed: str) -> bool:
    """Whether a printed line is the shown one, but for numbers, ids and blanks."""

    def words(line: str) -> list[str]:
        return re.findall(
            r"[^\W\d_]{3,}", re.sub(r"\S*(?:\d{8}-\d{6}|local-\d)\S*|\S*/\S*", "", line)
        )

    if shown.endswith("..."):
        return words(printed)[: len(words(shown)) - 1] == words(shown)[:-1]
    return words(shown) == words(printed)
