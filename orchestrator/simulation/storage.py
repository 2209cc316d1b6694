"""The file server of a simulated world, and the storage of a process: a real folder, virtual times, faults.

A process asks through a `SimFiles` of its own, with the methods of onnode/files.py. Each system call is a step: before it
the process may be killed or have to wait, and the faults in force are met (storage_faults.py). Then the real operation is
done on a real folder, whose files get the times of the server's clock, so that readers which open files directly (score,
status, evidence) see them. What is synced is remembered, not synced.

The same seed gives the same tree: inode numbers and temporary names are counted, and a folder is listed in an order that
depends on the seed and the names alone.
"""

from __future__ import annotations

import errno
import os
import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from orchestrator.onnode.files import Appender, Files, FileState, PathLike
from orchestrator.onnode.regular import MAX_BYTES, open_regular, read_bytes

from .engine import Engine, Killed, Process
from .storage_faults import Faults, Kind, fail

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 1 << 20
_FOLDER_BYTES = 4096
_PROBE = bytes(1 << 16)


class Server:
    """The file server: `root` is its content. `faults` may be switched at any time, and so may `clock_s`."""

    def __init__(self, engine: Engine, root: Path) -> None:
        self.engine, self.root = engine, root
        self.faults = Faults(engine, str(root))
        self.clock_s = 0.0
        """How far the server's clock is ahead of the true time."""
        self._salt = engine.seed & 0xFFFFFFFF
        self._names = 0
        self._inodes: dict[tuple[int, int], int] = {}
        self._count = 0

    def now_ns(self) -> int:
        """Return Unix nanoseconds by the server's clock."""
        return self.engine.start_ms * 1_000_000 + int((self.engine.now + self.clock_s) * 1e9)

    def made(self, about: os.stat_result) -> None:
        """Number a file or folder that was just made."""
        self._count += 1
        self._inodes[about.st_dev, about.st_ino] = self._count

    def inode(self, about: os.stat_result) -> int:
        """Return the server's number of a file or folder."""
        key = about.st_dev, about.st_ino
        if key not in self._inodes:
            self.made(about)
        return self._inodes[key]

    def next_name(self) -> int:
        """Return a number for a temporary name."""
        self._names += 1
        return self._names

    def listing(self, folder: PathLike) -> list[str]:
        """Return the names in a folder in the order of their hashes, as ext4 does."""
        names = os.listdir(folder)
        names.sort(key=lambda name: (zlib.crc32(os.fsencode(name), self._salt), name))
        return names


class SimAppender(Appender):
    """A file that a simulated process has open to append to."""

    def __init__(self, files: SimFiles, path: PathLike) -> None:
        self._files, self._path = files, os.fspath(path)
        self._fd = -1
        self._fd = files.opened(path, _APPEND)
        self._handle = files.server.faults.handles(files.host)
        self._failed = 0

    def _enter(self, kind: Kind) -> None:
        files = self._files
        files.enter(self._path, kind, handle=True)
        if self._handle != files.server.faults.handles(files.host):
            fail(errno.ESTALE)

    def size(self) -> int:
        self._enter("read")
        return os.fstat(self._fd).st_size

    def write(self, content: bytes | bytearray) -> int:
        with self._files.torn(self._fd, content):
            self._enter("change")
        faults = self._files.server.faults
        fits = len(content)
        if faults.active:
            self._report()
            fits, self._failed = faults.fit_later(fits)
        if fits:
            self._files.put(self._fd, content[:fits])
        return len(content) if self._failed else fits

    def sync(self) -> None:
        self._enter("read")
        self._report()

    def close(self) -> None:
        self._files.process.step()
        self.__del__()
        self._report()

    def _report(self) -> None:
        """Raise the error of an earlier write."""
        failed, self._failed = self._failed, 0
        if failed:
            fail(failed)

    def __del__(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class _Torn:
    """Around the step in front of a write: if the process dies there, some of the content may be written."""

    def __init__(self, files: SimFiles, fd: int, content: bytes | bytearray) -> None:
        self._files, self._fd, self._content = files, fd, content

    def __enter__(self) -> None:
        self._alive = self._files.process.alive

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is Killed and self._alive and self._content:
            size = self._files.server.engine.random.randrange(len(self._content) + 1)
            self._files.put(self._fd, self._content[:size])


class SimFiles(Files):
    """The storage as a process on `host` sees it."""

    def __init__(self, server: Server, process: Process, host: str = "") -> None:
        self.server, self.process, self.host = server, process, host or process.host

    # ---- steps ----

    def enter(self, path: PathLike, kind: Kind, *, handle: bool = False) -> None:
        """Do one step on `path`. Raises Killed and, as the faults have it, OSError."""
        self.process.step()
        faults = self.server.faults
        if faults.active:
            faults.meet(self.process, path, kind, handle=handle)

    def opened(self, path: PathLike, flags: int) -> int:
        """Open a file to write, which makes it if it is missing; return its descriptor."""
        self.enter(path, "make" if flags & os.O_EXCL else "change")
        new = bool(flags & os.O_EXCL) or not os.path.exists(path)
        fd = os.open(path, flags, 0o666)
        if new:
            self.server.made(os.fstat(fd))
            self._changed(path)
        if new or flags & os.O_TRUNC:
            self._stamp(fd)
        return fd

    def torn(self, fd: int, content: bytes | bytearray) -> _Torn:
        return _Torn(self, fd, content)

    def put(self, fd: int, content: bytes | bytearray) -> None:
        """Write to an open file."""
        os.write(fd, content)
        self._stamp(fd)

    def _fill(self, fd: int, path: PathLike, content: bytes) -> None:
        """Write all of `content`; what found room stays. Raises OSError."""
        with self.torn(fd, content):
            self.enter(path, "change", handle=True)
        faults = self.server.faults
        if not faults.active:
            self.put(fd, content)
            return
        done = 0
        while done < len(content):
            fits = faults.fit(len(content) - done)
            self.put(fd, content[done : done + fits])
            done += fits

    def _stamp(self, file: PathLike | int) -> None:
        """Give a file the time of now."""
        now = self.server.now_ns()
        os.utime(file, ns=(now, now))

    def _changed(self, *paths: PathLike) -> None:
        """Note that names were made or removed: their folders get the time of now."""
        now = self.server.now_ns()
        for folder in {os.path.dirname(path) for path in paths}:
            try:
                os.utime(folder or ".", ns=(now, now))
            except OSError:
                pass

    # ---- reading ----

    def open(self, path: PathLike, *, raw: bool = False) -> BinaryIO:
        self.enter(path, "read")
        return open_regular(path, raw=raw)

    def read_bytes(self, path: PathLike, limit: int = MAX_BYTES, *, follow: bool = True) -> bytes:
        self.enter(path, "read")
        return read_bytes(path, limit, follow=follow)

    def read_with_time(self, path: PathLike, limit: int = MAX_BYTES) -> tuple[bytes, float]:
        with self.open(path) as file:
            touched = os.fstat(file.fileno()).st_mtime
            return file.read(limit), touched

    def names(self, folder: PathLike) -> list[str]:
        self.enter(folder, "read")
        return self.server.listing(folder)

    def state(self, path: PathLike) -> FileState | None:
        try:
            self.enter(path, "read")
            about = os.stat(path)
        except FileNotFoundError:
            return None
        inode = self.server.inode(about)
        if (about.st_mode & 0o170000) == 0o040000:
            return FileState(_FOLDER_BYTES, about.st_mtime, inode, True)
        return FileState(about.st_size, about.st_mtime, inode, False)

    def exists(self, path: PathLike) -> bool:
        try:
            self.enter(path, "read")
        except OSError:
            return False
        return os.path.exists(path)

    def has_name(self, path: PathLike) -> bool:
        try:
            self.enter(path, "read")
        except OSError:
            return False
        return os.path.lexists(path)

    def is_folder(self, path: PathLike) -> bool:
        try:
            self.enter(path, "read")
        except OSError:
            return False
        return os.path.isdir(path)

    # ---- writing ----

    def temporary(self, path: PathLike) -> str:
        self.process.step()
        folder, name = os.path.split(path)
        return os.path.join(folder, f".{name}.tmp.{self.process.pid}.{self.server.next_name():08x}")

    def create(self, path: PathLike, content: bytes, *, sync: bool = False) -> None:
        fd = self.opened(path, _NEW)
        try:
            if content:
                self._fill(fd, path, content)
            if sync:
                self.enter(path, "read", handle=True)
        finally:
            os.close(fd)

    def write(self, path: PathLike, content: bytes) -> None:
        fd = self.opened(path, _WRITE)
        try:
            if content:
                self._fill(fd, path, content)
        finally:
            os.close(fd)

    def join(self, path: PathLike, sources: Sequence[PathLike]) -> None:
        fd = self.opened(path, _NEW)
        try:
            for number, source in enumerate(sources, 1):
                try:
                    file = self.open(source)
                except FileNotFoundError:
                    if number == len(sources):
                        raise
                    continue
                with file:
                    while piece := file.read(_PIECE):
                        self._fill(fd, path, piece)
            self.enter(path, "read", handle=True)
        finally:
            os.close(fd)

    def append(self, path: PathLike, content: bytes, *, sync: bool = False) -> int:
        file = SimAppender(self, path)
        try:
            written = file.write(content)
            if sync:
                file.sync()
            return written
        finally:
            file.close()

    def appender(self, path: PathLike) -> SimAppender:  # type: ignore[override]
        return SimAppender(self, path)

    def rename(self, source: PathLike, target: PathLike) -> None:
        self.enter(source, "remove")
        self._free(target)
        os.replace(source, target)
        self._changed(source, target)

    def link(self, source: PathLike, target: PathLike) -> None:
        self.enter(target, "link")
        os.link(source, target)
        self._changed(target)

    def point(self, path: PathLike, target: str) -> None:
        self.enter(path, "make")
        os.symlink(target, path)
        now = self.server.now_ns()
        os.utime(path, ns=(now, now), follow_symlinks=False)
        self._changed(path)

    def remove(self, path: PathLike) -> None:
        try:
            self.enter(path, "remove")
            self._free(path)
            os.unlink(path)
        except FileNotFoundError:
            return
        self._changed(path)

    def _free(self, path: PathLike) -> None:
        """Take back the room of a file that is removed."""
        if self.server.faults.active:
            try:
                about = os.lstat(path)
            except OSError:
                return
            self.server.faults.freed(about.st_size if about.st_nlink == 1 else 0)

    def touch(self, path: PathLike) -> None:
        self.enter(path, "change")
        self._stamp(path)

    def make_folder(self, path: PathLike, *, parents: bool = False, exist_ok: bool = False) -> None:
        try:
            self._make_folder(path)
        except FileNotFoundError:
            if not parents or os.path.dirname(path) == os.fspath(path):
                raise
            self.make_folder(os.path.dirname(path), parents=True, exist_ok=True)
            self.make_folder(path, parents=False, exist_ok=exist_ok)
        except OSError:
            if not exist_ok or not self.is_folder(path):
                raise

    def _make_folder(self, path: PathLike) -> None:
        self.enter(path, "make")
        os.mkdir(path)
        self.server.made(os.stat(path))
        self._stamp(path)
        self._changed(path)

    def remove_folder(self, path: PathLike) -> None:
        self.enter(path, "remove")
        os.rmdir(path)
        self._changed(path)

    def remove_tree(self, path: PathLike) -> None:
        try:
            names = [] if os.path.islink(path) else self.names(path)
        except OSError:
            return
        for name in names:
            inside = os.path.join(path, name)
            if os.path.isdir(inside) and not os.path.islink(inside):
                self.remove_tree(inside)
            else:
                try:
                    self.remove(inside)
                except OSError:
                    pass
        try:
            self.remove_folder(path)
        except OSError:
            pass

    def copy_tree(self, source: PathLike, target: PathLike) -> None:
        problems = self._copied(os.fspath(source), os.fspath(target))
        if problems:
            raise shutil.Error(problems)

    def _copied(self, source: str, target: str) -> list[tuple[str, str, str]]:
        """Copy a folder; return what could not be copied, as shutil.copytree does: (source, target, reason)."""
        names = [name for name in self.names(source) if name != "__pycache__"]
        self.make_folder(target, parents=True)
        problems: list[tuple[str, str, str]] = []
        for name in names:
            here, there = os.path.join(source, name), os.path.join(target, name)
            try:
                if os.path.isdir(here):
                    problems += self._copied(here, there)
                else:
                    self._copy(here, there)
            except OSError as error:
                problems.append((here, there, str(error)))
        self._copy_state(source, target)
        return problems

    def _copy(self, source: str, target: str) -> None:
        with self.open(source) as file:
            self.write(target, file.read())
        self._copy_state(source, target)

    def _copy_state(self, source: str, target: str) -> None:
        about = os.stat(source)
        os.chmod(target, about.st_mode & 0o755)
        os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))

    def sync_folder(self, path: PathLike) -> None:
        self.enter(path, "read")
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def try_out(self, path: PathLike) -> None:
        fd = self.opened(path, _WRITE)
        try:
            self.remove(path)
            self._fill(fd, path, _PROBE)
            self.server.faults.freed(len(_PROBE))
            self.enter(path, "read", handle=True)
        finally:
            os.close(fd)
