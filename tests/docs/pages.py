"""The documents as tests see them: pages, their blocks of commands with what they show, and their examples."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: (?P<why>[^>]+) -->\s*\Z")


@dataclass
class Command:
    """One line that begins with `$`, and what is shown below it."""

    line: int
    words: str
    shown: list[str] = field(default_factory=list)


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
        return re.findall(r"[^\W\d_]{2,}", re.sub(r"\S*(?:\d{8}-\d{6}|local-\d)\S*|\S*/\S*", "", line))

    return words(shown) == words(printed)
