"""Published sizes: free space before a preparation, the tree after it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.resources import file_sizes

if TYPE_CHECKING:
    from orchestrator.model.documents import DataPart
    from orchestrator.prepare.plan import Plan

LEAST = 0.85
MOST = 1.25
"""The guides round sizes ("~64 GB"): 85 % to 125 % counts as agreement."""

PartState = Literal["ok", "missing", "unreadable", "empty", "too small", "too large"]


@dataclass(frozen=True, slots=True)
class Space:
    """Data folders on one file system; `have` includes their content."""

    folders: tuple[Path, ...]
    need: int
    have: int

    @property
    def enough(self) -> bool:
        return self.have >= self.need

    def __str__(self) -> str:
        folders = " and ".join(str(folder) for folder in self.folders)
        have = gigabytes(self.have)
        return f"{folders}: {have} can be used there, and {gigabytes(self.need)} are needed"

    def to_json(self) -> dict[str, Any]:
        return {
            "folders": [str(folder) for folder in self.folders],
            "need_bytes": self.need,
            "have_bytes": self.have,
            "enough": self.enough,
        }


@dataclass(frozen=True, slots=True)
class TreePart:
    """`bytes` is -1 if not measured."""

    part: DataPart
    path: Path
    state: PartState
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return {
            "variable": self.part.variable,
            "path": self.part.path,
            "full_path": str(self.path),
            "what": self.part.what,
            "state": self.state,
            "bytes": self.bytes if self.bytes >= 0 else None,
            "expected_bytes": self.part.bytes or None,
        }


def spaces(plan: Plan, storage: Path | None = None) -> list[Space]:
    """Return the space on each file system; folders may be missing. `storage`: the engine's, if
    local."""
    needs: dict[int, list[tuple[Path, int]]] = {}
    for part in plan.part.space:
        folder = plan.folders[part.variable]
        device = os.stat(_existing(folder)).st_dev
        needs.setdefault(device, []).append((folder, part.bytes))
    if storage and plan.part.engine_bytes:
        device = os.stat(_existing(storage)).st_dev
        needs.setdefault(device, []).append((storage, plan.part.engine_bytes))
    return [_space(group, set(plan.folders.values())) for group in needs.values()]


def _space(needs: list[tuple[Path, int]], data: set[Path]) -> Space:
    folders = [folder for folder, _ in needs]
    need = sum(size for _, size in needs)
    have = shutil.disk_usage(_existing(folders[0])).free
    if have < need:  # a walk through millions of files takes long
        inside = [folder for folder in folders if folder in data]
        have += sum(_size_of(folder) for folder in inside if not _is_inside(folder, inside))
    return Space(tuple(folders), need, have)


def _is_inside(folder: Path, others: list[Path]) -> bool:
    return any(other in folder.parents for other in others)


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _size_of(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    return sum(file_sizes(path))


def check_tree(plan: Plan) -> list[TreePart]:
    parts = []
    for part in plan.part.tree:
        path = plan.folders[part.variable] / part.path
        state, size = check_part(path, part.bytes)
        parts.append(TreePart(part, path, state, size))
    return parts


def check_part(path: Path, expected: int) -> tuple[PartState, int]:
    """Return state and bytes; 0 in `expected`: not published."""
    try:
        if not path.exists():
            return "missing", -1
        has_content = any(path.iterdir()) if path.is_dir() else path.stat().st_size
        if not has_content:
            return "empty", 0
        if path.is_dir() and not expected:
            return "ok", -1
    except OSError:
        return "unreadable", -1
    size = _size_of(path)
    if expected and size < expected * LEAST:
        return "too small", size
    if expected and size > expected * MOST:
        return "too large", size
    return "ok", size


def has_content(path: Path) -> bool:
    """Return whether `path` has content; a folder readable only to root counts."""
    return check_part(path, 0)[0] in ("ok", "unreadable")


def gigabytes(size: int) -> str:
    """Format like the guides: `270 GB`, `64.3 GB`, `12 bytes`."""
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{size} bytes"
