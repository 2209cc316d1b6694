"""What a job says of itself, for its record jobs/<job id>.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class JobStatus:
    """A job's own state, as far as it has come. `started_ms`: Unix milliseconds."""

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.state = self.reason = ""
        self.run = self.attempt = 0
        """The last that began; 0 before the first."""
        self.warnings: list[str] = []
        self.excluded: list[dict[str, Any]] = []
        """Nodes that are not used any more."""
        self.edited: list[str] = []
        """Files of the bundle that are not as they were made, and meant so."""
        self._problem = ""

    def go_on(self, state: str = "", reason: str = "") -> None:
        """Take note of a state and its reason; "" leaves the one before."""
        self.state = state or self.state
        self.reason = reason or self.reason

    def forget_reason(self) -> None:
        """What it gave as its reason is over."""
        self.reason = ""

    def begin(self, run: int, attempt: int) -> None:
        """Take note of the attempt that begins."""
        self.run, self.attempt = run, attempt

    def complete(self, run: int) -> None:
        """Take note that every run, up to `run`, has a result."""
        self.run = run

    def warn(self, text: str) -> bool:
        """Take in a warning; whether it is a new one."""
        is_new = text not in self.warnings
        if is_new:
            self.warnings.append(text)
        return is_new

    def edit(self, files: Sequence[str]) -> None:
        """Take note of the files of the bundle that were edited."""
        self.edited = list(files)

    def fail_to_write(self, problem: str) -> bool:
        """Take note that it could not be written ("": it could); whether that is news."""
        is_news = problem not in ("", self._problem)
        self._problem = problem
        return is_news
