"""Tables of the page."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.report.markup import Safe, tag


def table(
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    numeric: Sequence[int] = (),
    class_: str | None = None,
) -> Safe:
    """A table with a caption; the first cell of a row is its heading. `numeric` columns are set to the right."""
    class_ = class_ or ("narrow" if len(header) <= 3 else None)
    kinds = ["num" if index in numeric else None for index in range(len(header))]
    head = tag("tr", *(tag("th", text, scope="col", class_=kind) for text, kind in zip(header, kinds, strict=True)))
    body = [tag("tr", *(_cell(cell, index, kinds[index]) for index, cell in enumerate(row))) for row in rows]
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body), class_=class_)
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cell(cell: object, index: int, kind: str | None) -> Safe:
    if isinstance(cell, Safe) and cell.startswith("<td"):
        return cell
    return tag("th", cell, scope="row", class_=kind) if index == 0 else tag("td", cell, class_=kind)
