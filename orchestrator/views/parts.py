"""The parts of a view, as plain values, for every renderer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from orchestrator.views.markup import Safe


@dataclass(frozen=True)
class Cell:
    """A styled cell: `style` is a class of the style sheet, `href` a file next to the page."""

    value: object
    code: bool = False
    style: str = ""
    href: str = ""


@dataclass(frozen=True)
class Paragraph:
    kind: ClassVar[str] = "text"
    text: str
    style: str = ""


@dataclass(frozen=True)
class Heading:
    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class Bullets:
    kind: ClassVar[str] = "bullets"
    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Rows under a header; a row's first cell is its heading.

    `numeric`: indexes of right-aligned columns. `states`: of columns with signs and colours.
    `leave`: columns that a narrow terminal drops, in this order.
    """

    kind: ClassVar[str] = "table"
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    numeric: Sequence[int] = ()
    dense: bool = False
    below: Sequence[str] = ()
    """A text under each row, as wide as the table; "" if missing."""
    states: Sequence[int] = ()
    leave: Sequence[str] = ()
    legend: Mapping[str, str] = field(default_factory=dict)
    """Column -> explanation, for a line under a terminal's table."""

    def explained(self, columns: Sequence[str]) -> str:
        """Return the explanations of `columns` as a sentence; "" without any."""
        texts = [f"{name}: {text}" for name, text in self.legend.items() if name in columns]
        joined = "; ".join(texts)
        return f"{joined[:1].upper()}{joined[1:]}." if joined else ""

    @property
    def style(self) -> str:
        return "dense" if self.dense else "narrow" if len(self.header) <= 3 else ""


@dataclass(frozen=True)
class Figure:
    kind: ClassVar[str] = "figure"
    chart: Safe
    caption: str


@dataclass(frozen=True)
class Details:
    """A part folded at first; `paper`: printed, too."""

    kind: ClassVar[str] = "details"
    summary: str
    part: Table | Steps
    paper: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the score's arithmetic: operation, numbers, and the result `value`."""

    title: str
    lines: tuple[str, ...]
    value: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class Steps:
    kind: ClassVar[str] = "steps"
    steps: Sequence[Step]


Part = Paragraph | Heading | Bullets | Table | Figure | Details | Steps


@dataclass(frozen=True)
class Section:
    """A section; `name` is its link. An `appendix` is printed in small type."""

    name: str
    title: str
    parts: Sequence[Part]
    appendix: bool = False
