"""Parts as lines for a terminal or a pipe."""

from __future__ import annotations

from orchestrator.views.figures import MISSING
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
    """Return the parts, with an empty line before each but remarks. Charts are left out: their
    numbers follow them."""
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
        return hanging(part.text, screen, indent="")
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
    if part.title and part.items:
        items = [line for item in part.items for line in _sentence(item, screen, "  ")]
        return [*_sentence(f"{part.title}:", screen), *items]
    return [
        line
        for item in part.items
        for line in (_sentence(item, screen) if isinstance(item, Cell) else hanging(item, screen))
    ]


def hanging(text: str, screen: Screen, indent: str = INDENT) -> list[str]:
    """Return a sentence, folded on a screen, indented from the second line on."""
    if screen.width is None:
        return [cell(text)]
    first, *rest = folded(cell(text), screen.width - len(indent))
    return [first, *(indent + line for line in rest)]


def _table(part: Table, screen: Screen) -> list[str]:
    names = [name.upper() for name in part.header]
    below = (part.remark or "remark").upper()
    table = TextTable(
        *names,
        *([below] if part.below or part.remark else []),
        right=[names[index] for index in part.numeric],
        states=[names[index] for index in part.states],
        below=[below],
        leave=[name.upper() for name in part.leave],
    )
    rows = [[_text(value) for value in row] for row in part.rows]
    if part.below:
        rows = [[*row, text] for row, text in zip(rows, part.below, strict=True)]
    lines = table.lines(rows, screen)
    if not part.legend:
        return lines
    shown = table.shown(rows, screen)
    legend = part.explained([name for name in part.header if name.upper() in shown])
    return [*lines, "", *hanging(legend, screen, indent="")] if legend else lines


def _text(value: object) -> str:
    text = str(value.value if isinstance(value, Cell) else value)
    return "-" if text == MISSING else text


def _steps(part: Steps, screen: Screen) -> list[str]:
    out = []
    for index, step in enumerate(part.steps, 1):
        out += hanging(f"{index}. {step.title}", screen)
        for text in step.lines:
            out += [INDENT + line for line in hanging(text, screen, indent="")]
    return out
