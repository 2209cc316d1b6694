"""The parts of a view, for every renderer."""

from __future__ import annotations

from orchestrator.frozen import Frozen
from orchestrator.words import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orchestrator.views.markup import Safe


MOST_ROWS = 100
"""Rows of a table in a notebook, an issue or a chat."""


class Cell(Frozen):
    """A styled cell: `style` is a class of the style sheet, `href` a file next to the page."""

    value: object
    code: bool = False
    style: str = ""
    href: str = ""


class Headline(Frozen):
    """The verdict of a view. `tone`: its colour, a key of `words.KINDS`; `under`: sentences.

    `reasons` stand behind it; a page lists them.
    """

    kind = "headline"
    text: str
    tone: str = ""
    under: Sequence[str] = ()
    reasons: Sequence[str] = ()

    @property
    def whole(self) -> str:
        """Return the verdict with its reasons as a sentence."""
        return f"{self.text}: {'; '.join(self.reasons)}" if self.reasons else self.text


class Heading(Frozen):
    kind = "heading"
    text: str


class Paragraph(Frozen):
    kind = "text"
    text: str
    style: str = ""


class Sentences(Frozen):
    """Sentences, a line each; cells are commands, which are never broken."""

    kind = "sentences"
    texts: Sequence[str | Cell]


def with_commands(lines: Iterable[str]) -> Sentences:
    """Return sentences; lines indented by two blanks are commands."""
    return Sentences([Cell(line[2:], code=True) if line[:2] == "  " else line for line in lines])


class Bullets(Frozen):
    """Remarks about the part above; with a title, a list of its own. Cells are commands."""

    kind = "bullets"
    items: Sequence[str | Cell]
    title: str = ""


class FactList(Frozen):
    kind = "facts"
    pairs: Sequence[tuple[str, str]]


class Table(Frozen):
    """Rows under a header; a row's first cell is its heading.

    `numeric`: indexes of right-aligned columns; `states`: with signs and colours. A narrow terminal
    moves the columns `under` below their rows, then drops the columns `leave` (views/layout.py).
    `remark`: the name of a column of the texts `below`.
    """

    kind = "table"
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    numeric: Sequence[int] = ()
    dense: bool = False
    remark: str = "remark"
    below: Sequence[str] = ()
    """A text under each row, as wide as the table; "" if missing."""
    states: Sequence[int] = ()
    under: Sequence[str] = ()
    leave: Sequence[str] = ()
    legend: Mapping[str, str] = {}
    """Column -> explanation, for a line under a terminal's table."""

    @property
    def headings(self) -> list[str]:
        """Return the names of all columns, that of the texts below included."""
        return [*self.header, *([self.remark] if self.below else [])]

    @property
    def whole_rows(self) -> list[list[object]]:
        """Return the rows with the texts below them as their last cells."""
        if not self.below:
            return list(map(list, self.rows))
        return [[*row, text] for row, text in zip(self.rows, self.below, strict=True)]

    def first(self, most: int) -> tuple[Table, str]:
        """Return the table with its first rows, and a sentence about the others, or ""."""
        left = len(self.rows) - most
        if left <= 0:
            return self, ""
        table = self.replace(rows=self.rows[:most], below=self.below[:most])
        return table, f"{count(left, 'more row')} left out."

    def explained(self, columns: Sequence[str]) -> str:
        """Return the explanations of `columns` as a sentence."""
        texts = [f"{name}: {text}" for name, text in self.legend.items() if name in columns]
        joined = "; ".join(texts)
        return f"{joined[:1].upper()}{joined[1:]}." if joined else ""

    @property
    def style(self) -> str:
        return "dense" if self.dense else "narrow" if len(self.header) <= 3 else ""


class Figure(Frozen):
    kind = "figure"
    chart: Safe
    caption: str


class Details(Frozen):
    """A part folded at first; `paper`: printed, too."""

    kind = "details"
    summary: str
    part: Table | Steps
    paper: bool = True


class Step(Frozen):
    """A step of the score's arithmetic, with its result `value`."""

    title: str
    lines: tuple[str, ...]
    value: float | None = None
    unit: str = ""

    def to_json(self) -> dict[str, object]:
        return self.named()


class Steps(Frozen):
    kind = "steps"
    steps: Sequence[Step]


Part = (
    Headline
    | Heading
    | Paragraph
    | Sentences
    | Bullets
    | FactList
    | Table
    | Figure
    | Details
    | Steps
)


class Section(Frozen):
    """A section; `name` is its link. An `appendix` is printed in small type."""

    name: str
    title: str
    parts: Sequence[Part]
    appendix: bool = False
