"""Parts as lines for a terminal or a pipe."""

from __future__ import annotations

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
    MISSING,
    PIPE,
    Screen,
    cell,
    clean,
    folded,
    width_of,
    wrapped,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
        return _facts(part.pairs, screen)
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
    verdict = [screen.paint(line, colour) for line in _sentence(part.whole, screen)]
    return verdict + [line for text in part.under for line in _sentence(text, screen)]


def _sentence(text: str | Cell, screen: Screen, indent: str = "") -> list[str]:
    if isinstance(text, Cell):
        return [f"{indent}  {clean(str(text.value))}"]
    return wrapped(indent + cell(text), screen.width)


def _facts(pairs: Sequence[tuple[str, object]], screen: Screen) -> list[str]:
    """Return names and values as lines; long values are folded next to the name."""
    names = [cell(name) for name, _ in pairs]
    wide = max(map(width_of, names), default=0) + 2
    out = []
    for name, (_, value) in zip(names, pairs, strict=True):
        text = "-" if value == MISSING else cell(value)
        lines = [text] if screen.width is None else folded(text, screen.width - wide, whole=True)
        out += [
            screen.paint(name, "2") + " " * (wide - width_of(name)) + lines[0],
            *(" " * wide + line for line in lines[1:]),
        ]
    return out


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
    from orchestrator.views.layout import TableLayout

    layout = TableLayout(part)
    lines = layout.lines(screen)
    legend = part.explained(layout.shown(screen)) if part.legend else ""
    return [*lines, "", *_paragraph(legend, screen)] if legend else lines


def _steps(part: Steps, screen: Screen) -> list[str]:
    out = []
    for index, step in enumerate(part.steps, 1):
        out += _sentence(f"{index}. {step.title}", screen)
        for text in step.lines:
            out += _paragraph(text, screen, INDENT)
    return out
