"""The storage as a host sees it: all file operations of the loop and of writing commands.

Each method is a step: it can fail alone, and a program can be killed between any two.
orchestrator/simulation/storage.py has the same methods.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Union

from .regular import open_regular, read_bytes, read_with_time

PathLike = Union[str, "os.PathLike[str]"]


def is_temporary(name: str) -> bool:
    return name.startswith(".") and ".tmp." in name


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
AWAY = frozenset(
    {errno.EIO, errno.ENODEV, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT}
    | {errno.EHOSTDOWN, errno.EREMOTEIO, errno.ESHUTDOWN}
)
"""Unavailable storage, which says nothing about a file."""
_ROOM = bytes(1 << 16)


def raise_if_away(path: PathLike, error: Exception) -> None:
    """Raise the error of reading `path` if its storage is unavailable."""
    if isinstance(error, OSError) and error.errno in AWAY:
        raise error


class FileState(NamedTuple):
    """`size` in bytes, `mtime` in seconds by the storage's clock."""

    size: int
    mtime: float
    inode: int
    is_folder: bool


def open_new(path: PathLike) -> BinaryIO:
    """Create a file, no link followed. Raises FileExistsError."""
    return os.fdopen(os.open(path, _NEW, 0o666), "wb")


class Appender:
    """A file open to append to, which other hosts may read."""

    def __init__(self, path: PathLike) -> None:
        self._fd = os.open(path, _APPEND, 0o666)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def write(self, content: bytes | bytearray) -> int:
        """Append by one write; return how many bytes had room. Raises OSError."""
        return os.write(self._fd, content)

    def sync(self) -> None:
        """Raises OSError."""
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class Files:
    """The real storage. Methods raise OSError unless documented; a stale handle is no missing
    file."""

    open = staticmethod(open_regular)
    read_bytes = staticmethod(read_bytes)

    read_with_time = staticmethod(read_with_time)

    def names(self, folder: PathLike) -> list[str]:
        return os.listdir(folder)

    def state(self, path: PathLike) -> FileState | None:
        """Return the state, through a link; None for a missing name or a broken link."""
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
        """Through a link. Raises OSError if unknown."""
        return self.state(path) is not None

    def has_name(self, path: PathLike) -> bool:
        """Broken links included. Raises OSError if unknown."""
        try:
            os.lstat(path)
        except OSError as error:
            if error.errno not in MISSING:
                raise
            return False
        return True

    def real_path(self, path: PathLike) -> str:
        return os.path.realpath(path)

    def is_folder(self, path: PathLike) -> bool:
        """Never raises."""
        return os.path.isdir(path)

    def temporary(self, path: PathLike) -> str:
        """Return a unique name in its folder."""
        folder, name = os.path.split(path)
        return os.path.join(folder, f".{name}.tmp.{os.getpid()}.{os.urandom(4).hex()}")

    def create(self, path: PathLike, content: bytes, *, sync: bool = False) -> None:
        """Raises FileExistsError, also for a link. After an error while writing, it is removed."""
        with open_new(path) as file:
            try:
                file.write(content)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            except OSError:  # half a lock would lock everybody out
                self.remove(path)
                raise

    def write(self, path: PathLike, content: bytes) -> None:
        """Write in place, for readers that tolerate half of it."""
        with open(path, "wb") as file:
            file.write(content)

    def join(self, path: PathLike, sources: Sequence[PathLike]) -> None:
        """Concatenate regular files into a flushed file; only the last must exist."""
        import shutil  # which imports bz2 and lzma: 3 ms of every command and agent

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
        """As Appender.write."""
        file = self.appender(path)
        try:
            written = file.write(content)
            if sync:
                file.sync()
            return written
        finally:
            file.close()

    appender = Appender

    def rename(self, source: PathLike, target: PathLike) -> None:
        """Replaces a file or an empty folder."""
        os.replace(source, target)

    def link(self, source: PathLike, target: PathLike) -> None:
        """Raises FileExistsError."""
        os.link(source, target)

    def point(self, path: PathLike, target: str) -> None:
        """Make a symbolic link. Raises FileExistsError."""
        os.symlink(target, path)

    def remove(self, path: PathLike) -> None:
        """A missing file is no error."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def touch(self, path: PathLike) -> None:
        os.utime(path)

    def make_folder(self, path: PathLike, *, parents: bool = False, exist_ok: bool = False) -> None:
        Path(path).mkdir(parents=parents, exist_ok=exist_ok)

    def remove_folder(self, path: PathLike) -> None:
        os.rmdir(path)

    def remove_tree(self, path: PathLike) -> None:
        """As far as possible. Never raises."""
        import shutil

        shutil.rmtree(path, ignore_errors=True)

    def copy_tree(self, source: PathLike, target: PathLike) -> None:
        """Copy a folder without byte code, writable by its owner."""
        import shutil

        try:
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        except shutil.Error as error:  # the reasons of all files
            raise OSError(0, str(error.args[0][0][-1]), os.fspath(target)) from error
        for path in (Path(target), *Path(target).rglob("*")):
            path.chmod(path.stat().st_mode & 0o755)

    def sync_folder(self, path: PathLike) -> None:
        """Flush a folder's names."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def try_out(self, path: PathLike) -> None:
        """Write, flush and remove 64 KiB."""
        with open(path, "wb") as file:
            os.unlink(path)
            file.write(_ROOM)
            file.flush()
            os.fsync(file.fileno())


HERE = Files()


def make_below(root: PathLike, path: PathLike, files: Files = HERE) -> None:
    """Make `path` with missing folders above it, never `root`: its storage may be away. Raises
    OSError."""
    try:
        files.make_folder(path, exist_ok=True)
    except FileNotFoundError:
        above = os.path.dirname(path)
        if above in (os.fspath(root), os.fspath(path)):
            raise
        make_below(root, above, files)
        files.make_folder(path, exist_ok=True)


def is_same(first: PathLike, second: PathLike, files: Files) -> bool:
    """For names in one folder. Raises OSError."""
    states = files.state(first), files.state(second)
    return None not in states and len({state.inode for state in states if state}) == 1


def linked(source: PathLike, target: PathLike, files: Files) -> bool:
    """Create a complete `target` with the content of `source`; return False if it exists. Raises
    OSError."""
    try:
        files.link(source, target)
    except OSError as error:
        if is_same(source, target, files):  # the server's reply was lost
            return True
        if isinstance(error, FileExistsError):
            return False
        try:  # without hard links: the next best exclusive operation
            files.create(target, files.read_bytes(source))
        except FileExistsError:
            return False
    return True
