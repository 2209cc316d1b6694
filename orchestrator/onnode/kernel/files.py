"""The storage of a set as one host sees it: every file operation of the loop and of writing
commands.

Each method is one step: it can fail alone, and a program can be killed between any two. The
simulated storage has the same methods (orchestrator/simulation/storage.py).
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Union

from .regular import open_regular, read_bytes, read_with_time

PathLike = Union[str, "os.PathLike[str]"]


def is_temporary(name: str) -> bool:
    """Return whether a name comes from `Files.temporary`."""
    return name.startswith(".") and ".tmp." in name


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
AWAY = frozenset(
    {errno.EIO, errno.ENODEV, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT}
    | {errno.EHOSTDOWN, errno.EREMOTEIO, errno.ESHUTDOWN}
)
"""Errors of unavailable storage: they say nothing about the file."""
_ROOM = bytes(1 << 16)


class FileState(NamedTuple):
    """`size` in bytes, `mtime` in seconds by the clock of the storage."""

    size: int
    mtime: float
    inode: int
    is_folder: bool


def open_new(path: PathLike) -> BinaryIO:
    """Create a file and open it for writing. Raises FileExistsError also for a link of that
    name: none is followed."""
    return os.fdopen(os.open(path, _NEW, 0o666), "wb")


class Appender:
    """A file open to append to; other hosts may read it meanwhile."""

    def __init__(self, path: PathLike) -> None:
        self._fd = os.open(path, _APPEND, 0o666)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def write(self, content: bytes | bytearray) -> int:
        """Append `content` by one write; return how many bytes had room. Raises OSError."""
        return os.write(self._fd, content)

    def sync(self) -> None:
        """Flush it to the disk. Raises OSError."""
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class Files:
    """The real storage. All methods raise OSError, and follow a relative link only if documented.

    Unreachable files (a stale handle, an I/O error) do not count as missing, unless documented.
    """

    # ---- reading ----

    open = staticmethod(open_regular)
    """Open a regular file for reading."""
    read_bytes = staticmethod(read_bytes)
    """Return the content of a regular file."""

    read_with_time = staticmethod(read_with_time)
    """Return the start of a regular file and its modification time."""

    def names(self, folder: PathLike) -> list[str]:
        """Return the names in a folder, in no order."""
        return os.listdir(folder)

    def state(self, path: PathLike) -> FileState | None:
        """Return the state of a file or folder, through a link; None for a missing name or a
        broken link."""
        try:
            about = os.stat(path)
        except OSError as error:
            if error.errno not in MISSING:
                raise
            return None
        return FileState(
            about.st_size, about.st_mtime, about.st_ino, (about.st_mode & 0o170000) == 0o040000
        )

    def exists(self, path: PathLike) -> bool:
        """Return whether a name exists, through a link. Raises OSError if that is unknown."""
        return self.state(path) is not None

    def has_name(self, path: PathLike) -> bool:
        """Return whether a name exists, broken links included. Never raises."""
        return os.path.lexists(path)

    def real_path(self, path: PathLike) -> str:
        """Return the absolute path without links."""
        return os.path.realpath(path)

    def is_folder(self, path: PathLike) -> bool:
        """Return whether a folder exists. Never raises."""
        return os.path.isdir(path)

    # ---- writing ----

    def temporary(self, path: PathLike) -> str:
        """Return a unique name in the folder of `path`."""
        folder, name = os.path.split(path)
        return os.path.join(folder, f".{name}.tmp.{os.getpid()}.{os.urandom(4).hex()}")

    def create(self, path: PathLike, content: bytes, *, sync: bool = False) -> None:
        """Create a file with `content`, on the disk if `sync`. Raises FileExistsError also for a
        link of that name."""
        with open_new(path) as file:
            file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())

    def write(self, path: PathLike, content: bytes) -> None:
        """Write a file in place, for readers that tolerate half of it."""
        with open(path, "wb") as file:
            file.write(content)

    def join(self, path: PathLike, sources: Sequence[PathLike]) -> None:
        """Concatenate the regular files `sources` into a file on the disk. A missing source is
        skipped unless it is the last."""
        with open_new(path) as out:
            for source in sources[:-1]:
                try:
                    with open_regular(source) as file:
                        shutil.copyfileobj(file, out, 1 << 20)
                except FileNotFoundError:
                    continue
            with open_regular(sources[-1]) as file:
                shutil.copyfileobj(file, out, 1 << 20)
            out.flush()
            os.fsync(out.fileno())

    def append(self, path: PathLike, content: bytes, *, sync: bool = False) -> int:
        """Append by one write; return how many bytes had room."""
        file = Appender(path)
        try:
            written = file.write(content)
            if sync:
                file.sync()
            return written
        finally:
            file.close()

    appender = Appender
    """Open a file to append to."""

    def rename(self, source: PathLike, target: PathLike) -> None:
        """Rename a file, replacing another; or a folder, replacing an empty one."""
        os.replace(source, target)

    def link(self, source: PathLike, target: PathLike) -> None:
        """Give a file a second name. Raises FileExistsError."""
        os.link(source, target)

    def point(self, path: PathLike, target: str) -> None:
        """Make a symbolic link. Raises FileExistsError."""
        os.symlink(target, path)

    def remove(self, path: PathLike) -> None:
        """Remove a file or a link; a missing one is no error."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def touch(self, path: PathLike) -> None:
        """Give a file the current time."""
        os.utime(path)

    def make_folder(self, path: PathLike, *, parents: bool = False, exist_ok: bool = False) -> None:
        Path(path).mkdir(parents=parents, exist_ok=exist_ok)

    def remove_folder(self, path: PathLike) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def remove_tree(self, path: PathLike) -> None:
        """Remove a folder with all its content, as far as possible. Never raises."""
        shutil.rmtree(path, ignore_errors=True)

    def copy_tree(self, source: PathLike, target: PathLike) -> None:
        """Copy a folder without byte code; only its owner can write in the copy."""
        try:
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        except shutil.Error as error:  # the reasons of all files
            raise OSError(0, str(error.args[0][0][-1]), os.fspath(target)) from error
        for path in (Path(target), *Path(target).rglob("*")):
            path.chmod(path.stat().st_mode & 0o755)

    def sync_folder(self, path: PathLike) -> None:
        """Flush the names in a folder to the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def try_out(self, path: PathLike) -> None:
        """Write 64 KiB to `path`, flush them, and remove the file."""
        with open(path, "wb") as file:
            os.unlink(path)
            file.write(_ROOM)
            file.flush()
            os.fsync(file.fileno())


HERE = Files()
"""The storage as this host sees it."""
