"""A small SVG chart: scales, axes, lines, marks, bars and bands. Colours are the page's CSS classes.

Marks can be reached by keyboard; what a mark says is shown in the strip above the plot when it is pointed at or has
the focus, so that no tooltip ever covers another mark. Series differ in colour, dash and shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.report.markup import Safe, tag, void

WIDTH = 900
COLOURS = 7
DASHES = (None, "7 4", "2 3", "9 3 2 3")
Point = tuple[float, float]


def ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Round numbers from `low` to `high`, about `wanted` of them."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    raw = span / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_text(value: float, step: float) -> str:
    """A tick with as many decimals as its step needs; thousands and millions are shortened."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if (abs(step) >= size / 100 and abs(value) >= size) or abs(step) >= size:
            return f"{value / size:.{_decimals(step / size)}f}{letter}"
    return f"{value:.{_decimals(step)}f}"


def _decimals(step: float) -> int:
    digits = 0
    while digits < 8 and abs(step * 10**digits - round(step * 10**digits)) > 1e-6:
        digits += 1
    return digits


def widened(values: Sequence[float], share: float = 0.06) -> tuple[float, float]:
    """The range of `values`, a bit wider; a range of some width even for a single value."""
    low, high = min(values), max(values)
    pad = (high - low) * share or abs(high) * share or 1.0
    return low - pad, high + pad


class Chart:
    """One chart. `x` and `y` are the ranges of the data; positions are in SVG units, 900 wide."""

    def __init__(
        self,
        name: str,
        title: str,
        description: str,
        x: Point,
        y: Point,
        *,
        height: int = 340,
        left: int = 70,
        top: int = 52,
        bottom: int = 46,
    ) -> None:
        self.name, self.title, self.description = name, title, description
        self.x_range, self.y_range = x, y
        self.height = height
        self.box = (left, top, WIDTH - 18, height - bottom)
        self.parts: list[Safe] = []

    def x(self, value: float) -> float:
        low, high = self.x_range
        left, _, right, _ = self.box
        return left + (value - low) / (high - low or 1) * (right - left)

    def y(self, value: float) -> float:
        low, high = self.y_range
        _, top, _, bottom = self.box
        return bottom - (value - low) / (high - low or 1) * (bottom - top)

    def x_axis(self, label: str, texts: Sequence[tuple[float, str]] | None = None) -> None:
        """Ticks and the axis label below the plot; `texts` are ticks with names of their own."""
        left, top, right, bottom = self.box
        marks = list(texts) if texts is not None else self._numbers(self.x_range, 8)
        for value, text in marks:
            at = self.x(value)
            if texts is None:
                self.parts.append(void("line", class_="grid", x1=_n(at), x2=_n(at), y1=top, y2=bottom))
            self.parts.append(tag("text", text, class_="tick", x=_n(at), y=bottom + 17, text_anchor="middle"))
        self.parts.append(void("line", class_="axis", x1=left, x2=right, y1=bottom, y2=bottom))
        self.parts.append(
            tag("text", label, class_="label", x=_n((left + right) / 2), y=bottom + 38, text_anchor="middle")
        )

    def y_axis(self, label: str, texts: Sequence[tuple[float, str]] | None = None) -> None:
        """Ticks to the left, and the axis label above them."""
        left, top, right, _ = self.box
        marks = list(texts) if texts is not None else self._numbers(self.y_range, 5)
        for value, text in marks:
            at = self.y(value)
            if texts is None:
                self.parts.append(void("line", class_="grid", x1=left, x2=right, y1=_n(at), y2=_n(at)))
            self.parts.append(tag("text", text, class_="tick", x=left - 8, y=_n(at + 4), text_anchor="end"))
        self.parts.append(tag("text", label, class_="label", x=6, y=top - 10))

    def _numbers(self, span: Point, wanted: int) -> list[tuple[float, str]]:
        values = ticks(*span, wanted)
        step = values[1] - values[0] if len(values) > 1 else span[1] - span[0]
        return [(value, tick_text(value, step)) for value in values]

    def band(self, low: float, high: float, class_: str) -> None:
        """A vertical band from x = low to x = high, cut to the plot."""
        _, top, _, bottom = self.box
        left, right = (self.x(min(max(value, self.x_range[0]), self.x_range[1])) for value in (low, high))
        self.parts.append(
            void("rect", class_=class_, x=_n(left), y=top, width=_n(max(0.0, right - left)), height=bottom - top)
        )

    def level(self, value: float, text: str, class_: str) -> None:
        """A horizontal line; its text stands above the plot to the right, where it covers nothing."""
        left, top, right, _ = self.box
        at, width = self.y(value), 7.2 * len(text)
        self.parts.append(void("line", class_=class_, x1=left, x2=right, y1=_n(at), y2=_n(at)))
        self.parts.append(
            void("line", class_=class_, x1=_n(right - width - 34), x2=_n(right - width - 6), y1=top - 15, y2=top - 15)
        )
        self.parts.append(tag("text", text, class_="note", x=right, y=top - 11, text_anchor="end"))

    def text(self, x: float, y: float, text: str) -> None:
        """Text centred at a place of the SVG, readable on anything."""
        self.parts.append(tag("text", text, class_="value halo", x=_n(x), y=_n(y), text_anchor="middle"))

    def upright(self, value: float, text: str, class_: str, row: int) -> None:
        """A vertical line with its text above the plot, in a row of its own so that texts never meet."""
        _, top, _, bottom = self.box
        at, height = self.x(value), top - 8 - 17 * row
        side = "end" if at > WIDTH / 2 else "start"
        self.parts.append(void("line", class_=class_, x1=_n(at), x2=_n(at), y1=height - 10, y2=bottom))
        self.parts.append(
            tag("text", text, class_="note", x=_n(at + (6 if side == "start" else -6)), y=height, text_anchor=side)
        )

    def line(self, points: Sequence[Point], index: int, says: str, *, shapes: bool = True) -> None:
        """A series; every point gets its shape when there are few, else only the last one."""
        places = [(self.x(x), self.y(y)) for x, y in points]
        path = Safe(" ".join(f"{_n(x)},{_n(y)}" for x, y in places))
        marked = places if shapes and len(places) <= 24 else places[-1:]
        colour = f"c{index % COLOURS}"
        self.mark(
            says,
            void("polyline", class_="hit", points=path),
            void("polyline", class_=f"line {colour}", points=path, stroke_dasharray=dash(index)),
            *(shape(index, x, y, colour) for x, y in marked),
        )

    def mark(self, says: str, *children: Safe) -> None:
        """Something that can be pointed at and focused; `says` is what it is."""
        self.parts.append(
            tag("g", *children, self._tip(says), class_="mark", tabindex="0", role="img", aria_label=says)
        )

    def _tip(self, says: str) -> Safe:
        return tag(
            "g",
            void("rect", class_="tipbox", x=0, y=0, width=WIDTH, height=22),
            tag("text", says, class_="tiptext", x=6, y=15),
            class_="tip",
            aria_hidden="true",
        )

    def svg(self) -> Safe:
        labels = (f"chart-{self.name}-title", f"chart-{self.name}-desc")
        return tag(
            "svg",
            tag("title", self.title, id=labels[0]),
            tag("desc", self.description, id=labels[1]),
            *self.parts,
            viewBox=f"0 0 {WIDTH} {self.height}",
            role="group",
            aria_labelledby=" ".join(labels),
            class_="chart",
            id=f"chart-{self.name}",
        )


def dash(index: int) -> str | None:
    return DASHES[index // COLOURS % len(DASHES)]


def shape(index: int, x: float, y: float, colour: str) -> Safe:
    """The series' own mark: circle, square, triangles, diamond, cross, plus."""
    kind, r = index % COLOURS, 4.2
    if kind == 0:
        return void("circle", class_=f"dot {colour}", cx=_n(x), cy=_n(y), r=r - 0.4)
    outlines = {
        1: ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        2: ((0, -1.2), (1.1, 0.9), (-1.1, 0.9)),
        3: ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
        4: ((0, 1.2), (1.1, -0.9), (-1.1, -0.9)),
        5: ((-1.3, 0), (1, -1), (1, 1)),
        6: ((1.3, 0), (-1, -1), (-1, 1)),
    }
    points = Safe(" ".join(f"{_n(x + dx * r * 0.9)},{_n(y + dy * r * 0.9)}" for dx, dy in outlines[kind]))
    return void("polygon", class_=f"dot {colour}", points=points)


def swatch(*inner: Safe, width: int, height: int) -> Safe:
    """A small picture of what `inner` draws, for a legend."""
    box = f"0 0 {width} {height}"
    return tag("svg", *inner, viewBox=box, width=width, height=height, aria_hidden="true", class_="swatch")


def legend(*items: tuple[Safe | str, str]) -> Safe:
    """What the marks of a chart mean: (swatch, text) each."""
    return tag("ul", *(tag("li", mark, text) for mark, text in items), class_="legend")


def series(index: int) -> Safe:
    """The swatch of a series: a piece of its line with its mark."""
    colour = f"c{index % COLOURS}"
    line = void("line", class_=f"line {colour}", x1=1, x2=33, y1=8, y2=8, stroke_dasharray=dash(index))
    return swatch(line, shape(index, 17, 8, colour), width=34, height=16)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


fixed = _n
"""A position as SVG text, with one decimal."""
