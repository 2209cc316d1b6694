"""Check free space for the published sizes before any download."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.prepare.plan import Plan


@dataclass(frozen=True, slots=True)
class Space:
    """One file system: its data folders, and bytes. `have` counts free space and the folders'
    content."""

    folders: tuple[Path, ...]
    need: int
    have: int

    @property
    def enough(self) -> bool:
        return self.have >= self.need

    def __str__(self) -> str:
        where = " and ".join(str(folder) for folder in self.folders)
        return f"{where}: {gigabytes(self.have)} can be used there, and {gigabytes(self.need)} are needed"

    def to_json(self) -> dict[str, Any]:
        return {
            "folders": [str(folder) for folder in self.folders],
            "need_bytes": self.need,
            "have_bytes": self.have,
            "enough": self.enough,
        }


def spaces(plan: Plan) -> list[Space]:
    """Return one entry per file system that the preparation fills. Folders need not exist yet."""
    needs: dict[int, list[tuple[Path, int]]] = {}
    for part in plan.part.space:
        folder = plan.folders[part.variable]
        needs.setdefault(os.stat(existing(folder)).st_dev, []).append((folder, part.bytes))
    return [
        _space([folder for folder, _ in group], sum(size for _, size in group))
        for group in needs.values()
    ]


def _space(folders: list[Path], need: int) -> Space:
    have = shutil.disk_usage(existing(folders[0])).free
    if have < need:  # only then: walking through millions of files takes long
        have += sum(
            size_of(folder)
            for folder in folders
            if not any(other in folder.parents for other in folders)
        )
    return Space(tuple(folders), need, have)


def existing(path: Path) -> Path:
    """Return `path`, or the nearest existing folder above it."""
    return next(one for one in (path, *path.parents) if one.exists())


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; unreadable files count 0."""
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue  # deleted meanwhile
    return total


def gigabytes(size: int) -> str:
    """Return bytes as the guides write them: `270 GB`, `6 TB`, `64.3 GB`, `12 bytes`."""
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{size} bytes"
