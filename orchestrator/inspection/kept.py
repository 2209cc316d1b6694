"""Results of inspections, and changes between them."""

from __future__ import annotations

import difflib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.inspection.contract import Contract
from orchestrator.inspection.findings import ContractFinding
from orchestrator.onnode.kernel.regular import parse, read_bytes
from orchestrator.words import count, quoted

if TYPE_CHECKING:
    from orchestrator.model import Entry

SUFFIX = ".contract.json"
MOST_KEPT_BYTES = 16 << 20
MOST_DIFF_LINES = 40
"""Of one file: a new implementation is not read as a difference."""


@dataclass(frozen=True)
class KeptContract:
    """`scripts` maps paths to texts."""

    reference: str
    id: str
    entry: str
    created_ms: int
    scripts: Mapping[str, str]
    findings: tuple[ContractFinding, ...]
    is_stand_in: bool = False
    """The lab's image under a published name."""

    @property
    def problem(self) -> str:
        """Return the first error with its place and fix, and the number of others; "" without
        any."""
        if not self.errors:
            return ""
        first = self.errors[0]
        more = f" (and {len(self.errors) - 1} more)" if len(self.errors) > 1 else ""
        return f"{first.where}: {first.what}; {first.fix}{more}".lstrip(": ")

    @property
    def errors(self) -> tuple[ContractFinding, ...]:
        """Errors, without those of a stand-in: it is not the published image."""
        wrong = tuple(finding for finding in self.findings if finding.severity == "error")
        return () if self.is_stand_in else wrong


def entry_name(system: str, workload: str, round_: str) -> str:
    return f"{system} {workload} {round_}"


def kept_path(folder: Path, image_id: str, entry: str) -> Path:
    """Return the file of an image and an entry (`SYSTEM WORKLOAD ROUND`)."""
    digits = image_id.removeprefix("sha256:")[:64]
    return folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '_', entry)}.{digits}{SUFFIX}"


def keep(
    folder: Path, contract: Contract, findings: list[ContractFinding], entry: str, now_ms: int
) -> KeptContract:
    """Write the result of an inspection. Raises OSError."""
    tree = contract.tree
    kept = KeptContract(
        tree.config.reference,
        tree.config.id,
        entry,
        now_ms,
        {path: tree.text(path) or "" for path in sorted(contract.scripts)},
        tuple(findings),
        tree.config.is_stand_in,
    )
    data = {
        "reference": kept.reference,
        "id": kept.id,
        "entry": entry,
        "created_ms": now_ms,
        "scripts": dict(kept.scripts),
        "findings": [finding.to_json() for finding in findings],
        "stand_in": kept.is_stand_in,
    }
    path = kept_path(folder, kept.id, entry)
    # A fresh name: an existing link would be written through.
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".", delete=False) as file:
        json.dump(data, file)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)
    return kept


def newest(
    folder: Path, entry: str, *, reference: str = "", other_than: str = ""
) -> KeptContract | None:
    """Return the newest usable result, of `reference` if given, not of `other_than`."""
    stem = kept_path(folder, "", entry).name.removesuffix(SUFFIX)
    results = [_read(path) for path in sorted(folder.glob(f"{stem}*{SUFFIX}"))]
    fitting = [
        result
        for result in results
        if result is not None
        and result.entry == entry
        and result.id != other_than
        and reference in ("", result.reference)
    ]
    return max(fitting, key=lambda result: result.created_ms, default=None)


def kept_for(entry: Entry) -> KeptContract | None:
    log_dir = entry.site.log_dir
    if entry.container.engine == "none" or not log_dir:
        return None
    name = entry_name(entry.system, entry.workload, entry.round)
    return newest(Path(log_dir).parent / "images", name, reference=entry.image)


def command_for(entry: Entry) -> str:
    return (
        f"orchestrator images inspect {quoted(entry.system)} {quoted(entry.workload)} "
        f"--round {quoted(entry.round)}"
    )


def _read(path: Path) -> KeptContract | None:
    try:
        data = parse(read_bytes(path, MOST_KEPT_BYTES))
        return KeptContract(
            str(data["reference"]),
            str(data["id"]),
            str(data["entry"]),
            int(data["created_ms"]),
            {str(name): str(text) for name, text in data["scripts"].items()},
            tuple(_finding(finding) for finding in data["findings"]),
            data.get("stand_in") is True,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _finding(data: Mapping[str, Any]) -> ContractFinding:
    names = ("kind", "severity", "what", "why", "fix", "file")
    texts = {name: str(data[name]) for name in names}
    return ContractFinding(**texts, line=int(data["line"]))  # type: ignore[arg-type]


def changes(before: KeptContract, after: KeptContract) -> list[str]:
    """Return differences of scripts: files, then unified diffs."""
    lines: list[str] = []
    for path in sorted(before.scripts.keys() | after.scripts.keys()):
        old, new = before.scripts.get(path), after.scripts.get(path)
        if old == new:
            continue
        if old is None or new is None:
            lines.append(f"{path}: {'new' if old is None else 'no longer read'}")
            continue
        diff = list(
            difflib.unified_diff(old.splitlines(), new.splitlines(), path, path, "", "", 1, "")
        )
        lines += diff[:MOST_DIFF_LINES]
        if len(diff) > MOST_DIFF_LINES:
            lines.append(f"... {count(len(diff) - MOST_DIFF_LINES, 'more line')} of {path}")
    return lines
