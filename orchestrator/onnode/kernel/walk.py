"""A set's folder for all its readers: lists of its runs, attempts and nodes, and its JSON files.

Lists and files have limits; with `FilesInside`, nothing behind a link out of the folder is read.
So commands read records, events, logs, results and the ledger. Not so: the loop and commands that
write read what they change; a bundle is hashed where a link points; sizes, times and presence of
files are those behind a link.
"""

from __future__ import annotations

import os
from itertools import islice

from .regular import MAX_BYTES, open_fd, parse, read_fd

TYPE_CHECKING = False  # importing typing is slow
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO, Protocol

    from .regular import PathLike

    class WalkedFiles(Protocol):
        """The part of `Files` that a walk needs."""

        def open(self, path: PathLike) -> BinaryIO: ...
        def read_bytes(self, path: PathLike, limit: int = ...) -> bytes: ...
        def names(self, folder: PathLike) -> list[str]: ...


MOST_NAMES = 20_000
"""The most names read of a folder."""
TEXT_BYTES = 4 << 20
"""The most bytes read of a table or a text."""
MOST_RUNS = 9999
MOST_DIGITS = 9
"""The most digits of a number in a name."""


class FilesInside:
    """The files of a folder, read like `Files`; a link out of it is an OSError. "": any files."""

    def __init__(self, root: PathLike) -> None:
        self._root = os.path.join(os.fspath(root), "")
        self._real = ""

    def open(self, path: PathLike, *, raw: bool = False) -> BinaryIO:
        return os.fdopen(self._open(path)[0], "rb", buffering=0 if raw else -1)

    def read_bytes(self, path: PathLike, limit: int = MAX_BYTES) -> bytes:
        return read_fd(path, limit, *self._open(path))

    def names(self, folder: PathLike) -> list[str]:
        """Return the visible names, at most MOST_NAMES + 1."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._check(fd, folder)
            with os.scandir(fd) as entries:
                visible = (entry.name for entry in entries if not entry.name.startswith("."))
                return list(islice(visible, MOST_NAMES + 1))
        finally:
            os.close(fd)

    def _open(self, path: PathLike) -> tuple[int, int]:
        fd, size = open_fd(path)
        try:
            self._check(fd, path)
        except OSError:
            os.close(fd)
            raise
        return fd, size

    def _check(self, fd: int, path: PathLike) -> None:
        """Raise OSError with the link if `path`, opened as `fd`, lies outside."""
        if not self._root:
            return
        given = os.fspath(path)
        try:
            real = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            real = os.path.realpath(given)
        # A path without links, as most are, needs no real path of the root.
        is_plain = real == given and given.startswith(self._root)
        if not is_plain and not self._has(real):
            raise OSError(0, "this is a link out of the set", self._link_out(given))

    def _has(self, real: str) -> bool:
        self._real = self._real or os.path.join(os.path.realpath(self._root), "")
        return f"{real}/".startswith(self._real)

    def _link_out(self, path: str) -> str:
        """Return the first part of `path` that leads out, or `path` if meanwhile no part does."""
        part, parent = path, os.path.dirname(path)
        while not self._has(os.path.realpath(parent)):
            if parent in (part, ""):
                return path
            part, parent = parent, os.path.dirname(parent)
        return part


ANY = FilesInside("")


class SetWalk:
    """The walk of a set's folder.

    A missing file is empty. `note` gets each unusable path, or the link that leads to it, and its
    OSError or ValueError, and may raise.
    """

    def __init__(
        self,
        root: PathLike,
        files: WalkedFiles,
        note: Callable[[PathLike, Exception], object],
    ) -> None:
        self.root = os.fspath(root)
        self._files, self._take_note = files, note

    def _note(self, path: PathLike, error: Exception) -> None:
        self._take_note(place_of(path, error), error)

    def runs(self) -> list[int]:
        """Return the runs with a folder, in ascending order."""
        return [run for run in self.numbers(f"{self.root}/runs") if run <= MOST_RUNS]

    def attempts(self, run: int) -> list[int]:
        """Return the attempts with a folder, in ascending order."""
        return self.numbers(self.run(run), "attempt_")

    def ranks(self, run: int, attempt: int, suffix: str) -> list[int]:
        """Return the ranks with a file such as `node_3.log`, in ascending order."""
        return self.numbers(self.attempt(run, attempt), "node_", suffix)

    def submissions(self) -> list[int]:
        return self.numbers(f"{self.root}/submissions", suffix=".json")

    def run(self, run: int) -> str:
        return f"{self.root}/runs/{run}"

    def attempt(self, run: int, attempt: int) -> str:
        return f"{self.root}/runs/{run}/attempt_{attempt}"

    def numbers(self, folder: PathLike, prefix: str = "", suffix: str = "") -> list[int]:
        """Return the sorted numbers k of the names `<prefix><k><suffix>` in a folder."""
        # A pattern with a job's id would be compiled for each set of a list.
        middles = (
            name[len(prefix) : len(name) - len(suffix)]
            for name in self.names(folder)
            if name.startswith(prefix) and name.endswith(suffix)
        )
        return sorted(
            int(text)
            for text in middles
            if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
        )

    def names(self, folder: PathLike) -> list[str]:
        """Return the sorted visible names."""
        try:
            names = [name for name in self._files.names(folder) if not name.startswith(".")]
        except FileNotFoundError:
            return []
        except OSError as error:
            self._note(folder, error)
            return []
        if len(names) > MOST_NAMES:
            text = f"has more than {MOST_NAMES} files; the rest is left out"
            self._note(folder, ValueError(text))
        return sorted(names[:MOST_NAMES])

    def json(self, path: PathLike) -> dict[str, Any]:
        """Return the JSON object in a file, {} if it is missing or unusable."""
        try:
            return read_object(path, self._files.read_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError) as error:
            self._note(path, error)
            return {}

    def text(self, path: PathLike, limit: int = TEXT_BYTES) -> str:
        """Return a text file, or the first `limit` bytes of a longer one."""
        return self.content(path, limit).decode("utf-8", "replace")

    def content(self, path: PathLike, limit: int) -> bytes:
        """Return a file's bytes, at most `limit`; b"" if it is missing or unusable."""
        try:
            with self._files.open(path) as file:
                content = file.read(limit + 1)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            self._note(path, error)
            return b""
        if len(content) > limit:
            self._note(path, ValueError(f"longer than {limit} bytes; the rest is left out"))
        return content[:limit]

    def has_file(self, path: PathLike) -> bool:
        """Return whether a regular file is there."""
        try:
            self._files.open(path).close()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            self._note(path, error)
            return False
        return True


def read_object(path: PathLike, read: Callable[[PathLike], bytes]) -> dict[str, Any]:
    """Return the JSON object in a file. Raises OSError, ValueError."""
    try:
        value = parse(read(path))
    except ValueError as error:  # not UTF-8, or not JSON
        raise ValueError(f"is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    return value


def place_of(path: PathLike, error: Exception) -> PathLike:
    """Return what an error of reading `path` is about: the link that leads to it, or `path`."""
    place = getattr(error, "filename", None)
    return place if isinstance(place, str) else path


def problem(error: Exception) -> str:
    """Return an error of a walk for people: `cannot be read: Permission denied`."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    return str(error)
