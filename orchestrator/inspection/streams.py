"""A shell's standard input, output and error."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.inspection.trace import UNKNOWN, bounded

LOG = "log"
NOWHERE = "/dev/null"


@dataclass
class Streams:
    """`out`, `err`: the run's log, a file, or `| PROGRAM`."""

    out: str = LOG
    err: str = LOG
    captured: list[str] | None = None
    """Standard output, in a command substitution, pipe or file."""
    stdin: list[str] | None = None
    """The lines to read; None if unknown."""

    def copy(self) -> Streams:
        return replace(self, stdin=None if self.stdin is None else list(self.stdin))

    def write(self, text: str) -> None:
        if self.captured is not None:
            self.captured[:] = [bounded("".join([*self.captured, text]))]

    def capture(self) -> list[str]:
        """Collect standard output in the returned list."""
        self.captured = []
        return self.captured

    def send_out(self, sink: str, captured: list[str]) -> None:
        """`captured`: the text before."""
        self.out, self.captured = sink, captured

    def send_err(self, sink: str) -> None:
        self.err = sink

    def feed(self, lines: list[str] | None) -> None:
        self.stdin = lines

    def saved(self) -> Streams:
        """Return a copy that shares the lines to read."""
        return replace(self)

    def restore(self, before: Streams, redirected: Streams) -> None:
        """End the redirections from `before` to `redirected`; others, by `exec`, stay."""
        if redirected.out != before.out or redirected.captured is not before.captured:
            self.out, self.captured = before.out, before.captured
        if redirected.err != before.err:
            self.err = before.err
        if redirected.stdin is not before.stdin:
            self.stdin = before.stdin

    def detach(self) -> None:
        """Collect standard output apart from other copies."""
        if self.captured is not None:
            self.captured = list(self.captured)

    def merge(self, before: Streams, other: Streams) -> None:
        """Join another branch that started from `before`."""
        self.out = self.out if self.out == other.out else UNKNOWN
        self.err = self.err if self.err == other.err else UNKNOWN
        if self.captured != other.captured and before.captured is not None:
            mine, theirs = "".join(self.captured or ()), "".join(other.captured or ())
            differ = (at for at, pair in enumerate(zip(mine, theirs)) if pair[0] != pair[1])  # noqa: B905
            self.captured = [mine[: next(differ, min(len(mine), len(theirs)))], UNKNOWN]
        if self.stdin != other.stdin:
            self.stdin = None

    def collect_in(self, text: list[str] | None) -> None:
        """Collect standard output in `text`, shared by copies of the shell."""
        if text is not None and self.captured is not None:
            text[:], self.captured = self.captured, text
