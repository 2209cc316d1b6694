"""Parts as Markdown, for an issue, a pull request or a chat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from orchestrator.views.markup import clean
from orchestrator.views.parts import (
    MOST_ROWS,
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
from orchestrator.words import Screen

_SIGNS = Screen(signs="unicode")
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
        return _headline(part)
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


def _headline(part: Headline) -> str:
    verdict, under = f"**{text(part.text, 1000)}**", "  \n".join(map(_sentence, part.under))
    if not part.reasons:
        return "  \n".join(filter(None, [verdict, under]))
    reasons = "\n".join(f"- {text(reason, 1000)}" for reason in part.reasons)
    return "\n\n".join(filter(None, [verdict, reasons, under]))


def _steps(part: Steps) -> str:
    lines = []
    for index, step in enumerate(part.steps, 1):
        lines.append(f"{index}. {text(step.title, 200)}")
        lines += [f"   - {text(line, 4000)}" for line in step.lines]
    return "\n".join(lines)


def _table(part: Table) -> str:
    part, more = part.first(MOST_ROWS)
    caption = f"{text(part.caption)}:\n\n" if part.caption else ""
    rows = [
        [
            value
            if isinstance(value, Cell) or index not in part.states
            else _SIGNS.sign(str(value))
            for index, value in enumerate(row)
        ]
        for row in part.whole_rows
    ]
    return caption + table(part.headings, rows) + (f"\n\n{more}" if more else "")


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(map(text, header))} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(_cell, row))} |" for row in rows)])


def _cell(value: object) -> str:
    if not isinstance(value, Cell):
        return text(value)
    return code(value.value) if value.code else text(value.value)
