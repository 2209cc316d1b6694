"""Parts as Markdown, for an issue, a pull request or a chat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from orchestrator.views.markup import clean
from orchestrator.views.parts import (
    Bullets,
    Cell,
    Details,
    FactList,
    Heading,
    Headline,
    Paragraph,
    Part,
    Section,
    Sentences,
    Steps,
    Table,
)
from orchestrator.words import count

MOST_ROWS = 100
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&@])")


def text(value: object, longest: int = 160) -> str:
    """Escape a value for Markdown and HTML, in a single line."""
    return _SPECIAL.sub(r"\\\1", " ".join(clean(value, longest).split()))


def code(value: object) -> str:
    """Return a code span; backticks become apostrophes."""
    return f"`{' '.join(clean(value).split()).replace('`', chr(0x2019))}`"


def section(part: Section) -> str:
    """Return a titled section; "" without parts for Markdown."""
    body = rendered(part.parts)
    return f"## {text(part.title)}\n\n{body}" if body else ""


def rendered(parts: Iterable[Part]) -> str:
    """Return the parts without charts, folded and dense tables."""
    return "\n\n".join(block for part in parts if (block := _block(part)))


def _block(part: Part) -> str:
    if isinstance(part, Table):
        return "" if part.dense else _table(part)
    if isinstance(part, Bullets):
        items = "\n".join(f"- {_sentence(item, 400)}" for item in part.items)
        return f"{text(part.title)}:\n\n{items}" if part.title and items else items
    if isinstance(part, FactList):
        return "\n".join(f"- {text(name)}: {text(value, 400)}" for name, value in part.pairs)
    if isinstance(part, Headline):
        return "  \n".join([f"**{text(part.text, 1000)}**", *map(_sentence, part.under)])
    if isinstance(part, Sentences):
        return "  \n".join(map(_sentence, part.texts))
    if isinstance(part, Paragraph):
        return text(part.text, 1000)
    if isinstance(part, Heading):
        return f"### {text(part.text)}"
    if isinstance(part, Details):
        part = part.part
    return _steps(part) if isinstance(part, Steps) else ""


def _sentence(value: str | Cell, longest: int = 1000) -> str:
    return code(value.value) if isinstance(value, Cell) else text(value, longest)


def _steps(part: Steps) -> str:
    lines = []
    for index, step in enumerate(part.steps, 1):
        lines.append(f"{index}. {text(step.title, 200)}")
        lines += [f"   - {text(line, 4000)}" for line in step.lines]
    return "\n".join(lines)


def _table(part: Table) -> str:
    header, rows = part.header, part.rows
    if part.below:
        header = [*header, "remark"]
        rows = [[*row, below] for row, below in zip(rows, part.below, strict=True)]
    left = len(rows) - MOST_ROWS
    more = f"\n\n{count(left, 'more row')} left out." if left > 0 else ""
    caption = f"{text(part.caption)}:\n\n" if part.caption else ""
    return caption + table(header, rows[:MOST_ROWS]) + more


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(map(text, header))} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(_cell, row))} |" for row in rows)])


def _cell(value: object) -> str:
    if not isinstance(value, Cell):
        return text(value)
    return code(value.value) if value.code else text(value.value)
