"""Facts and a table as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from orchestrator.words import clean

MOST_ROWS = 100
LONGEST = 400


def html(
    title: str, facts: Iterable[str], header: Sequence[str], rows: Sequence[Sequence[object]]
) -> str:
    """Return facts on a line after a bold title, and rows under a header."""
    line = " · ".join([f"<b>{_text(title)}</b>", *map(_text, facts)])
    head = "".join(_cell("th", name) for name in header)
    body = "".join(
        f"<tr>{''.join(_cell('td', value) for value in row)}</tr>" for row in rows[:MOST_ROWS]
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div><p>{line}</p>{table}</div>"


def _cell(tag: str, value: object) -> str:
    return f'<{tag} style="text-align:left">{_text(value)}</{tag}>'


def _text(value: object) -> str:
    """Return a value as HTML: a set's names and reasons are anybody's text."""
    return escape(clean(str(value))[:LONGEST])
