"""Copies of sets: by their names, their jobs are the original's."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.onnode.set import ledger
from orchestrator.onnode.set.ledger import LedgerRecord


def original(root: Path, entries: list[LedgerRecord]) -> str:
    """Return a copied set's original; "" for a set in its place, a moved set, or a rehearsal.

    A copy has another path and inode, and its original exists or is not mounted.
    """
    place = next((entry.data.get("place") for entry in entries if entry.kind == "declare"), None)
    if not isinstance(place, dict) or not isinstance(place.get("path"), str):
        return ""
    record = ledger.declared(entries)
    if record is not None and record.rehearsed:
        return ""
    path = place["path"]
    try:
        same = os.path.realpath(path) == os.path.realpath(root)
        same = same or os.stat(root).st_ino == place.get("inode")
    except OSError:
        same = True
    moved = not os.path.lexists(path) and os.path.isdir(os.path.dirname(path))
    return "" if same or moved else path
