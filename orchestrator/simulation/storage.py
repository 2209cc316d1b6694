"""A process's storage: a real folder with virtual times behind a file server that fails.

A process has its own `SimFiles`, with the methods of onnode/kernel/files.py. Each system call is a
step: before it the process may be killed or wait, and faults apply. Files get the server's times,
so direct readers (score, status, evidence) see virtual times.

A seed always gives the same tree, times and orders of listings: inode numbers and temporary names
are counted.

Modelled: faults (storage_faults.py); caches of hosts (storage_views.py), so two hosts that append
to a file overwrite each other; late contents and crashes (storage_crash.py). A full disk or the
writer's death leaves a part of a write.

Kinder than NFS:
    a host that opens a cached name gets the new file, even if another name keeps the old file alive
    pages of an open file are not cached
    removed open files leave no .nfs* names
    a link to a folder is not resolved: names below it are cached as if they were other files

Harsher than NFS: a server that exports with `sync` loses no names, and no content of a closed file.
Paths outside the server's folder have no faults.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from orchestrator.onnode.kernel.files import Appender, PathLike
from orchestrator.simulation.engine import Killed
from orchestrator.simulation.storage_faults import fail
from orchestrator.simulation.storage_reading import SimReader
from orchestrator.simulation.storage_server import Server as Server

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 1 << 20
_PROBE = bytes(1 << 16)


class SimAppender(Appender):
    def __init__(self, files: SimFiles, path: PathLike) -> None:
        self._files, self._path = files, os.fspath(path)
        self._fd = -1
        self._fd = files.opened(path, _APPEND)
        self._handle, self._failed = files.handle, 0
        if files.view is not None:
            files.view.end(path, os.fstat(self._fd).st_size, opened=True)

    def size(self) -> int:
        self._files.enter(self._path, "read", self._handle)
        return os.fstat(self._fd).st_size

    def write(self, content: bytes | bytearray) -> int:
        self._files.enter_to_write(self._path, content, self._handle, self.put)
        faults, fits = self._files.server.faults, len(content)
        if faults.active or self._failed:
            self._report()
            fits, self._failed = faults.fit_later(fits)
        if fits:
            self.put(content[:fits])
        return len(content) if self._failed else fits

    def put(self, content: bytes | bytearray) -> None:
        """Write at the end as the host sees it."""
        files, path = self._files, self._path
        if files.view is None:
            files.put(self._fd, path, content)
            return
        size = os.fstat(self._fd).st_size
        end = files.view.end(path, size)
        if end < size:
            files.overwrite(self._fd, path, content, end)
        else:
            files.put(self._fd, path, content)
        files.view.appended(path, end + len(content))

    def sync(self) -> None:
        self._files.enter(self._path, "read", self._handle)
        self._report()
        self._files.synced(self._fd)

    def close(self) -> None:
        self._files.process.step()
        self._files.closed(self._fd)
        self.__del__()
        self._report()

    def _report(self) -> None:
        failed, self._failed = self._failed, 0
        if failed:
            fail(failed)

    def __del__(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class SimFiles(SimReader):
    """The storage as a process on `host` sees it."""

    def opened(self, path: PathLike, flags: int) -> int:
        """Open a file to write, or make it."""
        self.enter(path, "make" if flags & os.O_EXCL else "write")
        fd = -1
        if not flags & os.O_EXCL:
            try:
                fd = os.open(path, flags & ~os.O_CREAT)
            except FileNotFoundError:
                pass
        if fd < 0:
            fd = os.open(path, flags, 0o666)
            self.server.made(os.fstat(fd))
            self._changed(path)
        elif not flags & os.O_TRUNC:
            return fd
        self.server.stamp(fd)
        return fd

    def put(self, fd: int, path: PathLike, content: bytes | bytearray) -> None:
        server = self.server
        if server.contents is not None:
            server.contents.wrote(os.fstat(fd), self.host)
        os.write(fd, content)
        server.stamp(fd)
        if server.caching.on:
            server.view(self.host).wrote(path, os.fstat(fd))

    def overwrite(self, fd: int, path: PathLike, content: bytes | bytearray, at: int) -> None:
        """Write at the file's old end: a file opened to append ignores offsets."""
        place = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.lseek(place, at, os.SEEK_SET)
            self.put(place, path, content)
        finally:
            os.close(place)

    def enter_to_write(
        self,
        path: PathLike,
        content: bytes | bytearray,
        handle: tuple[int, int],
        put: Callable[[bytes | bytearray], object],
    ) -> None:
        """As `enter`. A process that dies may leave a part, unless its host dies with it."""
        server, alive = self.server, self.process.alive
        deaths = server.deaths[self.host]
        try:
            self.enter(path, "write", handle)
        except Killed:
            sent = 0
            if alive and deaths == server.deaths[self.host] and server.faults.writable(self.host):
                sent = server.engine.random.randrange(len(content) + 1)
            if sent:
                put(content[:sent])
            raise

    def synced(self, fd: int) -> None:
        if self.server.contents is not None:
            self.server.contents.synced(os.fstat(fd), self.host)

    def closed(self, fd: int) -> None:
        if self.server.contents is not None:
            self.server.contents.closed(os.fstat(fd), self.host)

    def _fill(self, fd: int, path: PathLike, content: bytes, handle: tuple[int, int]) -> None:
        """Write all of `content`; without room, a part. Raises OSError."""
        self.enter_to_write(path, content, handle, lambda part: self.put(fd, path, part))
        faults = self.server.faults
        done = 0
        while done < len(content):
            fits = faults.fit(len(content) - done) if faults.active else len(content)
            self.put(fd, path, content[done : done + fits])
            done += fits

    def _sync(self, fd: int, path: PathLike, handle: tuple[int, int]) -> None:
        self.enter(path, "read", handle)
        self.synced(fd)

    def _close(self, fd: int) -> None:
        if self.process.alive:
            self.closed(fd)
        os.close(fd)

    def _changed(self, path: PathLike, *, made: bool = True) -> None:
        """A created or removed name gives its folder the current time."""
        server = self.server
        server.stamp(os.path.dirname(path) or ".")
        if made and server.journal is not None:
            server.journal.made(path)
        if server.caching.on:
            server.view(self.host).changed(path)

    def temporary(self, path: PathLike) -> str:
        self.process.step()
        folder, name = os.path.split(path)
        return os.path.join(folder, f".{name}.tmp.{self.process.pid}.{self.server.next_name():08x}")

    def create(self, path: PathLike, content: bytes, *, sync: bool = False) -> None:
        handle, fd = self.handle, self.opened(path, _NEW)
        try:
            if content:
                self._fill(fd, path, content, handle)
            if sync:
                self._sync(fd, path, handle)
        except OSError:
            self.remove(path)
            raise
        finally:
            self._close(fd)

    def write(self, path: PathLike, content: bytes) -> None:
        handle, fd = self.handle, self.opened(path, _WRITE)
        try:
            if content:
                self._fill(fd, path, content, handle)
        finally:
            self._close(fd)

    def join(self, path: PathLike, sources: Sequence[PathLike]) -> None:
        handle, fd = self.handle, self.opened(path, _NEW)
        try:
            for number, source in enumerate(sources, 1):
                try:
                    file = self._open(source)
                except FileNotFoundError:
                    if number == len(sources):
                        raise
                    continue
                with file:
                    while piece := file.read(_PIECE):
                        self._fill(fd, path, piece, handle)
            self._sync(fd, path, handle)
        finally:
            self._close(fd)

    def appender(self, path: PathLike) -> SimAppender:  # type: ignore[override]
        return SimAppender(self, path)

    def rename(self, source: PathLike, target: PathLike) -> None:
        self.enter(source, "alter")
        if view := self.view:
            view.enter(target, "make")
        self._free(target)
        journal = self.server.journal
        kept = journal.keep(target) if journal is not None else None
        os.replace(source, target)
        if journal is not None:
            journal.renamed(source, target, kept)
        self._changed(source, made=False)
        self._changed(target, made=False)
        self.server.faults.reply(self.process, source, errno.ENOENT)

    def link(self, source: PathLike, target: PathLike) -> None:
        self.enter(target, "link")
        if view := self.view:
            view.find(source)
        os.link(source, target)
        self._changed(target)
        self.server.faults.reply(self.process, target, errno.EEXIST)

    def point(self, path: PathLike, target: str) -> None:
        self.enter(path, "make")
        os.symlink(target, path)
        now = self.server.now_ns()
        os.utime(path, ns=(now, now), follow_symlinks=False)
        self._changed(path)
        self.server.faults.reply(self.process, path, errno.EEXIST)

    def remove(self, path: PathLike) -> None:
        journal = self.server.journal
        try:
            self.enter(path, "alter")
            self._free(path)
            kept = journal.keep(path) if journal is not None else None
            os.unlink(path)
        except FileNotFoundError:
            return
        if journal is not None:
            journal.removed(path, kept)
        self._changed(path, made=False)

    def _free(self, path: PathLike) -> None:
        if self.server.faults.active:
            try:
                about = os.lstat(path)
            except OSError:
                return
            self.server.faults.freed(about.st_size if about.st_nlink == 1 else 0)

    def touch(self, path: PathLike) -> None:
        self.enter(path, "alter")
        now = self.server.now_ns()
        os.utime(path, ns=(now, now))
        if view := self.view:
            view.wrote(path, os.stat(path))

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
        self.server.stamp(path)
        self._changed(path)
        self.server.faults.reply(self.process, path, errno.EEXIST)

    def remove_folder(self, path: PathLike) -> None:
        self.enter(path, "alter")
        os.rmdir(path)
        if self.server.journal is not None:
            self.server.journal.removed(path, None)
        self._changed(path, made=False)
        self.server.faults.reply(self.process, path, errno.ENOENT)

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
            raise OSError(0, str(problems[0][-1]), os.fspath(target))  # as the real one does

    def _copied(self, source: str, target: str) -> list[tuple[str, str, str]]:
        """Return failures as shutil.copytree does: (source, target, reason)."""
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
        _copy_state(source, target)
        return problems

    def _copy(self, source: str, target: str) -> None:
        with self._open(source) as file:
            self.write(target, file.read())
        _copy_state(source, target)

    def sync_folder(self, path: PathLike) -> None:
        self.enter(path, "read")
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        if self.server.journal is not None:
            self.server.journal.synced(path)

    def try_out(self, path: PathLike) -> None:
        handle, fd = self.handle, self.opened(path, _WRITE)
        try:
            self.remove(path)
            self._fill(fd, path, _PROBE, handle)
            self.server.faults.freed(len(_PROBE))
            self._sync(fd, path, handle)
        finally:
            os.close(fd)


def _copy_state(source: str, target: str) -> None:
    """Copy the times, and give only the owner the right to write."""
    about = os.stat(source)
    os.chmod(target, about.st_mode & 0o755)
    os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))
