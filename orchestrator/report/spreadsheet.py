"""Reports as CSV: a row per run, and no cell that a spreadsheet takes for a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from orchestrator.report.columns import COLUMNS, EXACT, Cell, rows
from orchestrator.report.model import Report


def spreadsheet(reports: Iterable[Report]) -> str:
    """Return CSV with CRLF line ends by RFC 4180."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([column.name for column in COLUMNS])
    for report in reports:
        writer.writerows(map(written, row) for row in rows(report))
    return out.getvalue()


def written(value: Cell) -> object:
    """Return a CSV value: truth is 1 or 0, whole numbers have no fraction, and an apostrophe
    precedes = + - @, also behind leading blanks, tabs and line ends."""
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.lstrip()[:1] in ("=", "+", "-", "@") else value
    return int(value) if value == int(value) and abs(value) < EXACT else value
