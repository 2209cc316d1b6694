"""The source of each variable of the runs, for the bundle and for nodes, which complete the
network's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.model.source import shown
from orchestrator.model.values import NETWORK_NAMES, Text

if TYPE_CHECKING:
    from orchestrator.model.entry import Entry

ORIGINS = "origins.tsv"
COLUMNS = ("variable", "layer", "file", "line", "source")
_GIVEN_BY = {"command line": "user", "site": "site", "site network": "site"}


def origins_table(entry: Entry, names: Mapping[str, str]) -> bytes:
    """Return `origins.tsv`: below COLUMNS a line per variable, tab separated.

    `names`: document path -> name in the manifest. `layer` is as in `Origin`; `file` and `line` are
    empty for the command line, `line` without a site file.

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
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def network_values(entry: Entry) -> dict[str, Any]:
    """Return the template's `fabric`, `network_origins` and `network_removed`.

    An origin is "NAME<tab>user|site|descriptor<tab>value"; by its value a node notices an edited
    bundle.
    """
    return {
        "fabric": entry.documents.fabric,
        "network_origins": [_line(entry, name) for name in _names(entry)],
        "network_removed": [
            name
            for name in NETWORK_NAMES
            if name in entry.removed and entry.removed[name].layer in _GIVEN_BY
        ],
    }


def _names(entry: Entry) -> list[str]:
    return list(
        dict.fromkeys(
            [*(name for name in NETWORK_NAMES if name in entry.whole_env), *entry.rccl_env]
        )
    )


def _line(entry: Entry, name: str) -> str:
    value = entry.whole_env[name]
    text = value.text if isinstance(value, Text) else str(value)
    return "\t".join((name, _GIVEN_BY.get(entry.origins[name].layer, "descriptor"), text))
