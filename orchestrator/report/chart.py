"""A small SVG chart, coloured by the page's CSS classes.

The strip above the plot describes the pointed or focused mark: no tooltip covers another mark.
Series differ in colour, dash and shape; pointing at a series or its legend fades the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap

from orchestrator.views.markup import Safe, clean, join, tag, void

WIDE, NARROW = 900, 350
"""Widths in SVG units, about CSS pixels: on a page, and on a telephone."""
COLOURS = 7
DASHES = (None, "7 4", "2 3", "9 3 2 3")
Point = tuple[float, float]


def ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Return about `wanted` round numbers from `low` to `high`."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    raw = span / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_text(value: float, step: float) -> str:
    """Return a tick with its step's decimals, shortened from thousands on."""
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
    """Return the range of `values`, a bit wider, never empty."""
    low, high = min(values), max(values)
    pad = (high - low) * share or abs(high) * share or 1.0
    return low - pad, high + pad


def zoomed(
    values: Sequence[float], others: Sequence[float], far: float = 2.0
) -> tuple[float, float]:
    """Return the range of `values`, and of the `others` within `far` of their spans.

    Farther values would squeeze the rest.
    """
    low, high = min(values), max(values)
    reach = far * max(high - low, abs(high) * 0.01)
    return widened([low, high, *(min(max(value, low - reach), high + reach) for value in others)])


class Chart:
    """`x` and `y` are the data's ranges; positions and the height `plot` are in SVG units.

    All text is outside the plot, so no line crosses it.
    """

    def __init__(
        self,
        name: str,
        title: str,
        description: str,
        x: Point,
        y: Point,
        *,
        width: int = WIDE,
        plot: int = 240,
        left: int = 70,
        right: int = 18,
    ) -> None:
        self.name, self.title, self.description = name, title, description
        self.x_range, self.y_range = x, y
        self.width, self.narrow = width, width < WIDE
        self.strip = 38 if self.narrow else 22
        top = self.strip + 30
        self.box = (left, top, width - right, top + plot)
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
        """Draw ticks and label below the plot; `texts` are named ticks."""
        left, top, right, bottom = self.box
        marks = self._numbers(self.x_range, 3 if self.narrow else 8) if texts is None else texts
        for value, text in marks:
            at = self.x(value)
            self.parts.append(void("line", class_="grid", x1=_n(at), x2=_n(at), y1=top, y2=bottom))
            self.parts.append(
                tag("text", text, class_="tick", x=_n(at), y=bottom + 17, text_anchor="middle")
            )
        self.parts.append(void("line", class_="axis", x1=left, x2=right, y1=bottom, y2=bottom))
        middle = self.width / 2 if self.narrow else (left + right) / 2
        self.parts.append(
            tag(
                "text",
                self._cut(label),
                class_="label",
                x=_n(middle),
                y=bottom + 38,
                text_anchor="middle",
            )
        )

    def y_axis(self, label: str) -> None:
        """Draw ticks to the left, and the label above them."""
        left, _, right, _ = self.box
        for value, text in self._numbers(self.y_range, 5):
            at = self.y(value)
            self.parts.append(void("line", class_="grid", x1=left, x2=right, y1=_n(at), y2=_n(at)))
            self._beside(at, text)
        self._above(label)

    def rows(self, label: str, names: Sequence[str]) -> None:
        """Draw names to the left, the first on top: row i of n has y = n - 1 - i."""
        for index, name in enumerate(names):
            self._beside(self.y(len(names) - 1 - index), clean(name, letters(self.box[0] - 12)))
        self._above(label)

    def _beside(self, at: float, text: str) -> None:
        self.parts.append(
            tag("text", text, class_="tick", x=self.box[0] - 8, y=_n(at + 4), text_anchor="end")
        )

    def _above(self, label: str) -> None:
        self.parts.append(tag("text", self._cut(label), class_="label", x=6, y=self.box[1] - 12))

    def _cut(self, text: str) -> str:
        return clean(text, letters(self.width))

    def column_head(self, text: str) -> None:
        self.parts.append(
            tag(
                "text",
                text,
                class_="label",
                x=self.width - 4,
                y=self.box[1] - 12,
                text_anchor="end",
            )
        )

    def column(self, at: float, text: str, class_: str = "value") -> None:
        """Draw a text right of the plot, at y = `at`."""
        self.parts.append(
            tag(
                "text",
                text,
                class_=class_,
                x=self.width - 4,
                y=_n(self.y(at) + 4),
                text_anchor="end",
            )
        )

    def _numbers(self, span: Point, wanted: int) -> list[tuple[float, str]]:
        values = next(
            (marks for more in (1, 2, 4) if len(marks := ticks(*span, wanted * more)) > 1),
            [span[0]],
        )
        step = values[1] - values[0] if len(values) > 1 else span[1] - span[0]
        return [(value, tick_text(value, step)) for value in values]

    def band(self, low: float, high: float) -> None:
        """Draw a vertical band, cut to the plot."""
        _, top, _, bottom = self.box
        left, right = (
            self.x(min(max(value, self.x_range[0]), self.x_range[1])) for value in (low, high)
        )
        self.parts.append(
            void(
                "rect",
                class_="band",
                x=_n(left),
                y=top,
                width=_n(max(0.0, right - left)),
                height=bottom - top,
            )
        )

    def level(self, value: float, class_: str) -> None:
        """Draw a horizontal line, explained by the legend."""
        left, _, right, _ = self.box
        at = self.y(value)
        self.parts.append(void("line", class_=class_, x1=left, x2=right, y1=_n(at), y2=_n(at)))

    def upright(self, value: float, class_: str) -> None:
        """Draw a vertical line inside the plot, explained by the legend."""
        _, top, _, bottom = self.box
        if self.x_range[0] <= value <= self.x_range[1]:
            at = _n(self.x(value))
            self.parts.append(void("line", class_=class_, x1=at, x2=at, y1=top, y2=bottom))

    def line(self, points: Sequence[Point], index: int, says: str) -> None:
        """Draw a series with its shape at every point, of a long series at the last."""
        places = [(self.x(x), self.y(y)) for x, y in points]
        path = Safe(" ".join(f"{_n(x)},{_n(y)}" for x, y in places))
        marked = places if len(places) <= 24 else places[-1:]
        colour = f"c{index % COLOURS}"
        self.mark(
            says,
            void("polyline", class_="hit", points=path),
            void("polyline", class_=f"line {colour}", points=path, stroke_dasharray=dash(index)),
            *(shape(index, x, y, colour) for x, y in marked),
            class_=f"mark one s{index}",
        )

    def curve(self, points: Sequence[Point], class_: str, says: str) -> None:
        path = Safe(" ".join(f"{_n(self.x(x))},{_n(self.y(y))}" for x, y in points))
        self.mark(
            says,
            void("polyline", class_="hit", points=path),
            void("polyline", class_=f"line {class_}", points=path),
        )

    def mark(self, says: str, *children: Safe, class_: str = "mark") -> None:
        """Draw a focusable mark; `says` describes it."""
        self.parts.append(
            tag(
                "g",
                *children,
                self._tip(says),
                class_=class_,
                tabindex="0",
                role="img",
                aria_label=says,
            )
        )

    def _tip(self, says: str) -> Safe:
        lines = wrap(
            clean(says),
            letters(self.width - 12),
            max_lines=2 if self.narrow else 1,
            placeholder=" …",
        )
        return tag(
            "g",
            void("rect", class_="tipbox", x=0, y=0, width=self.width, height=self.strip),
            *(
                tag("text", line, class_="tiptext", x=6, y=15 + 16 * index)
                for index, line in enumerate(lines)
            ),
            class_="tip",
            aria_hidden="true",
        )

    def svg(self) -> Safe:
        name = f"chart-{self.name}{'-narrow' if self.narrow else ''}"
        return tag(
            "svg",
            tag("title", self.title, id=f"{name}-title"),
            tag("desc", self.description, id=f"{name}-desc"),
            *self.parts,
            viewBox=f"0 0 {self.width} {self.box[3] + 46}",
            role="group",
            aria_labelledby=f"{name}-title {name}-desc",
            class_=f"chart {'narrow' if self.narrow else 'wide'}",
            id=name,
        )


def both(draw: Callable[[int], Chart]) -> Safe:
    """Return a wide and a narrow chart; the page shows either."""
    return join(*(draw(width).svg() for width in (WIDE, NARROW)))


def letters(room: float) -> int:
    """Return the letters of the wide DejaVu Sans that fit into these SVG units."""
    return max(4, int(room / 7.6))


def room_for(names: Iterable[str], width: int) -> int:
    """Return the margin for names, at most a third of the chart."""
    return int(min(width / 3, max(40, 20 + 7.6 * max((len(name) for name in names), default=0))))


def dash(index: int) -> str | None:
    return DASHES[index // COLOURS % len(DASHES)]


def shape(index: int, x: float, y: float, colour: str) -> Safe:
    """Return a series' mark: circle, square, triangles, diamond, cross, plus."""
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
    points = Safe(
        " ".join(f"{_n(x + dx * r * 0.9)},{_n(y + dy * r * 0.9)}" for dx, dy in outlines[kind])
    )
    return void("polygon", class_=f"dot {colour}", points=points)


def swatch(*inner: Safe, width: int, height: int) -> Safe:
    """Return a small picture for a legend."""
    box = f"0 0 {width} {height}"
    return tag(
        "svg", *inner, viewBox=box, width=width, height=height, aria_hidden="true", class_="swatch"
    )


def stroke(class_: str) -> Safe:
    return swatch(void("line", class_=class_, x1=1, x2=33, y1=8, y2=8), width=34, height=16)


def patch(class_: str) -> Safe:
    """Return the swatch of an area."""
    return swatch(void("rect", class_=class_, x=1, y=2, width=32, height=12), width=34, height=16)


def legend(*items: tuple[Safe | str, str], series: int = 0) -> Safe:
    """Return the legend of (swatch, text); the first `series` entries highlight their lines."""
    lit: list[dict[str, object]] = [
        {"class_": f"one s{index}", "tabindex": 0} for index in range(series)
    ]
    entries = zip(items, lit + [{}] * (len(items) - series), strict=True)
    return tag(
        "ul", *(tag("li", mark, text, **more) for (mark, text), more in entries), class_="legend"
    )


def series_swatch(index: int) -> Safe:
    """Return a piece of a series' line."""
    colour = f"c{index % COLOURS}"
    line = void(
        "line", class_=f"line {colour}", x1=1, x2=33, y1=8, y2=8, stroke_dasharray=dash(index)
    )
    return swatch(line, shape(index, 17, 8, colour), width=34, height=16)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


fixed = _n
"""Return a position as SVG text, with one decimal."""
