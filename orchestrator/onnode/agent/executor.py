"""The seam between a run and its container or host."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from ..kernel.mllog_tail import MAX_LINE
from ..kernel.waiting import Failed, Waiting, read_piece

_PIECE = 1 << 18
_SET_PIPE_SIZE = 1031  # fcntl.F_SETPIPE_SZ, missing before Python 3.10
_KINDS = ("script", "out")


Hear = Callable[[str], object]
AtEnd = Callable[[], object]


class Conversation:
    """Lines to and from a process next to the runs."""

    def send(self, line: str) -> bool:
        """Return False if the process no longer reads."""
        return False

    def close(self) -> None:
        """End the process. In a container it ends with its input."""


class Executor:
    """A shell in a container or on the host, which starts the scripts of runs.

    `inside`: the node's channel as seen there; `code`: the folder of the training's code. The
    shell's messages go to the run: NAME started PID; NAME ended STATUS LEFT. On the host LEFT is 1
    if a process of the run still lives, and NAME clear follows. This class itself runs nothing.
    """

    def __init__(self, inside: str = "", code: str = "") -> None:
        self.inside, self.code = inside, code
        self._heard: Callable[[list[str]], object] = len
        self._runs = 0

    def expect(self, heard: Callable[[list[str]], object]) -> int:
        """Connect the prepared run to the shell; return its number, from 1."""
        self._heard = heard
        self._runs += 1
        return self._runs

    def hear(self, line: str) -> None:
        self._heard(line.split())

    @property
    def gone(self) -> bool:
        """Nothing can run any more."""
        return False

    def root(self) -> int:
        """Return the ancestor of all runs on this host; 0 if unknown."""
        return 0

    def command(self, argv: list[str], *, debugger: bool = False) -> list[str]:
        """Return a command that runs `argv` with the runs; `debugger`: it inspects processes."""
        return argv

    def converse(self, waiting: Waiting, script: str, hear: Hear, at_end: AtEnd) -> Conversation:
        """Start a bash script of the channel; `hear` gets its lines. One at a time. Raises
        OSError."""
        raise OSError("nothing can run yet")

    def start(self, name: str) -> None:
        """Start the script of the run `name`."""

    def signal(self, word: str, pid: str) -> None:
        """Send TERM or KILL to the process group of a run's first process; KILL on the host to all
        its descendants."""

    def release(self) -> None:
        """Start to end, if that takes time."""

    def close(self) -> None:
        """End it, with all its processes."""


class RunPipes:
    """The pipes `script.NAME` and `out.NAME` in the node's channel, and the log. The script is
    never on a disk."""

    def __init__(self, channel: str, name: str, log_file: Path) -> None:
        self._channel, self._name, self._log_file = channel, name, log_file
        self._script = self._log = -1
        self.out = -1
        """The run's output; -1 after its end."""
        self.is_broken = False
        """A write to the log failed."""

    def open(self) -> None:
        """Raises Failed."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        wait_for_nobody = os.O_NONBLOCK | os.O_CLOEXEC
        try:
            self._log = os.open(self._log_file, flags, 0o666)
            for kind in _KINDS:
                os.mkfifo(self._path(kind), 0o600)
            self._script = os.open(self._path("script"), os.O_RDWR | wait_for_nobody)
            self.out = os.open(self._path("out"), os.O_RDONLY | wait_for_nobody)
        except OSError as error:
            self.close()
            raise Failed("storage", f"{os.fsdecode(error.filename)}: {error.strerror}") from error
        for fd in (self._script, self.out):
            with contextlib.suppress(OSError):  # not allowed
                fcntl.fcntl(fd, _SET_PIPE_SIZE, MAX_LINE)

    def _path(self, kind: str) -> str:
        return f"{self._channel}/{kind}.{self._name}"

    @property
    def has_script(self) -> bool:
        return self._script >= 0

    def write(self, text: str) -> None:
        """Write more of the script. Raises Failed for a full pipe."""
        content = text.encode("utf-8", "surrogateescape")
        try:
            whole = os.write(self._script, content) == len(content)
        except BlockingIOError:
            whole = False
        if not whole:
            raise Failed("data", "the values of PASS_ENV are more than a pipe takes at once")

    def read(self) -> bytes | None:
        """Return output; b"" at its end, None without any."""
        return read_piece(self.out, _PIECE)

    def end_output(self) -> None:
        os.close(self.out)
        self.out = -1

    def keep(self, piece: bytes) -> None:
        """Write to the log. Raises Failed once: the log stays incomplete."""
        rest = memoryview(piece)
        try:
            while rest and not self.is_broken:
                rest = rest[os.write(self._log, rest) :]
        except OSError as error:
            self.is_broken = True
            why = os.strerror(error.errno or errno.EIO)
            raise Failed("storage", f"cannot write to {self._log_file}: {why}") from error

    def close(self) -> None:
        for fd in (self._script, self.out, self._log):
            if fd >= 0:
                os.close(fd)
        self._script = self.out = self._log = -1
        for kind in _KINDS:
            with contextlib.suppress(OSError):
                os.unlink(self._path(kind))
