"""A job's own status, as recorded in jobs/<job id>.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class JobStatus:
    """The status of a job so far. `started_ms`: Unix milliseconds."""

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.state = self.reason = ""
        self.run = self.attempt = 0
        """The last started; 0 before the first."""
        self.warnings: list[str] = []
        self.excluded: list[dict[str, Any]] = []
        """Nodes that the job stopped using."""
        self.edited: list[str] = []
        """Files of the bundle, edited on purpose."""
        self._problem = ""

    def update(self, state: str = "", reason: str = "") -> None:
        """Set state and reason; "" keeps the previous."""
        self.state = state or self.state
        self.reason = reason or self.reason

    def clear_reason(self) -> None:
        """Drop the reason: it is over."""
        self.reason = ""

    def start(self, run: int, attempt: int) -> None:
        """Set the attempt that starts."""
        self.run, self.attempt = run, attempt

    def complete(self, run: int) -> None:
        """Set that every run, up to `run`, has a result."""
        self.run = run

    def warn(self, text: str) -> bool:
        """Add a warning; return whether it is new."""
        is_new = text not in self.warnings
        if is_new:
            self.warnings.append(text)
        return is_new

    def edit(self, files: Sequence[str]) -> None:
        """Set the edited files of the bundle."""
        self.edited = list(files)

    def fail_to_write(self, problem: str) -> bool:
        """Set why this could not be written, or ""; return whether the problem is new."""
        is_new = problem not in ("", self._problem)
        self._problem = problem
        return is_new
