"""Calling the command line on what nobody would write, and what has to be true of its answer whatever it was."""

from __future__ import annotations

import contextlib
import io
import re
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

from orchestrator.cli import main
from orchestrator.errors import ExitCode

WORK_S, LIMIT_S = 10, 90
"""Of processor, and in all: what waits hangs, but a busy machine takes its time."""
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]|\r(?!\n)")
DOCUMENTED = frozenset(ExitCode) - {ExitCode.INTERNAL, ExitCode.INTERRUPTED}


class Hung(BaseException):
    """Not an Exception: nothing that handles errors may swallow it."""


@dataclass(frozen=True)
class Answer:
    """What a call came to. `code` None: it did not end in time."""

    words: tuple[str, ...]
    code: int | None
    out: str
    err: str
    seconds: float

    @property
    def problem(self) -> str:
        """What is wrong with it, whatever was asked; "" when nothing is."""
        if self.code is None:
            return f"no end within {WORK_S} s of processor, {LIMIT_S} s in all"
        if self.code not in DOCUMENTED:
            return f"exit code {self.code}"
        if "Traceback" in self.err or "Traceback" in self.out:
            return "a traceback"
        if found := CONTROL.search(self.out) or CONTROL.search(self.err):
            return f"prints {found[0]!r}"
        if self.code and not (self.err.strip() or self.out.strip()):
            return f"exit code {self.code} without a word"
        return ""

    def __str__(self) -> str:
        return f"{self.problem or self.code}: {list(self.words)!a}\n{self.err[-600:]!a}"


class Stream(io.TextIOWrapper):
    """A standard stream with bytes below it, as commands that copy logs and pages want."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def text(self) -> str:
        self.flush()
        found = self.buffer
        assert isinstance(found, io.BytesIO)
        return found.getvalue().decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def limited() -> Iterator[None]:
    def over(number: int, frame: FrameType | None) -> None:
        raise Hung

    clocks = ((signal.ITIMER_REAL, signal.SIGALRM, LIMIT_S), (signal.ITIMER_PROF, signal.SIGPROF, WORK_S))
    before = [signal.signal(number, over) for _, number, _ in clocks]
    for clock, _, seconds in clocks:
        signal.setitimer(clock, seconds)
    try:
        yield
    finally:
        for (clock, number, _), handler in zip(clocks, before, strict=True):
            signal.setitimer(clock, 0)
            signal.signal(number, handler)


def call(words: Sequence[str]) -> Answer:
    """Run `orchestrator WORDS` in this process."""
    out, err = Stream(), Stream()
    begin = time.monotonic()
    code: int | None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with limited():
                code = main(list(words))
        except SystemExit as ended:  # argparse
            code = int(ended.code or 0)
        except Hung:
            code = None
    return Answer(tuple(words), code, out.text(), err.text(), time.monotonic() - begin)
