"""The records of the ledger that a job adds: an attempt began, it ended, a run has its result."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path

from ..kernel.files import Files
from ..kernel.records import RunRecord
from .ledger import LedgerRecord, Said


def began(state: RunRecord) -> Said:
    """Return what is on record of an attempt that begins."""
    about = {"run": state.run, "attempt": state.attempt, "seed": state.seed, "nodes": state.nodes}
    return "attempt", about


def ended(state: RunRecord) -> Said:
    """Return what is on record of an attempt that has ended."""
    return "end", {"run": state.run, "attempt": state.attempt, "state": asdict(state)}


def result(path: Path, run: int, attempt: int, rank: int, files: Files) -> Said:
    """Return what is on record of a result; `rank` is -1 where it was published before that.

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
    """Return what a record is about: kind, run and attempt; of a result the run alone."""
    return one.kind, one.data.get("run"), 0 if one.kind == "result" else one.data.get("attempt")
