"""--verbose and --debug-log: a command's programs, connections and files, from Python's audit
events, without possible secrets: values of NAME=VALUE, and users in addresses."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from orchestrator import __version__
from orchestrator.errors import SetError, UsageError, is_full
from orchestrator.resources import user_path

if TYPE_CHECKING:
    from typing import Any, TextIO

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = {
    "os.rename": "rename",
    "os.remove": "remove",
    "os.rmdir": "remove",
    "os.mkdir": "make folder",
    "os.link": "link",
    "os.symlink": "link",
    "os.chmod": "change mode",
    "os.truncate": "truncate",
}
"""Audit event about paths -> name in the log."""
_ITSELF = tuple(
    {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, os.__file__[:-6])}
)
"""Python reads them to run."""
_PACKAGE = str(Path(__file__).resolve().parent.parent)


class Recorder:
    """Writes all lines into `file`, and changes on standard error."""

    def __init__(self, *, verbose: bool, file: TextIO | None) -> None:
        self.verbose, self.file = verbose, file
        self._start = time.monotonic()
        self._busy = False

    def take(self, event: str, args: tuple[Any, ...]) -> None:
        if self._busy:  # our own output
            return
        self._busy = True
        try:
            line, changes = described(event, args)
            if line:
                self.write(line, changes=changes)
        finally:
            self._busy = False

    def write(self, line: str, *, changes: bool = False) -> None:
        text = f"{time.monotonic() - self._start:8.3f}  {line}"
        with suppress(OSError, ValueError):  # a full disk must not end the command
            if self.file:
                print(text, file=self.file, flush=True)
        with suppress(OSError, ValueError):
            if self.verbose and changes:
                print(text, file=sys.stderr)


_RECORDERS = list[Recorder]()
"""At most a single recorder: Python cannot remove the hook."""


def _hook(event: str, args: tuple[Any, ...]) -> None:
    for recorder in _RECORDERS:
        recorder.take(event, args)


@cache
def _hook_once() -> None:
    sys.addaudithook(_hook)


@contextmanager
def recording(typed: Sequence[str], *, verbose: bool, path: str) -> Iterator[None]:
    """Raises UsageError for an unwritable file."""
    file = _opened(user_path(path)) if path else None
    recorder = Recorder(verbose=verbose, file=file)
    command = " ".join(quote(without_values(word)) for word in typed)
    recorder.write(f"orchestrator {__version__}, Python {sys.version.split()[0]}: {command}")
    _hook_once()
    _RECORDERS.append(recorder)
    outcome = "ended"
    try:
        yield
    except BaseException as error:
        outcome = f"ended with {type(error).__name__}: {error}"
        raise
    finally:
        _RECORDERS.clear()
        recorder.write(" ".join(outcome.split())[:1000])
        if file:
            file.close()


def _opened(path: Path) -> TextIO:
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return open(os.open(path, flags, 0o600), "a", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        kind = SetError if is_full(error) else UsageError
        raise kind(
            f"--debug-log {path}: {error.strerror or error}", hint="name a file that can be written"
        ) from error


def described(event: str, args: tuple[Any, ...]) -> tuple[str, bool]:
    """Return an event's line, or ""; and whether it acts outside this process."""
    if event == "subprocess.Popen":
        argv = args[1] if isinstance(args[1], list | tuple) else [args[1]]
        return "start " + " ".join(quote(without_values(_text(word))) for word in argv), True
    if event == "socket.connect":
        return f"connect to {_text(args[1])}", True
    if event == "os.kill":
        return f"signal {args[1]} to process {args[0]}", True
    if event in CHANGES:
        paths = " -> ".join(_text(path) for path in args[:2] if isinstance(path, str | bytes))
        return f"{CHANGES[event]} {paths}", True
    if event == "open" and isinstance(args[0], str | bytes):
        path = _text(args[0])
        writes = isinstance(args[2], int) and bool(args[2] & WRITES)
        is_device = path.startswith("/dev/") and not path.startswith("/dev/shm/")
        if not writes and (is_device or path.startswith((*_ITSELF, _PACKAGE, "/proc/"))):
            return "", False
        return f"{'write' if writes else 'read'} {path}", writes
    return "", False


def _text(value: object) -> str:
    return os.fsdecode(value) if isinstance(value, str | bytes | os.PathLike) else str(value)


def without_values(word: str) -> str:
    """Remove possible secrets: values of NAME=VALUE and of options named after secrets, users in
    addresses."""
    word = without_login(word)
    name, equals, value = word.partition("=")
    secret = re.search(r"pass|token|secret|key|auth|cred", name, re.IGNORECASE)
    if not equals or (name.startswith("--") and "=" not in value and not secret):
        return word
    return f"{name}=..."


def without_login(text: str) -> str:
    """Remove users from addresses."""
    return re.sub(r"://[^/\s]*@", "://...@", text)
