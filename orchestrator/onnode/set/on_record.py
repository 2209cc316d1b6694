"""A job's records in the ledger: an attempt started, it ended, a run has its result."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path

from ..kernel.files import Files
from ..kernel.records import RunRecord
from .ledger import LedgerRecord, Said


def began(state: RunRecord) -> Said:
    """Return the record of a started attempt."""
    about = {"run": state.run, "attempt": state.attempt, "seed": state.seed, "nodes": state.nodes}
    return "attempt", about


def ended(state: RunRecord) -> Said:
    """Return the record of an ended attempt."""
    return "end", {"run": state.run, "attempt": state.attempt, "state": asdict(state)}


def result(path: Path, run: int, attempt: int, rank: int, files: Files) -> Said:
    """Return the record of a result; `rank` is -1 if it was published before.

    Raises OSError.
    """
    whole = hashlib.sha256()
    with files.open(path) as file:
        while piece := file.read(1 << 20):
            whole.update(piece)
        size = file.tell()
    about = {"run": run, "attempt": attempt, "rank": rank}
    return "result", {**about, "sha256": whole.hexdigest(), "bytes": size}


def key(one: LedgerRecord) -> tuple[str, object, object]:
    """Return the subject of a record: kind, run and attempt; of a result the run alone."""
    return one.kind, one.data.get("run"), 0 if one.kind == "result" else one.data.get("attempt")
