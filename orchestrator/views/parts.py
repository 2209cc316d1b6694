"""The parts of a view, for every renderer."""

from __future__ import annotations

from orchestrator.frozen import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orchestrator.views.markup import Safe


class Cell(Frozen):
    """A styled cell: `style` is a class of the style sheet, `href` a file next to the page."""

    value: object
    code: bool = False
    style: str = ""
    href: str = ""


class Headline(Frozen):
    """The verdict of a view. `tone`: its colour, a key of `words.KINDS`; `under`: sentences."""

    kind = "headline"
    text: str
    tone: str = ""
    under: Sequence[str] = ()


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
    moves the columns `under` below their rows, where code cells stay whole, and then drops the
    columns `leave`, both in this order. `remark`: the column of the texts `below` on a wide one.
    """

    kind = "table"
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    numeric: Sequence[int] = ()
    dense: bool = False
    remark: str = ""
    below: Sequence[str] = ()
    """A text under each row, as wide as the table; "" if missing."""
    states: Sequence[int] = ()
    under: Sequence[str] = ()
    leave: Sequence[str] = ()
    legend: Mapping[str, str] = {}
    """Column -> explanation, for a line under a terminal's table."""

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
        return {
            "title": self.title,
            "lines": self.lines,
            "value": self.value,
            "unit": self.unit,
        }


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
