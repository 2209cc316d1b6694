"""The columns of a table, for a terminal of any width and for a pipe."""

from __future__ import annotations

from orchestrator.views.figures import GROUPS
from orchestrator.views.parts import Cell
from orchestrator.words import (
    INDENT,
    MISSING,
    NARROWEST,
    PIPE,
    Screen,
    cell,
    colour_of,
    folded,
    width_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.views.parts import Table

ALONE = 0.6
"""An id wider than this share of the screen gets its own line, above the other cells of its row."""


class TableLayout:
    """Rows under a header in capitals, for any width. Columns are known by their index: two may
    have the same name.

    The first column is a row's subject, to be copied: never folded or dropped. While lines are too
    long, empty columns are dropped; then the columns `under` and the texts `below` move under their
    row; then columns are dropped in the order of `leave`. If that has the first column, its ids get
    their own lines, and all others are tried again. A column in both moves under its row in its
    turn. Columns still too wide are folded, except code: pasted, a broken command would be two.
    """

    def __init__(self, part: Table) -> None:
        self.part = part
        self.columns = [_heading(name) for name in part.headings]
        self.commands = {index for index in range(len(part.header)) if _has_code(part, index)}
        self.under = [*_indexes(part, part.under), *range(len(part.header), len(self.columns))]
        later = _indexes(part, part.leave)
        self.leave = [*(index for index in self.under if index not in later), *later]
        self.rows = [
            [_text(value, index in part.numeric) for index, value in enumerate(row)]
            for row in part.whole_rows
        ]

    def lines(self, screen: Screen = PIPE) -> list[str]:
        """Return header and rows. Only an id, a word under a row or a command is wider than the
        screen."""
        widths, under = self._fitting(screen)
        if screen.width is not None:
            self._fold(widths, screen.width)
        out = self._row(self.columns, widths, screen, header=True)
        for row in self.rows:
            out += self._row(row, widths, screen)
            for index in under:
                if row[index] in ("", "-"):
                    continue
                width = (screen.width or 80) - len(INDENT)
                whole = index in self.commands
                texts = [row[index]] if whole else folded(row[index], width, whole=True)
                out += [INDENT + text for text in texts]
        return out

    def shown(self, screen: Screen = PIPE) -> list[str]:
        """Return the names in the table's header that lines() shows."""
        widths, under = self._fitting(screen)
        names = enumerate(self.part.header)
        return [name for index, name in names if index in widths or index in under]

    def _width(self, index: int, screen: Screen, *, alone: bool) -> int:
        is_state = index in self.part.states
        texts = (screen.sign(row[index]) if is_state else row[index] for row in self.rows)
        widths = list(map(width_of, texts))
        if not index and screen.width is not None:
            # A longer id gets its own line, and does not take the room of the other columns.
            most = NARROWEST if alone else screen.width * ALONE
            widths = [wide for wide in widths if wide <= most]
        return max([width_of(self.columns[index]), *widths])

    def _fitting(self, screen: Screen, *, alone: bool = False) -> tuple[dict[int, int], list[int]]:
        """Return widths of the columns side by side, and the columns that move under their rows.
        `alone`: ids of the first column have their own lines."""
        under = list[int]()
        columns = range(len(self.columns))
        widths = {index: self._width(index, screen, alone=alone) for index in columns}
        silent = [
            index for index in columns[1:] if all(row[index] in ("", "-") for row in self.rows)
        ]
        for index in (*silent, *self.leave):
            if screen.width is None or _sum(widths) <= screen.width:
                break
            if not index:
                if not alone:
                    return self._fitting(screen, alone=True)
            elif widths.pop(index, None) is not None:
                under += [index] if index in self.under and index not in silent else []
        return widths, sorted(under)

    def _fold(self, widths: dict[int, int], width: int) -> None:
        """Narrow the widest columns until a line fits, never the first."""
        others = list(widths)[1:]
        while others and (more := _sum(widths) - width) > 0:
            widest = max(others, key=widths.__getitem__)
            if widths[widest] <= NARROWEST:
                return
            second = max([widths[index] for index in others if index != widest], default=0)
            widths[widest] = max(NARROWEST, widths[widest] - more, min(second, widths[widest] - 1))

    def _row(
        self, row: Sequence[str], widths: dict[int, int], screen: Screen, *, header: bool = False
    ) -> list[str]:
        states = () if header else self.part.states
        texts = {
            index: screen.sign(row[index]) if index in states else row[index] for index in widths
        }
        out = []
        if len(widths) > 1 and width_of(texts[0]) > widths[0]:
            out, texts[0] = [texts[0]], ""
        parts = {
            index: folded(text, widths[index])
            if index and width_of(text) > widths[index]
            else [text]
            for index, text in texts.items()
        }
        for place in range(max(map(len, parts.values()))):
            line = ""
            for index, pieces in parts.items():
                piece = pieces[place] if place < len(pieces) else ""
                code = "1" if header else colour_of(row[index]) if index in states else ""
                pad = " " * (widths[index] - width_of(piece))
                text = screen.paint(piece, code)
                line += (pad + text if index in self.part.numeric else text + pad) + "  "
            out.append(line.rstrip())
        return out


def _sum(widths: dict[int, int]) -> int:
    return sum(widths.values()) + 2 * (len(widths) - 1)


def _indexes(part: Table, names: Iterable[str]) -> list[int]:
    """Return the columns with these names, in the order of the names."""
    return [index for name in names for index, each in enumerate(part.header) if each == name]


def _has_code(part: Table, index: int) -> bool:
    cells = (row[index] for row in part.rows)
    return any(isinstance(value, Cell) and value.code for value in cells)


def _heading(name: str) -> str:
    """Return a name in capitals, but not times and entries: `WITHIN 24h`, `MI355X_1x8x1:flux1`."""
    text = cell(name)
    if ":" in text:
        return text
    return " ".join(word if word[:1].isdigit() else word.upper() for word in text.split(" "))


def _text(value: object, is_number: bool) -> str:
    text = cell(value.value if isinstance(value, Cell) else value)
    if text == MISSING:
        return "-"
    digits = text.replace(GROUPS, "")
    return digits if is_number and digits.lstrip("-").isdecimal() else text
