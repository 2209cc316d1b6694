"""Bounded reading of the files in a set folder: regular files only, every problem as a Finding.

A missing file is no problem: a new set has hardly any.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from orchestrator.onnode.kernel.records import Finding, R, read
from orchestrator.onnode.kernel.walk import TEXT_BYTES, FilesInside, SetWalk, problem


class Findings(list[Finding]):
    """Unusable files, each once, and the reading of files in the folder `root` ("": anywhere)."""

    def __init__(self, root: Path | str = "") -> None:
        super().__init__()
        self._known: set[Finding] = set()
        self.files = FilesInside(root)
        self.walk = SetWalk(root, self.files, self._note)

    def add(self, path: Path | str, problem: str) -> None:
        self.put(Finding(Path(path), problem))

    def put(self, finding: Finding) -> None:
        if finding not in self._known:
            self._known.add(finding)
            self.append(finding)

    def _note(self, path: Path | str | os.PathLike[str], error: Exception) -> None:
        self.put(Finding(Path(path), problem(error)))

    def record(self, kind: type[R], path: Path | str) -> R | None:
        """Return the record in a file; None if missing, or unusable, which is noted."""
        record = read(kind, path, self.files)
        if isinstance(record, Finding):
            self.put(record)
            return None
        return record

    def json(self, path: Path | str) -> dict[str, Any]:
        """Return the JSON object in a file, {} if missing."""
        return self.walk.json(path)

    def text(self, path: Path | str, limit: int = TEXT_BYTES) -> str:
        """Return a text file, or the first `limit` bytes of a longer one."""
        return self.walk.text(path, limit)

    def names(self, folder: Path | str) -> list[str]:
        """Return the visible names in a folder, in order; [] without the folder."""
        return self.walk.names(folder)


def is_inside(path: Path | str, folder: Path) -> bool:
    """Return whether `path` lies in `folder`, links followed."""
    real = os.path.realpath(folder)
    return os.path.realpath(path).startswith(f"{real}{os.sep}")


def is_node_name(name: str) -> bool:
    """Return whether `name` may name a node: it goes unchanged to terminals and pages."""
    return 0 < len(name) <= 255 and name.isprintable()
