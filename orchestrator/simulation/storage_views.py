"""A host's cache of names, attributes and listings, as in an NFS client.

A reply is kept for a random time; meanwhile the host sees only its own changes. Opening a file asks
the server (close-to-open), unless its name, or a folder above, is remembered as missing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.onnode.kernel.files import PathLike
from orchestrator.simulation.engine import Engine
from orchestrator.simulation.storage_faults import Kind, fail


@dataclass(frozen=True)
class Seen:
    """A reply about a name. `about` follows links; None comes with an `error`."""

    named: bool
    about: os.stat_result | None
    until: float
    error: int = errno.ENOENT


@dataclass
class Caching:
    """Lifetimes of cached replies (s); `listings`: those to listings, too."""

    least_s: float = 0.0
    most_s: float = 0.0
    listings: bool = True
    on: bool = False

    def keep(self, least_s: float, most_s: float, *, listings: bool) -> None:
        self.least_s, self.most_s = min(least_s, most_s), most_s
        self.listings, self.on = listings, most_s > 0.0


class HostView:
    def __init__(
        self, engine: Engine, root: str, caching: Caching, number: Callable[[os.stat_result], int]
    ) -> None:
        """`number` returns the server's number of a file."""
        self._engine, self._root, self._caching, self._number = engine, root, caching, number
        self._seen: dict[str, Seen] = {}
        self._names: dict[int, set[str]] = {}
        """Of an inode: a write under one name is seen under all."""
        self._lists: dict[str, tuple[list[str], float]] = {}
        self._ends: dict[str, tuple[int, float]] = {}

    def clear(self) -> None:
        """Forget everything, as at a mount."""
        self._seen.clear()
        self._names.clear()
        self._lists.clear()
        self._ends.clear()

    def _until(self) -> float:
        return self._engine.now + self._engine.between(self._caching.least_s, self._caching.most_s)

    def look(self, path: PathLike) -> Seen:
        for name in (os.fspath(path), _target(path)):
            seen = self._seen.get(name)
            if seen is not None and self._engine.now < seen.until:
                return seen
        return self._missing_folder(name) or self.ask(name)

    def ask(self, path: PathLike) -> Seen:
        """Ask the server, and keep the reply."""
        name = _target(path)
        try:
            seen = Seen(True, os.stat(name), self._until())
        except OSError as problem:
            seen = Seen(os.path.lexists(name), None, self._until(), problem.errno or errno.EIO)
        if seen.about or not seen.named:  # the target of a broken link may be made here
            self._seen[name] = seen
        if seen.about:
            self._names.setdefault(self._number(seen.about), set()).add(name)
        return seen

    def names(self, folder: PathLike, ask: Callable[[PathLike], list[str]]) -> list[str]:
        """Return names as the host sees them; `ask` asks the server. Raises OSError."""
        name = _target(folder)
        kept, until = self._lists.get(name, ([], 0.0))
        if self._engine.now < until and self._caching.listings:
            return list(kept)
        self.find(folder)
        listing = ask(folder)
        self._lists[name] = (listing, self._until())
        there, prefix = set(listing), f"{name}{os.sep}"
        for path in [path for path in self._seen if path.startswith(prefix)]:
            inside = path[len(prefix) :]
            if os.sep not in inside and (inside in there) != self._seen[path].named:
                del self._seen[path]  # a listing corrects remembered names
        return list(listing)

    def _missing_folder(self, name: str) -> Seen | None:
        """Return the cached reply about a folder above `name` believed missing."""
        folder = os.path.dirname(name)
        while len(folder) > len(self._root):
            seen = self._seen.get(folder)
            if seen is not None and not seen.named and self._engine.now < seen.until:
                return seen
            folder = os.path.dirname(folder)
        return None

    def find(self, path: PathLike) -> None:
        """Raise FileNotFoundError if the path is remembered as missing."""
        name = os.fspath(path)
        seen = self._seen.get(name)
        if seen is None or seen.named or self._engine.now >= seen.until:
            seen = self._missing_folder(name)
        if seen is not None:
            fail(seen.error, path)

    def enter(self, path: PathLike, kind: Kind) -> None:
        """Raise FileNotFoundError if the host would not even ask the server."""
        if kind == "alter":
            self.find(path)
        elif kind != "read":
            if missing := self._missing_folder(os.fspath(path)):
                fail(missing.error, path)
            self._seen.pop(os.fspath(path), None)

    def wrote(self, path: PathLike, about: os.stat_result) -> None:
        """Note this host's change of a file's content or time."""
        self._seen.pop(os.fspath(path), None)
        for name in self._names.pop(self._number(about), ()):
            self._seen.pop(name, None)

    def changed(self, path: PathLike) -> None:
        """Note a name made or removed by this host."""
        for place in {os.fspath(path), _target(path)}:
            folder = os.path.dirname(place)
            for gone in (folder, place):
                self._seen.pop(gone, None)
                self._lists.pop(gone, None)
            self._ends.pop(place, None)
            for known in (self._seen, self._lists):
                for inside in [path for path in known if path.startswith(place + os.sep)]:
                    del known[inside]

    def end(self, path: PathLike, size: int, *, opened: bool = False) -> int:
        """Return the end as the host counts it."""
        name = os.fspath(path)
        known, until = self._ends.get(name, (size, 0.0))
        if opened or self._engine.now >= until:
            known, until = size, self._until()
        self._ends[name] = known, until
        return known

    def appended(self, path: PathLike, end: int) -> None:
        name = os.fspath(path)
        _, until = self._ends.get(name, (0, self._until()))
        self._ends[name] = end, until


def _target(path: PathLike) -> str:
    """Follow a link: the cache is about files."""
    name = os.fspath(path)
    return os.path.realpath(name) if os.path.islink(name) and os.path.exists(name) else name
