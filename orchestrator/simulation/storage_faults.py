"""The mishaps of a file server, each switched at any time. Except `cut`, they hit all hosts."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from orchestrator.onnode.kernel.files import PathLike
from orchestrator.simulation.engine import Engine, SimProcess

Kind = Literal["read", "make", "link", "alter", "write"]
"""`make` and `link` need a free name, `alter` an existing name. `write` opens or makes a file, or
writes to an open file."""

RETRY_S = 1.0
"""Between attempts of a hanging mount."""
LAST_BLOCK = 4096
FITS = 0.25
"""The chance of a small write on a full disk: the last block may have room."""


def fail(number: int, path: PathLike | None = None) -> NoReturn:
    """Raise OSError; a write to an open file has no `path`."""
    name = (os.fspath(path),) if path is not None else ()
    raise OSError(number, os.strerror(number), *name)


@dataclass(frozen=True)
class Away:
    """A silent server: operations fail with `error`, or wait as on a hard mount."""

    error: int = errno.EIO
    hang: bool = False


@dataclass
class Faults:
    engine: Engine
    root: str
    active: bool = False
    _room: int | None = None
    _no_room: int = errno.ENOSPC
    _late: bool = False
    _read_only: bool = False
    _away: Away | None = None
    _cut: dict[str, Away] = field(default_factory=dict)
    _at_times: tuple[tuple[str, ...], float] = ((), 0.0)
    _once: dict[tuple[SimProcess, bool], list[int]] = field(default_factory=dict)
    _slow: tuple[float, float] = (0.0, 0.0)
    _no_links: int = 0
    _lost: float = 0.0
    _handles: dict[str, int] = field(default_factory=dict)

    def full(self, on: bool = True, *, room_bytes: int = 0, late: bool = False) -> None:
        """Leave `room_bytes`. `late`: as on NFS, `sync` or `close` reports the error."""
        self._room, self._no_room, self._late = room_bytes if on else None, errno.ENOSPC, late
        self._switched()

    def quota(self, on: bool = True, *, room_bytes: int = 0, late: bool = False) -> None:
        """As `full`, with a quota's error."""
        self.full(on, room_bytes=room_bytes, late=late)
        self._no_room = errno.EDQUOT

    def read_only(self, on: bool = True) -> None:
        self._read_only = on
        self._switched()

    def away(self, on: bool = True, error: int = errno.EIO, *, hang: bool = False) -> None:
        """Fail with `error`, or wait for the server (`hang`)."""
        self._away = Away(error, hang) if on else None
        self._switched()

    def cut(
        self, host: str, on: bool = True, error: int = errno.EIO, *, hang: bool = False
    ) -> None:
        """As `away`, for a single host."""
        if on:
            self._cut[host] = Away(error, hang)
        else:
            self._cut.pop(host, None)
        self._switched()

    def at_times(self, processes: tuple[str, ...], chance: float) -> None:
        """Make calls fail with EIO in processes with these prefixes."""
        self._at_times = processes, chance
        self._switched()

    def once(self, process: SimProcess, step: int, *, reply: bool = False) -> None:
        """Fail a call with EIO, or lose the `reply` to a changed name, in a step from `step`."""
        self._once.setdefault((process, reply), []).append(step)
        self._switched()

    def _due(self, process: SimProcess, *, reply: bool) -> bool:
        """Return whether a failure is due."""
        steps = self._once.get((process, reply))
        if not steps or process.steps < min(steps):
            return False
        steps.remove(min(steps))
        if not steps:
            del self._once[process, reply]
            self._switched()
        return True

    def slow(self, most_s: float, least_s: float = 0.0) -> None:
        self._slow = (least_s, most_s)
        self._switched()

    def no_hard_links(self, on: bool = True, error: int = errno.EPERM) -> None:
        self._no_links = error if on else 0
        self._switched()

    def lost_replies(self, chance: float) -> None:
        """Lose replies to changes of names, which are there all the same."""
        self._lost = chance

    def reply(self, process: SimProcess, path: PathLike, error: int) -> None:
        """Raise OSError if the reply is lost: `error` after a second request, or EIO."""
        chance = self.engine.random
        if self._due(process, reply=True) or (self._lost and chance.random() < self._lost):
            fail(chance.choice((error, errno.EIO)), path)

    def stale_handles(self, host: str = "") -> None:
        """Make files now open on `host` ("": everywhere) report ESTALE."""
        self._handles[host] = self._handles.get(host, 0) + 1

    def none(self) -> None:
        """End all faults; stale handles stay stale."""
        self._room, self._read_only, self._away, self._slow, self._no_links = (
            None,
            False,
            None,
            (0.0, 0.0),
            0,
        )
        self._at_times, self._lost = ((), 0.0), 0.0
        self._once.clear()
        self._cut.clear()
        self._switched()

    def _switched(self) -> None:
        simple = (
            self._room is not None,
            self._read_only,
            self._away,
            self._cut,
            self._slow[1],
            self._no_links,
        )
        self.active = any(simple) or bool(self._at_times[1] or self._once)

    def handles(self, host: str) -> tuple[int, int]:
        """The generation of handles opened now."""
        return self._handles.get("", 0), self._handles.get(host, 0)

    def meet(
        self, process: SimProcess, host: str, path: PathLike, kind: Kind, *, is_open: bool = False
    ) -> None:
        """Wait, or raise OSError. `is_open`: the file was opened before."""
        name = os.fspath(path)
        if not (name == self.root or name.startswith(self.root + os.sep)):
            return
        if self._slow[1]:
            self.engine.skip(self.engine.between(*self._slow))
        while away := self._cut.get(host) or self._away:
            if not away.hang:
                if away.error == errno.ENOENT and name == self.root:
                    break  # the empty mount point
                if away.error == errno.ENOENT and is_open:
                    fail(errno.ESTALE)
                fail(away.error, None if is_open else name)
            self.engine.pause(process, RETRY_S)
        processes, chance = self._at_times
        if self._due(process, reply=False):
            fail(errno.EIO, None if is_open else name)
        if chance and process.name.startswith(processes) and self.engine.random.random() < chance:
            fail(errno.EIO, None if is_open else name)
        if kind != "read":
            self._writable(name, kind, is_open)

    def _writable(self, name: str, kind: Kind, is_open: bool) -> None:
        if kind != "write" and os.path.lexists(name) != (kind == "alter"):
            return  # the kernel finds the name (EEXIST) or misses it (ENOENT) first
        if self._read_only:
            fail(errno.EROFS, None if is_open else name)
        if kind == "link" and self._no_links:
            fail(self._no_links, name)
        if kind in ("make", "link") and self._room == 0 and self.engine.random.random() >= FITS:
            fail(self._no_room, name)

    def writable(self, host: str) -> bool:
        away = self._away is not None or host in self._cut
        return not (away or self._read_only or self._room is not None)

    def fit(self, size: int) -> int:
        """Return how many bytes fit. Raises OSError without room."""
        if self._room is None or not size:
            return size
        if self._room == 0 and size <= LAST_BLOCK and self.engine.random.random() < FITS:
            return size
        fits = min(size, self._room)
        self._room -= fits
        if not fits:
            fail(self._no_room)
        return fits

    def fit_later(self, size: int) -> tuple[int, int]:
        """Return how many bytes fit, and the errno for the next `sync` or `close`.

        Raises OSError unless errors come late.
        """
        try:
            fits = self.fit(size)
        except OSError as error:
            if not self._late:
                raise
            return 0, error.errno or self._no_room
        return fits, self._no_room if fits < size and self._late else 0

    def freed(self, size: int) -> None:
        if self._room is not None:
            self._room += size
