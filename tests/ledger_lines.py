"""Read and write the records of a ledger, to change them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from orchestrator.onnode.set import ledger


def load(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / ledger.NAME).read_text().splitlines()]


def store(root: Path, records: list[dict[str, Any]], *, chained: bool = True) -> None:
    """Write records back; `chained`: with numbers and hashes that fit again."""
    text, prev = "", ""
    for number, record in enumerate(records, 1):
        record = {**record, "n": number, "prev": prev} if chained else record
        whole = json.dumps(record, separators=(",", ":"))
        prev, text = hashlib.sha256(whole.encode()).hexdigest(), f"{text}{whole}\n"
    (root / ledger.NAME).write_text(text)
