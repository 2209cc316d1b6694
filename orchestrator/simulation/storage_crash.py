"""The losses of a crash: unsynced contents, and names in unsynced folders.

A server that acknowledges before its disk has the data (an NFS export with `async`) loses both; a
host loses only unsent writes. Off until Server.remember or delay_contents.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.onnode.kernel.files import PathLike
from orchestrator.simulation.engine import Engine

WRITE_BACK_S = 30.0
"""The kernel writes older data by itself (vm.dirty_expire_centisecs)."""

Key = tuple[int, int]
"""Device and inode."""


@dataclass
class Unsynced:
    """Other hosts see `shown` bytes; `safe` bytes survive a crash."""

    host: str
    shown: int
    shown_at: float
    safe: int
    safe_at: float
    open: bool = True


class Contents:
    """Other hosts see unsynced contents `lag_s` after the write."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.lag_s, self.close_sends = 0.0, False
        self._files: dict[Key, Unsynced] = {}

    def delay(self, lag_s: float, *, close_sends: bool) -> None:
        self.lag_s, self.close_sends = lag_s, close_sends

    def wrote(self, about: os.stat_result, host: str) -> None:
        """Note that `host` writes to a file; `about`: the state before."""
        key, now, size = (about.st_dev, about.st_ino), self._engine.now, about.st_size
        unsynced = self._files.get(key)
        if unsynced is None or unsynced.host != host:
            self._files[key] = Unsynced(host, size, now, size, now)
            return
        unsynced.open = True
        if now >= unsynced.shown_at + self.lag_s:
            unsynced.shown, unsynced.shown_at = size, now
        if now >= unsynced.safe_at + WRITE_BACK_S:
            unsynced.safe, unsynced.safe_at = size, now
        unsynced.shown, unsynced.safe = min(unsynced.shown, size), min(unsynced.safe, size)

    def synced(self, about: os.stat_result, host: str) -> None:
        """Note a sync by `host`."""
        unsynced = self._files.get((about.st_dev, about.st_ino))
        if unsynced is not None and unsynced.host == host:
            del self._files[about.st_dev, about.st_ino]

    def closed(self, about: os.stat_result, host: str) -> None:
        """Note that `host` has sent its content."""
        unsynced = self._files.get((about.st_dev, about.st_ino))
        if unsynced is not None and unsynced.host == host:
            unsynced.open = False
            if self.close_sends:
                unsynced.shown, unsynced.shown_at = about.st_size, self._engine.now

    def made(self, about: os.stat_result) -> None:
        """Forget an earlier file with this inode number."""
        self._files.pop((about.st_dev, about.st_ino), None)

    def shown(self, about: os.stat_result, host: str) -> int:
        """Return how many bytes `host` sees."""
        unsynced = self._files.get((about.st_dev, about.st_ino))
        if (
            unsynced is None
            or unsynced.host == host
            or self._engine.now >= unsynced.shown_at + self.lag_s
        ):
            return about.st_size
        return min(unsynced.shown, about.st_size)

    def lose(self, root: Path, lost_s: float, host: str = "") -> None:
        """Cut off last writes, of all files or those open on `host`."""
        now, chance = self._engine.now, self._engine.random
        hit = {
            key: unsynced.safe
            for key, unsynced in self._files.items()
            if now - unsynced.safe_at < lost_s
            and (not host or (unsynced.host == host and unsynced.open))
        }
        for path in sorted(root.rglob("*")):
            about = path.lstat()
            safe = hit.pop((about.st_dev, about.st_ino), None)
            if safe is not None and safe < about.st_size:
                cut(path, chance.choice((safe, chance.randint(safe, about.st_size))))
        self._files = {
            key: unsynced for key, unsynced in self._files.items() if host and unsynced.host != host
        }


@dataclass(frozen=True)
class Change:
    """An unsynced change. `stash`: the file that lost its name."""

    at: float
    folders: tuple[str, ...]
    undo: Callable[[], object]
    stash: Path | None = None


class Journal:
    def __init__(self, engine: Engine, stash: Path, touched: Callable[[str, bool], None]) -> None:
        """`stash` takes removed files. A crash calls `touched` for folders; True: created."""
        self._engine, self._stash, self._touched = engine, stash, touched
        self._changes: deque[Change] = deque()
        self._count = 0

    def made(self, path: PathLike) -> None:
        self._add((path,), lambda: _drop(path))

    def removed(self, path: PathLike, kept: Path | None) -> None:
        """Note the removed name of a kept file, or of a folder."""

        def undo() -> None:
            if kept:
                os.replace(kept, path)
            else:
                os.mkdir(path)
                self._touched(os.fspath(path), True)

        self._add((path,), undo, kept)

    def renamed(self, source: PathLike, target: PathLike, kept: Path | None) -> None:
        """Note a name that replaced a kept file, or nothing."""

        def undo() -> None:
            os.replace(target, source)
            if kept:
                os.replace(kept, target)

        self._add((source, target), undo, kept)

    def keep(self, path: PathLike) -> Path | None:
        """Link a file into the stash; None for a folder or a missing file."""
        self._stash.mkdir(exist_ok=True)
        self._count += 1
        kept = self._stash / str(self._count)
        try:
            os.link(path, kept, follow_symlinks=False)
        except OSError:
            return None
        return kept

    def synced(self, folder: PathLike) -> None:
        name, kept = os.fspath(folder), deque[Change]()
        for change in self._changes:
            if name in change.folders:
                self._forget(change)
            else:
                kept.append(change)
        self._changes = kept

    def lose(self, lost_s: float) -> None:
        while self._changes and self._changes[-1].at > self._engine.now - lost_s:
            change = self._changes.pop()
            with suppress(OSError):  # the folder of the other name was synced, or is lost
                change.undo()
            for folder in change.folders:
                self._touched(folder, False)
        self.close()

    def close(self) -> None:
        self._changes.clear()
        shutil.rmtree(self._stash, ignore_errors=True)

    def _add(
        self, paths: tuple[PathLike, ...], undo: Callable[[], object], kept: Path | None = None
    ) -> None:
        now = self._engine.now
        self._changes.append(
            Change(now, tuple(os.path.dirname(path) for path in paths), undo, kept)
        )
        while self._changes[0].at < now - WRITE_BACK_S:
            self._forget(self._changes.popleft())

    def _forget(self, change: Change) -> None:
        if change.stash:
            change.stash.unlink(missing_ok=True)


def cut(path: Path, size: int) -> None:
    """Cut a file, which keeps its virtual times."""
    about = path.stat()
    os.truncate(path, size)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def _drop(path: PathLike) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        for name in os.listdir(path):
            _drop(os.path.join(path, name))
        os.rmdir(path)
    else:
        os.unlink(path)
