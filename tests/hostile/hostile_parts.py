"""Calling the command line on what nobody would write, and what has to be true of its answer whatever it was."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from until import LIMIT_S, Endless, bounded

from orchestrator.cli import main
from orchestrator.errors import ExitCode

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]|\r(?!\n)")
DOCUMENTED = frozenset(ExitCode) - {ExitCode.INTERNAL, ExitCode.INTERRUPTED}


@dataclass(frozen=True)
class Answer:
    """What a call came to. `code` None: it did not end in time."""

    words: tuple[str, ...]
    code: int | None
    out: str
    err: str

    @property
    def problem(self) -> str:
        """What is wrong with it, whatever was asked; "" when nothing is."""
        if self.code is None:
            return f"no end within {LIMIT_S} s"
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


def call(words: Sequence[str]) -> Answer:
    """Run `orchestrator WORDS` in this process."""
    out, err = Stream(), Stream()
    code: int | None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with bounded():
                code = main(list(words))
        except SystemExit as ended:  # argparse
            code = int(ended.code or 0)
        except Endless:
            code = None
    return Answer(tuple(words), code, out.text(), err.text())
