"""The expected tree of a workload's data: present and missing parts, and whether the known sizes
agree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from orchestrator.prepare.plan import Plan
from orchestrator.prepare.space import size_of

State = Literal["ok", "missing", "unreadable", "empty", "too small", "too large"]

LEAST, MOST = 0.85, 1.25
"""The guides round their sizes ("~64 GB"): 85 % to 125 % of them counts as agreement."""


@dataclass(frozen=True, slots=True)
class Found:
    """One expected part. `bytes` is -1 if not measured, `expected` 0 without a published size."""

    variable: str
    path: str
    full: Path
    what: str
    state: State
    bytes: int
    expected: int

    def to_json(self) -> dict[str, Any]:
        return {
            "variable": self.variable,
            "path": self.path,
            "full_path": str(self.full),
            "what": self.what,
            "state": self.state,
            "bytes": self.bytes if self.bytes >= 0 else None,
            "expected_bytes": self.expected or None,
        }


def check_tree(plan: Plan) -> list[Found]:
    """Check every expected part of the tree. It never raises: containers write as root, and we
    may not be root."""
    found = []
    for part in plan.part.tree:
        full = plan.folders[part.variable] / part.path
        state, size = _look(full, part.bytes)
        found.append(Found(part.variable, part.path, full, part.what, state, size, part.bytes))
    return found


def _look(path: Path, expected: int) -> tuple[State, int]:
    try:
        if not path.exists():
            return "missing", -1
        if not (any(path.iterdir()) if path.is_dir() else path.stat().st_size):
            return "empty", 0
        if path.is_dir() and not expected:
            return "ok", -1
    except OSError:
        return "unreadable", -1
    size = size_of(path)
    if expected and size < expected * LEAST:
        return "too small", size
    return ("too large" if expected and size > expected * MOST else "ok"), size


def holds_something(path: Path) -> bool:
    """Return whether `path` is a non-empty file or folder, or a folder that only root may read."""
    return _look(path, 0)[0] in ("ok", "unreadable")
