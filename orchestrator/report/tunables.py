"""The host settings of a set's nodes: what was wanted, before, after. From nodes/<node>/tunables.tsv."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.report.environment import read_text
from orchestrator.report.model import TunableReading

_STATES = frozenset({"ok", "failed", "unsupported"})


def read_tunables(root: Path) -> tuple[TunableReading, ...]:
    """The last word on each setting of each node; nodes that say the same are together."""
    together: dict[tuple[str, str, str, str, str], list[str]] = {}
    for node in node_names(root):
        for row in _last_words(read_text(root / "nodes" / node / "tunables.tsv")):
            together.setdefault(row, []).append(node)
    order = {knob: index for index, knob in enumerate(dict.fromkeys(row[0] for row in together))}
    rows = sorted(together.items(), key=lambda item: (order[item[0][0]], -len(item[1]), item[0]))
    return tuple(TunableReading(*row, tuple(nodes)) for row, nodes in rows)


def node_names(root: Path) -> list[str]:
    """The set's nodes that have a folder."""
    try:
        return sorted(entry.name for entry in os.scandir(root / "nodes") if entry.is_dir())
    except OSError:
        return []


def _last_words(text: str) -> list[tuple[str, str, str, str, str]]:
    """Per setting: `before` of the first row that tells it, the rest of the last row. `revert` does not count."""
    found: dict[str, tuple[str, str, str, str, str]] = {}
    for line in text.splitlines():
        parts = line.split("\t")
        if len(parts) < 5 or parts[4] not in _STATES or parts[6:7] == ["revert"]:
            continue
        knob, wanted, before, after, state = parts[:5]
        if knob in found and found[knob][2] != "-":
            before = found[knob][2]
        found[knob] = (knob, wanted, before, after, state)
    return list(found.values())
