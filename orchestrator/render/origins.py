"""The source of each variable of the runs' environment, for the bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.model.source import shown

if TYPE_CHECKING:
    from orchestrator.model.entry import Entry

ORIGINS = "origins.tsv"
COLUMNS = ("variable", "layer", "file", "line", "source")


def origins_table(entry: Entry, names: Mapping[str, str]) -> bytes:
    """Return `origins.tsv`: one line per variable, tab separated, below a line with COLUMNS.

    `names` are the manifest's names of the entry's documents, by path. `layer` is as in `Origin`;
    `file` and `line` are empty for the command line, `line` for a site without a file.
    """
    called = {shown(Path(path)): name for path, name in names.items()}
    rows = [COLUMNS]
    for name, origin in sorted(entry.origins.items()):
        file = called.get(origin.file, Path(origin.file).name)
        rows.append((name, origin.layer, file, str(origin.line or ""), origin.source))
    return "".join("\t".join(map(_cell, row)) + "\n" for row in rows).encode(
        "utf-8", "surrogateescape"
    )


def _cell(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
