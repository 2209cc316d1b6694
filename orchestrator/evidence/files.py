"""Bounded reading of the files in a set folder: regular files only, every problem as a Finding.

A missing file is no problem: a new set has hardly any.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from orchestrator.onnode.kernel.records import Finding, R, numbers, read
from orchestrator.onnode.kernel.regular import open_regular, parse, read_bytes

TEXT_BYTES = 4 << 20
"""The most bytes read of a table or a text."""
MOST_NAMES = 20_000
"""The most names read of a folder."""


class Findings(list[Finding]):
    """Unusable files, each once."""

    def __init__(self) -> None:
        super().__init__()
        self._known: set[Finding] = set()

    def add(self, path: Path | str, problem: str) -> None:
        self.put(Finding(Path(path), problem))

    def put(self, finding: Finding) -> None:
        if finding not in self._known:
            self._known.add(finding)
            self.append(finding)

    def record(self, kind: type[R], path: Path | str) -> R | None:
        """Return the record in a file; None if missing, or unusable, which is noted."""
        record = read(kind, path)
        if isinstance(record, Finding):
            self.put(record)
            return None
        return record

    def json(self, path: Path | str) -> dict[str, Any]:
        """Return the JSON object in a file, {} if missing."""
        try:
            value = parse(read_bytes(path))
        except FileNotFoundError:
            return {}
        except OSError as error:
            self.add(path, f"cannot be read: {error.strerror or error}")
            return {}
        except ValueError as error:
            self.add(path, f"is no JSON: {error}")
            return {}
        if not isinstance(value, dict):
            self.add(path, "is not a JSON object")
            return {}
        return value

    def text(self, path: Path | str, limit: int = TEXT_BYTES) -> str:
        """Return a text file, or the first `limit` bytes of a longer one."""
        try:
            with open_regular(path) as file:
                content = file.read(limit + 1)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError as error:
            self.add(path, f"cannot be read: {error.strerror or error}")
            return ""
        if len(content) > limit:
            self.add(path, f"longer than {limit} bytes; the rest is left out")
        return content[:limit].decode("utf-8", "replace")

    def names(self, folder: Path | str) -> list[str]:
        """Return the visible names in a folder, in order; [] without the folder."""
        names: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if len(names) == MOST_NAMES:
                        self.add(folder, f"has more than {MOST_NAMES} files; the rest is left out")
                        break
                    if not entry.name.startswith("."):
                        names.append(entry.name)
        except FileNotFoundError:
            return []
        except OSError as error:
            self.add(folder, f"cannot be read: {error.strerror or error}")
        return sorted(names)

    def numbers(self, folder: Path | str, prefix: str = "", suffix: str = "") -> list[int]:
        """Return the rising numbers k of the files or folders `<prefix><k><suffix>` in a folder."""
        return numbers(self.names(folder), suffix, prefix)


def is_inside(path: Path | str, folder: Path) -> bool:
    """Return whether `path` lies in `folder`, links followed."""
    real = os.path.realpath(folder)
    return os.path.realpath(path).startswith(f"{real}{os.sep}")


def is_node_name(name: str) -> bool:
    """Return whether `name` may name a node: it goes unchanged to terminals and pages."""
    return 0 < len(name) <= 255 and name.isprintable()
