"""The columns of a table, for a terminal of any width and for a pipe."""

from __future__ import annotations

from orchestrator.views.figures import GROUPS, MISSING
from orchestrator.views.parts import Cell
from orchestrator.words import INDENT, NARROWEST, PIPE, Screen, cell, colour_of, folded, width_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from orchestrator.views.parts import Table

ALONE = 0.6
"""An id wider than this share of the screen gets its own line, above the other cells of its row."""


class TableLayout:
    """Rows under a header in capitals, for any width.

    The first column is a row's subject: never folded or dropped, to be copied. While lines are too
    long, empty columns are dropped; then the columns `under` and the texts `below` move, indented,
    under their row; then columns are dropped in the order of `leave`. If `leave` has the first
    column, its ids get their own lines, and all others are tried again. Columns still too wide are
    folded, except code under a row: pasted, a broken command would be two.
    """

    def __init__(self, part: Table) -> None:
        names = [*map(_heading, part.header)]
        remark = _heading(part.remark or "remark")
        self.part = part
        self.columns = [*names, *([remark] if part.below or part.remark else [])]
        self.right = {names[index] for index in part.numeric}
        self.states = {names[index] for index in part.states}
        self.commands = {name for index, name in enumerate(names) if _has_code(part, index)}
        self.under = [*map(_heading, part.under), remark]
        rows = part.rows
        if part.below:
            rows = [[*row, text] for row, text in zip(rows, part.below, strict=True)]
        self.rows = [dict(zip(self.columns, map(_text, row), strict=True)) for row in rows]

    def lines(self, screen: Screen = PIPE) -> list[str]:
        """Return header and rows. Only an id, a word under a row or a command is wider than the
        screen."""
        widths, under = self._fitting(screen)
        if screen.width is not None:
            self._fold(widths, screen.width)
        out = self._row({name: name for name in self.columns}, widths, screen, header=True)
        for row in self.rows:
            out += self._row(row, widths, screen)
            for name in under:
                if row[name] in ("", "-"):
                    continue
                width = (screen.width or 80) - len(INDENT)
                whole = name in self.commands
                texts = [row[name]] if whole else folded(row[name], width, whole=True)
                out += [INDENT + text for text in texts]
        return out

    def shown(self, screen: Screen = PIPE) -> list[str]:
        """Return the names in the table's header that lines() shows."""
        widths, under = self._fitting(screen)
        return [name for name in self.part.header if _heading(name) in (*widths, *under)]

    def _width(self, name: str, screen: Screen, *, alone: bool) -> int:
        texts = (screen.sign(row[name]) if name in self.states else row[name] for row in self.rows)
        widths = list(map(width_of, texts))
        if name == self.columns[0] and screen.width is not None:
            # A longer id gets its own line, and does not take the room of the other columns.
            most = NARROWEST if alone else screen.width * ALONE
            widths = [wide for wide in widths if wide <= most]
        return max([width_of(name), *widths])

    def _fitting(self, screen: Screen, *, alone: bool = False) -> tuple[dict[str, int], list[str]]:
        """Return widths of the columns side by side, and the columns that move under their rows.
        `alone`: ids of the first column have their own lines."""
        under = list[str]()
        first, *others = self.columns
        widths = {name: self._width(name, screen, alone=alone) for name in self.columns}
        silent = [name for name in others if all(row[name] in ("", "-") for row in self.rows)]
        for name in (*silent, *self.under, *map(_heading, self.part.leave)):
            if screen.width is None or _sum(widths) <= screen.width:
                break
            if name == first:
                if not alone:
                    return self._fitting(screen, alone=True)
            elif widths.pop(name, None) is not None:
                under += [name] if name in self.under and name not in silent else []
        return widths, sorted(under, key=self.columns.index)

    def _fold(self, widths: dict[str, int], width: int) -> None:
        """Narrow the widest columns until a line fits, never the first."""
        others = list(widths)[1:]
        while others and (more := _sum(widths) - width) > 0:
            widest = max(others, key=widths.__getitem__)
            if widths[widest] <= NARROWEST:
                return
            second = max([widths[name] for name in others if name != widest], default=0)
            widths[widest] = max(NARROWEST, widths[widest] - more, min(second, widths[widest] - 1))

    def _row(
        self, row: dict[str, str], widths: dict[str, int], screen: Screen, *, header: bool = False
    ) -> list[str]:
        first, out = self.columns[0], []
        texts = {
            name: screen.sign(row[name]) if name in self.states and not header else row[name]
            for name in widths
        }
        if len(widths) > 1 and width_of(texts[first]) > widths[first]:
            out, texts[first] = [texts[first]], ""
        parts = {
            name: [text] if width_of(text) <= widths[name] else folded(text, widths[name])
            for name, text in texts.items()
            if name != first
        }
        parts = {first: [texts[first]], **parts}
        for index in range(max(map(len, parts.values()))):
            line = ""
            for name, pieces in parts.items():
                piece = pieces[index] if index < len(pieces) else ""
                code = "1" if header else colour_of(row[name]) if name in self.states else ""
                pad = " " * (widths[name] - width_of(piece))
                text = screen.paint(piece, code)
                line += (pad + text if name in self.right else text + pad) + "  "
            out.append(line.rstrip())
        return out


def _sum(widths: dict[str, int]) -> int:
    return sum(widths.values()) + 2 * (len(widths) - 1)


def _has_code(part: Table, index: int) -> bool:
    cells = (row[index] for row in part.rows)
    return any(isinstance(value, Cell) and value.code for value in cells)


def _heading(name: str) -> str:
    """Return a name in capitals, but not times and entries: `WITHIN 24h`, `MI355X_1x8x1:flux1`."""
    return " ".join(
        word if word[:1].isdigit() or ":" in word else word.upper() for word in name.split(" ")
    )


def _text(value: object) -> str:
    text = cell(value.value if isinstance(value, Cell) else value)
    return "-" if text == MISSING else text.replace(GROUPS, "")
