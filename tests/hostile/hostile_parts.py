"""Calling the command line on what nobody would write, and what has to be true of its answer whatever it was."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from until import LIMIT_S, Endless, bounded

from orchestrator.cli import main
from orchestrator.errors import ExitCode

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]|\r(?!\n)")
PROCESSOR_S = 10.0
"""No command line and no damage makes a command compute longer."""
DOCUMENTED = frozenset(ExitCode) - {ExitCode.INTERNAL, ExitCode.INTERRUPTED}


@dataclass(frozen=True)
class Answer:
    """What a call came to. `code` None: it did not end in time."""

    words: tuple[str, ...]
    code: int | None
    out: str
    err: str
    processor_s: float = 0.0
    written: tuple[str, ...] = ()
    """Paths outside of its place that it made, changed or removed."""

    @property
    def problem(self) -> str:
        """What is wrong with it, whatever was asked; "" when nothing is."""
        if self.code is None:
            limit = f"{PROCESSOR_S:.0f} s of processor time"
            return f"no end within {limit if self.processor_s >= PROCESSOR_S else f'{LIMIT_S} s'}"
        if self.written:
            return f"writes {', '.join(self.written)}"
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
def alone(top: Path) -> Iterator[Path]:
    """Enter an empty folder below `top` in which commands can do no harm: no Slurm, no engine, no settings of this
    machine, files of their own."""
    for name in ("state", "config", "tmp", "path", "work"):
        (top / name).mkdir()
    gone = ("ORCHESTRATOR_SITE", "DOCKER_HOST", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_CONF")
    own = {
        "XDG_STATE_HOME": str(top / "state"),
        "XDG_CONFIG_HOME": str(top / "config"),
        "XDG_CACHE_HOME": str(top / "cache"),
        "TMPDIR": str(top / "tmp"),
        "PATH": str(top / "path"),
        "ORCH_TUNABLES_ROOT": "/nowhere",
    }
    before, folder = dict(os.environ), Path.cwd()
    for name in gone:
        os.environ.pop(name, None)
    os.environ.update(own)
    os.chdir(top / "work")
    try:
        yield top / "work"
    finally:
        os.chdir(folder)
        for name in (*gone, *own):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "open": 1, "os.mkdir": 1, "os.remove": 1, "os.rmdir": 1, "os.truncate": 1, "os.chmod": 1, "os.chown": 1,
    "os.utime": 1, "os.setxattr": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2,
}  # fmt: skip
"""Python's audit events, and the number of their paths."""


class Writes:
    """Paths that this process makes, changes or removes outside of a folder.

    Threads that other tests left are not asked: the lease of a killed loop goes on beating.
    """

    def __init__(self) -> None:
        self._place, self._found, self._others = "", list[str](), frozenset[int | None]()
        sys.addaudithook(self._take)

    @contextlib.contextmanager
    def outside_of(self, place: Path | None) -> Iterator[list[str]]:
        """Collect the paths; without a place none."""
        self._found = []
        threads = {thread.ident for thread in threading.enumerate()}
        self._others = frozenset(threads - {threading.get_ident()})
        self._place = os.path.realpath(place) if place else ""
        try:
            yield self._found
        finally:
            self._place = ""

    def _take(self, event: str, args: tuple[object, ...]) -> None:
        if not self._place or event not in CHANGES or threading.get_ident() in self._others:
            return
        paths = args[: CHANGES[event]]
        if event == "open" and not (isinstance(args[2], int) and args[2] & WRITING):
            return
        for path in paths[1:] if event == "os.symlink" else paths:
            if isinstance(path, (str, bytes)):
                self._judge(os.fsdecode(path))

    def _judge(self, name: str) -> None:
        folder, place = os.path.realpath(os.path.dirname(name) or "."), self._place
        inside = f"{folder}/".startswith(f"{place}/")
        compiled = os.path.basename(folder) == "__pycache__"  # of this package, by the interpreter
        if not (inside or compiled or name in ("/dev/null", "/dev/tty")):
            self._found.append(name)


WRITES = Writes()


def call(words: Sequence[str], place: Path | None = None) -> Answer:
    """Run `orchestrator WORDS` in this process; below `place` it may write."""
    out, err = Stream(), Stream()
    code: int | None
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        WRITES.outside_of(place) as written,
    ):
        signal.signal(signal.SIGPROF, _endless)
        signal.setitimer(signal.ITIMER_PROF, PROCESSOR_S)
        try:
            with bounded():
                code = main(list(words))
        except SystemExit as ended:  # argparse
            code = int(ended.code or 0)
        except Endless:
            code = None
        finally:
            left, _ = signal.setitimer(signal.ITIMER_PROF, 0)
    unasked = dict.fromkeys(name for name in written if not _asked(name, words))
    return Answer(tuple(words), code, out.text(), err.text(), PROCESSOR_S - left, tuple(unasked))


def _asked(name: str, words: Sequence[str]) -> bool:
    """Return whether a path is next to the output that the command was asked for, or above it."""
    asked = [os.path.abspath(path) for option, path in pairwise(words) if option == "-o"]
    return any(
        os.path.dirname(one) == os.path.dirname(name) or one.startswith(name) for one in asked
    )


def _endless(*_: object) -> None:
    raise Endless
