"""Parts as lines for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.views.figures import MISSING
from orchestrator.views.parts import Bullets, Cell, Details, Heading, Paragraph, Part, Steps, Table
from orchestrator.words import INDENT, PIPE, Screen, TextTable, cell, folded

_BELOW = "REMARK"


def lines(parts: Iterable[Part], screen: Screen = PIPE) -> list[str]:
    """Return the parts, with an empty line before each but bullets. Charts are left out: their
    numbers follow them."""
    out: list[str] = []
    for part in parts:
        block = _lines(part, screen)
        if out and block and not isinstance(part, Bullets):
            out.append("")
        out += block
    return out


def _lines(part: Part, screen: Screen) -> list[str]:
    if isinstance(part, Table):
        return _table(part, screen)
    if isinstance(part, Details):
        return _lines(part.part, screen)
    if isinstance(part, Bullets):
        return [line for item in part.items for line in hanging(item, screen)]
    if isinstance(part, Paragraph):
        return hanging(part.text, screen, indent="")
    if isinstance(part, Heading):
        return [screen.paint(cell(part.text), "1")]
    return _steps(part, screen) if isinstance(part, Steps) else []


def hanging(text: str, screen: Screen, indent: str = INDENT) -> list[str]:
    """Return a sentence, folded on a screen, indented from the second line on."""
    if screen.width is None:
        return [cell(text)]
    first, *rest = folded(cell(text), screen.width - len(indent))
    return [first, *(indent + line for line in rest)]


def _table(part: Table, screen: Screen) -> list[str]:
    names = [name.upper() for name in part.header]
    table = TextTable(
        *names,
        *([_BELOW] if part.below else []),
        right=[names[index] for index in part.numeric],
        states=[names[index] for index in part.states],
        below=[_BELOW],
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
