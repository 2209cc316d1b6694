"""The status of a job, for its record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class JobStatus:
    """`started_ms`: Unix milliseconds."""

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.state = self.reason = ""
        self.run = self.attempt = 0
        """The last started attempt; 0 before the first."""
        self.warnings: list[str] = []
        self.excluded: list[dict[str, Any]] = []
        """Excluded nodes, and blamed nodes: used only if too few others are left."""
        self.edited: list[str] = []
        """The bundle's files with accepted edits."""
        self._problem = ""

    def update(self, state: str = "", reason: str = "") -> None:
        """Set state and reason; "" keeps a value."""
        self.state = state or self.state
        self.reason = reason or self.reason

    def clear_reason(self) -> None:
        self.reason = ""

    def start(self, run: int, attempt: int) -> None:
        self.run, self.attempt = run, attempt

    def complete(self, run: int) -> None:
        """Count the runs up to `run` as done."""
        self.run = run

    def warn(self, text: str) -> bool:
        """Return whether the warning is new."""
        is_new = text not in self.warnings
        if is_new:
            self.warnings.append(text)
        return is_new

    def edit(self, files: Sequence[str]) -> None:
        self.edited = list(files)

    def fail_to_write(self, problem: str) -> bool:
        """Keep `problem`, or ""; return whether it is new."""
        is_new = problem not in ("", self._problem)
        self._problem = problem
        return is_new
