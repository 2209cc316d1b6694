"""The file server of a simulated world."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from pathlib import Path

from orchestrator.onnode.kernel.files import PathLike
from orchestrator.simulation.engine import Engine
from orchestrator.simulation.storage_crash import Contents, Journal
from orchestrator.simulation.storage_faults import Faults
from orchestrator.simulation.storage_views import Caching, HostView


class Server:
    """`root` has the content; `faults` and `clock_s` may change at any time."""

    def __init__(self, engine: Engine, root: Path) -> None:
        self.engine, self.root = engine, root
        self.faults = Faults(engine, str(root))
        self.caching = Caching()
        self.contents: Contents | None = None
        self.journal: Journal | None = None
        self.plain = True
        """Every host sees the true state."""
        self.clock_s = 0.0
        """Ahead of the true time."""
        self.deaths = Counter[str]()
        """Of hosts."""
        self._salt = engine.seed & 0xFFFFFFFF
        self._views: dict[str, HostView] = {}
        self._names = 0
        self._inodes: dict[tuple[int, int], int] = {}
        self._count = 0

    def cache(self, most_s: float, least_s: float = 3.0, *, listings: bool = True) -> None:
        """Make hosts keep names and attributes for `least_s` to `most_s` seconds; 0: no caches.

        These are acregmin and acregmax of nfs(5). `listings`: list folders from the cache, too, as
        Linux does if mounted with `nocto`.
        """
        self.caching.keep(least_s, most_s, listings=listings)
        for view in self._views.values():
            view.clear()
        self._switched()

    def delay_contents(self, lag_s: float, *, close_sends: bool = False) -> None:
        """Show other hosts unsynced contents after `lag_s`, names at once; `close_sends`: as NFS,
        those of open files."""
        self.contents = self.contents or Contents(self.engine)
        self.contents.delay(lag_s, close_sends=close_sends)
        self._switched()

    def remember(self) -> None:
        """Note changes that a crash can lose."""
        self.contents = self.contents or Contents(self.engine)
        self._switched()
        stash = self.root.with_name(f"{self.root.name}.lost")
        self.journal = self.journal or Journal(self.engine, stash, self._touched)

    def crash(self, lost_s: float = 10.0) -> None:
        """Lose unsynced names and contents of up to the last `lost_s`; answer again at once.

        Changes before `remember` are safe. Raises RuntimeError without it.
        """
        if self.journal is None or self.contents is None:
            raise RuntimeError("Server.remember() has to come before a crash")
        lost_s = self.engine.between(0.0, lost_s)
        self.contents.lose(self.root, lost_s)
        self.journal.lose(lost_s)

    def lose_host(self, host: str, lost_s: float = 30.0) -> None:
        """Lose a dead host's unsent writes and cache."""
        self.deaths[host] += 1
        if self.contents is not None:
            self.contents.lose(self.root, self.engine.between(0.0, lost_s), host)
        if host in self._views:
            self._views[host].clear()

    def close(self) -> None:
        """Remove the files kept for a crash."""
        if self.journal is not None:
            self.journal.close()

    def view(self, host: str) -> HostView:
        if host not in self._views:
            self._views[host] = HostView(self.engine, str(self.root), self.caching, self.inode)
        return self._views[host]

    def _switched(self) -> None:
        self.plain = not self.caching.on and self.contents is None

    def _touched(self, folder: str, new: bool) -> None:
        if new:
            self.made(os.stat(folder))
        self.stamp(folder)

    def now_ns(self) -> int:
        return self.engine.start_ms * 1_000_000 + int((self.engine.now + self.clock_s) * 1e9)

    def step_clock(self, by_s: float) -> None:
        self.clock_s += by_s

    def stamp(self, file: PathLike | int) -> None:
        now = self.now_ns()
        try:
            os.utime(file, ns=(now, now))
        except FileNotFoundError:
            pass

    def adopt(self, folder: Path) -> None:
        """Stamp files that no process of this world wrote."""
        for path in (folder, *folder.rglob("*")):
            self.stamp(path)

    def made(self, about: os.stat_result) -> None:
        """Number a new file or folder."""
        self._count += 1
        self._inodes[about.st_dev, about.st_ino] = self._count
        if self.contents is not None:
            self.contents.made(about)

    def inode(self, about: os.stat_result) -> int:
        key = about.st_dev, about.st_ino
        if key not in self._inodes:
            self.made(about)
        return self._inodes[key]

    def next_name(self) -> int:
        self._names += 1
        return self._names

    def listing(self, folder: PathLike) -> list[str]:
        """Return names by their hashes, as ext4 does."""
        names = os.listdir(folder)
        names.sort(key=lambda name: (zlib.crc32(os.fsencode(name), self._salt), name))
        return names
