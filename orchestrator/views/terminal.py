"""Parts as lines for a terminal or a pipe."""

from __future__ import annotations

from orchestrator.views.figures import GROUPS, MISSING
from orchestrator.views.parts import (
    Bullets,
    Cell,
    Details,
    FactList,
    Heading,
    Headline,
    Paragraph,
    Sentences,
    Steps,
    Table,
)
from orchestrator.words import (
    INDENT,
    KINDS,
    PIPE,
    Screen,
    TextTable,
    cell,
    clean,
    facts,
    folded,
    wrapped,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.views.parts import Part


def lines(parts: Iterable[Part], screen: Screen = PIPE) -> list[str]:
    """Return the parts, with an empty line before each but remarks; charts are left out."""
    out: list[str] = []
    for part in parts:
        block = _lines(part, screen)
        is_remark = isinstance(part, Bullets) and not part.title
        if out and block and not is_remark:
            out.append("")
        out += block
    return out


def _lines(part: Part, screen: Screen) -> list[str]:
    if isinstance(part, Table):
        return _table(part, screen)
    if isinstance(part, Details):
        return _lines(part.part, screen)
    if isinstance(part, FactList):
        return facts(part.pairs, screen)
    if isinstance(part, Sentences):
        return [line for text in part.texts for line in _sentence(text, screen)]
    if isinstance(part, Bullets):
        return _bullets(part, screen)
    if isinstance(part, Paragraph):
        return _paragraph(part.text, screen)
    if isinstance(part, Heading):
        return [screen.paint(cell(part.text), "1")]
    if isinstance(part, Headline):
        return _headline(part, screen)
    return _steps(part, screen) if isinstance(part, Steps) else []


def _headline(part: Headline, screen: Screen) -> list[str]:
    colour = f"1;{KINDS[part.tone][2]}" if part.tone else "1"
    verdict = [screen.paint(line, colour) for line in _sentence(part.text, screen)]
    return verdict + [line for text in part.under for line in _sentence(text, screen)]


def _sentence(text: str | Cell, screen: Screen, indent: str = "") -> list[str]:
    if isinstance(text, Cell):
        return [f"{indent}  {clean(str(text.value))}"]
    return wrapped(indent + cell(text), screen.width)


def _bullets(part: Bullets, screen: Screen) -> list[str]:
    if not part.title or not part.items:
        return [line for item in part.items for line in _sentence(item, screen)]
    items = [line for item in part.items for line in _sentence(item, screen, "  ")]
    return [*_sentence(f"{part.title}:", screen), *items]


def _paragraph(text: str, screen: Screen, indent: str = "") -> list[str]:
    if screen.width is None:
        return [indent + cell(text)]
    lines = folded(cell(text), screen.width - len(indent), whole=True)
    return [indent + line for line in lines]


def _table(part: Table, screen: Screen) -> list[str]:
    names = [*map(_heading, part.header)]
    below = _heading(part.remark or "remark")
    table = TextTable(
        *names,
        *([below] if part.below or part.remark else []),
        right=[names[index] for index in part.numeric],
        states=[names[index] for index in part.states],
        below=[below],
        leave=[*map(_heading, part.leave)],
    )
    rows = [[_text(value) for value in row] for row in part.rows]
    if part.below:
        rows = [[*row, text] for row, text in zip(rows, part.below, strict=True)]
    lines = table.lines(rows, screen)
    if not part.legend:
        return lines
    shown = table.shown(rows, screen)
    legend = part.explained([name for name in part.header if _heading(name) in shown])
    return [*lines, "", *_paragraph(legend, screen)] if legend else lines


def _heading(name: str) -> str:
    """Return a name in capitals, but not times: `WITHIN 24h`."""
    return " ".join(word if word[:1].isdigit() else word.upper() for word in name.split(" "))


def _text(value: object) -> str:
    text = str(value.value if isinstance(value, Cell) else value)
    return "-" if text == MISSING else text.replace(GROUPS, "")


def _steps(part: Steps, screen: Screen) -> list[str]:
    out = []
    for index, step in enumerate(part.steps, 1):
        out += _sentence(f"{index}. {step.title}", screen)
        for text in step.lines:
            out += _paragraph(text, screen, INDENT)
    return out
