"""A token from a file or the environment, hidden in output."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.onnode.kernel.regular import open_regular
from orchestrator.resources import user_path
from orchestrator.words import quoted

MIN_BYTES = 8
MAX_BYTES = 4096
HIDDEN = b"[hidden]"


class Secret:
    """A value whose text form hides it."""

    def __init__(self, name: str, value: str) -> None:
        printable = value.isascii() and value.isprintable() and " " not in value
        if not printable or not MIN_BYTES <= len(value) <= MAX_BYTES:
            raise UsageError(
                f"{name}: this is no token "
                f"(one line of at least {MIN_BYTES} printable characters, without blanks)"
            )
        self.name = name
        self._value = value

    def __repr__(self) -> str:
        return f"Secret({self.name})"

    def reveal(self) -> bytes:
        return self._value.encode()


def read_secret(name: str, file: str | None, env: Mapping[str, str] | None = None) -> Secret:
    """Read `name` from `file`, else from the environment.

    Raises UsageError if it is missing or readable for others.
    """
    if file:
        return Secret(name, _content(user_path(file)))
    value = (os.environ if env is None else env).get(name, "")
    if not value:
        raise UsageError(
            f"this preparation needs {name}, which is missing",
            hint=f"--hf-token-file FILE (mode 600), or {name} in the environment",
        )
    return Secret(name, value.strip())


def _content(path: Path) -> str:
    try:
        with open_regular(path) as file:
            # Check the open file: nobody can replace it in between.
            _check_mode(path, os.fstat(file.fileno()))
            return file.read(MAX_BYTES + 1).decode("ascii").strip()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: this is no token: it holds other characters than ASCII"
        ) from error


def _check_mode(path: Path, stat_result: os.stat_result) -> None:
    if stat_result.st_mode & 0o077:
        raise UsageError(
            f"{path}: others may read this file (mode {stat.S_IMODE(stat_result.st_mode):o})",
            hint=f"chmod 600 {quoted(path)}; a token that others could read should be replaced",
        )


class Redactor:
    """Hides a secret in a stream, even across two pieces."""

    def __init__(self, secret: Secret | None) -> None:
        self._value = secret.reveal() if secret else b""
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Return the bytes to write now, without a possible start of the secret."""
        if not self._value:
            return piece
        text = (self._held + piece).replace(self._value, HIDDEN)
        count = self._held_back(text)
        self._held = text[len(text) - count :]
        return text[: len(text) - count]

    def _held_back(self, text: bytes) -> int:
        for count in range(min(len(self._value) - 1, len(text)), 0, -1):
            if text.endswith(self._value[:count]):
                return count
        return 0

    def rest(self) -> bytes:
        held = self._held
        self._held = b""
        return held
