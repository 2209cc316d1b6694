"""Reading the storage as a simulated process: steps, faults, and its host's view."""

from __future__ import annotations

import errno
import io
import os
from typing import BinaryIO, cast

from orchestrator.onnode.kernel.files import MISSING, Files, FileState, PathLike
from orchestrator.onnode.kernel.regular import MAX_BYTES, open_regular, read_bytes
from orchestrator.simulation.engine import SimProcess
from orchestrator.simulation.storage_faults import Kind, fail
from orchestrator.simulation.storage_server import Server
from orchestrator.simulation.storage_views import HostView

_FOLDER_BYTES = 4096


class _Reading(io.BufferedReader):
    """An open file: each read is a step."""

    def __init__(self, files: SimReader, path: PathLike, raw: io.RawIOBase) -> None:
        super().__init__(raw)
        self._files, self._path, self._handle = files, path, files.handle

    def read(self, size: int | None = -1, /) -> bytes:
        self._files.enter(self._path, "read", self._handle)
        return super().read(size)


class SimReader(Files):
    """The read-only methods of SimFiles."""

    def __init__(self, server: Server, process: SimProcess, host: str = "") -> None:
        self.server, self.process, self.host = server, process, host or process.host

    @property
    def handle(self) -> tuple[int, int]:
        """The generation of files opened now."""
        return self.server.faults.handles(self.host)

    @property
    def view(self) -> HostView | None:
        return self.server.view(self.host) if self.server.caching.on else None

    def enter(self, path: PathLike, kind: Kind, handle: tuple[int, int] | None = None) -> None:
        """Do a step on `path`, or the open file `handle`. Raises Killed, and OSError by a fault."""
        self.process.step()
        server = self.server
        if server.faults.active:
            server.faults.meet(self.process, self.host, path, kind, is_open=handle is not None)
        if handle is not None:
            if handle != self.handle:
                fail(errno.ESTALE)
        elif server.caching.on:
            server.view(self.host).enter(path, kind)

    def open(self, path: PathLike, *, raw: bool = False) -> BinaryIO:
        return cast(BinaryIO, self._open(path))

    def _open(self, path: PathLike) -> _Reading:
        self.enter(path, "read")
        if self.server.plain:
            return _Reading(self, path, cast(io.RawIOBase, open_regular(path, raw=True)))
        view, contents = self.view, self.server.contents
        if view is not None:
            view.find(path)
            view.ask(path)
        file = open_regular(path, raw=True)
        if contents is not None:
            about = os.fstat(file.fileno())
            shown = contents.shown(about, self.host)
            if shown < about.st_size:
                with file:
                    return _Reading(self, path, _copy_of(file.read(shown), about))
        return _Reading(self, path, cast(io.RawIOBase, file))

    def read_bytes(self, path: PathLike, limit: int = MAX_BYTES, *, follow: bool = True) -> bytes:
        if self.server.plain:
            self.enter(path, "read")
            return read_bytes(path, limit, follow=follow)
        if not follow and os.path.islink(path):
            fail(errno.ELOOP, path)
        with self._open(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise OSError(
                    0, f"it has {size} bytes, and at most {limit} are read", os.fspath(path)
                )
            return file.read()

    def read_with_time(self, path: PathLike, limit: int = MAX_BYTES) -> tuple[bytes, float]:
        if os.fspath(path).endswith(".lock"):
            self.process.confirm()
        if self.server.plain:
            self.enter(path, "read")
            handle = self.handle
            with open_regular(path, raw=True) as plain:
                touched = os.fstat(plain.fileno()).st_mtime
                self.enter(path, "read", handle)
                return plain.read(limit), touched
        with self._open(path) as file:
            touched = os.fstat(file.fileno()).st_mtime
            return file.read(limit), touched

    def names(self, folder: PathLike) -> list[str]:
        self.enter(folder, "read")
        view = self.view
        return (
            self.server.listing(folder) if view is None else view.names(folder, self.server.listing)
        )

    def state(self, path: PathLike) -> FileState | None:
        try:
            self.enter(path, "read")
            about = os.stat(path) if self.server.plain else self._about(path)
        except OSError as error:
            if error.errno not in MISSING:
                raise
            return None
        inode, is_folder = self.server.inode(about), (about.st_mode & 0o170000) == 0o040000
        return FileState(
            _FOLDER_BYTES if is_folder else about.st_size, about.st_mtime, inode, is_folder
        )

    def _about(self, path: PathLike) -> os.stat_result:
        """Return a file's state as this host sees it. Raises OSError."""
        contents, view = self.server.contents, self.view
        if view is None:
            state = os.stat(path)
        else:
            seen = view.look(path)
            state = seen.about or fail(seen.error, path)
        if contents is not None and (shown := contents.shown(state, self.host)) < state.st_size:
            state = os.stat_result((*state[:6], shown, *state[7:10]), {"st_mtime": state.st_mtime})
        return state

    def exists(self, path: PathLike) -> bool:
        return self.state(path) is not None

    def has_name(self, path: PathLike) -> bool:
        try:
            self.enter(path, "read")
        except OSError as error:
            if error.errno not in MISSING:
                raise
            return False
        view = self.view
        return os.path.lexists(path) if view is None else view.look(path).named

    def is_folder(self, path: PathLike) -> bool:
        try:
            self.enter(path, "read")
        except OSError:
            return False
        view = self.view
        if view is None:
            return os.path.isdir(path)
        about = view.look(path).about
        return about is not None and (about.st_mode & 0o170000) == 0o040000


def _copy_of(content: bytes, about: os.stat_result) -> io.RawIOBase:
    """Return an open file with the times of `about`."""
    file = os.memfd_create("storage")
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    return io.FileIO(file)
