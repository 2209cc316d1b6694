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
    """One command of a block, and the output shown below it."""

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
    language: str
    commands: list[Command]
    not_run: str


def pages() -> list[str]:
    """Every page below docs/, by its path without `.md`."""
    return sorted(path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md"))


def pasted(lines: list[str], first: int) -> list[Command]:
    """The commands of a block without prompts. A here-document belongs to its command, and so does a continued line."""
    commands: list[Command] = []
    end, continued = "", False
    for number, line in enumerate(lines, first):
        if end or continued:
            commands[-1].words += f"\n{line}"
        elif line.strip() and not line.startswith("#"):
            commands.append(Command(number, line))
        else:
            continue
        if end:
            end = "" if line == end else end
        else:
            document = re.search(r"<<'?(\w+)'?", line)
            end, continued = document[1] if document else "", line.endswith("\\")
    return commands


def with_output(lines: list[str], first: int) -> list[Command]:
    """The commands of a block that shows their output."""
    commands: list[Command] = []
    for number, line in enumerate(lines, first):
        if line.startswith("$ "):
            commands.append(Command(number, line[2:]))
        elif commands:
            commands[-1].shown.append(line)
    return commands


def blocks(page: str) -> list[Block]:
    """The blocks of commands of a page, in order: `sh` to paste, and those with a line beginning with `$`."""
    text = (DOCS / f"{page}.md").read_text()
    found = []
    for fence in _FENCE.finditer(text):
        first = text.count("\n", 0, fence.start("text")) + 1
        lines = [line.removeprefix(fence["indent"]) for line in fence["text"].splitlines()]
        commands = pasted(lines, first) if fence["language"] == "sh" else with_output(lines, first)
        reason = _NOT_RUN.search(text, 0, fence.start())
        if commands:
            found.append(Block(page, fence["language"], commands, reason["why"] if reason else ""))
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
