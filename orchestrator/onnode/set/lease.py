"""Mutual exclusion on shared storage: a file with its holder, the time of its last beat and a
token.

The file is complete when it appears: linked to its name, or, without hard links, made with O_EXCL.
That works on NFS and Lustre, flock not everywhere. The holder touches it every `BEAT_S` seconds.
Its age is measured against a new file, by the storage's clock. policy/lease.py decides whether a
holder is dead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, fields
from pathlib import Path

from ..kernel.files import linked
from ..kernel.holder import Holder
from ..kernel.regular import parse
from ..kernel.world import THIS, World
from ..policy.lease import ALIVE, STALE_S, HolderVerdict, Observation, judge, same_kernel

BEAT_S = 15.0
UNREADABLE = Holder(token="?")
_TYPES = {item.name: int if item.type == "int" else str for item in fields(Holder)}

JobSight = Callable[[str], "bool | None"]
"""True if the scheduler shows a job, False if it does not, None without an answer."""


class HeldError(Exception):
    """Another process holds the lease."""

    def __init__(self, path: Path, holder: Holder, verdict: HolderVerdict) -> None:
        super().__init__(f"{path}: {holder}; {verdict.why}")
        self.path, self.holder, self.verdict = path, holder, verdict


def read(path: Path, world: World = THIS) -> tuple[Holder, float] | None:
    """Return a lease's holder and its last touch (seconds), None without a lease. Raises OSError.

    An unreadable lease is held by an unknown process since its time.
    """
    try:
        text, touched = world.files.read_with_time(path, 1 << 16)
    except FileNotFoundError:
        return None
    try:
        data = parse(text)
    except ValueError:
        data = None
    good = isinstance(data, dict) and data.keys() == _TYPES.keys()
    if not good or not all(type(data[name]) is kind for name, kind in _TYPES.items()):
        return UNREADABLE, touched
    return Holder(**data), touched


def server_now(folder: Path, world: World = THIS) -> float:
    """Return seconds by the storage's clock. Raises OSError."""
    probe = folder / f".clock.{world.token()}"
    try:
        world.files.create(probe, b"\n")
        state = world.files.state(probe)
        return state.mtime if state else world.wall_ms() / 1000
    finally:
        with _abandoning(probe, "", world):
            world.files.remove(probe)


def remove_unfinished(path: Path, world: World = THIS, *, only_own: bool = False) -> None:
    """Remove files of processes killed while taking a lease in the folder of `path`, or, with
    `only_own`, that lease. Only its holder calls this. Raises OSError."""
    held, begins = world.files.state(path), f".{path.name}." if only_own else "."
    for name in world.files.names(path.parent) if held else ():
        if name.startswith(".clock.") or (
            name.startswith(begins) and (".lock.new." in name or ".lock.of-" in name)
        ):
            state = world.files.state(path.parent / name)
            # Beats keep the holder's file young; taking a lease needs a file for a moment. A
            # file of the future is older than a clock that was set back.
            if held and state and abs(held.mtime - state.mtime) > STALE_S:
                world.files.remove(path.parent / name)


@contextmanager
def _abandoning(path: Path, token: str, world: World) -> Iterator[None]:
    """Remember a file that the storage refuses to remove: nobody holds it."""
    try:
        yield
    except OSError:
        world.abandoned.add((path, token))


def remove_abandoned(world: World = THIS) -> None:
    """Try again to remove them, except leases that another process has taken since."""
    for path, token in sorted(world.abandoned):
        with suppress(OSError):
            held = read(path, world) if token else None
            if not token or (held is not None and held[0].token == token):
                world.files.remove(path)


def look(
    path: Path, viewer: Holder, sees: JobSight, stale_s: float = STALE_S, world: World = THIS
) -> tuple[Holder, HolderVerdict] | None:
    """Return a lease's holder and its verdict, None without a lease. Raises OSError.

    Without write permission in the folder, it compares with this machine's clock.
    """
    held = read(path, world)
    if held is None:
        return None
    holder, touched = held
    process = (
        world.lives(holder.pid, holder.start)
        if holder.pid and same_kernel(holder, viewer)
        else None
    )
    process = False if (path, holder.token) in world.abandoned else process
    job = sees(holder.job) if holder.job and process is None else None
    try:
        now = server_now(path.parent, world)
    except OSError:
        now = world.wall_ms() / 1000
    if touched - now > BEAT_S:  # of a clock that was set back meanwhile: it counts from now on
        with suppress(OSError):
            world.files.touch(path)
        touched = now
    sight = Observation(process, job, now - touched)
    return holder, judge(holder, viewer, sight, stale_s)


Waits = Generator[float, None, "Holder | None"]
"""Yields the time (World.now) of its next check."""


class Lease:
    """A lease on `path` for `me`. `sees` checks a holder's job. `lost` is called, perhaps in
    another thread, after the loss of the lease."""

    def __init__(
        self,
        path: Path,
        me: Holder,
        *,
        sees: JobSight = lambda job: None,
        lost: Callable[[], object] = lambda: None,
        beat_s: float = BEAT_S,
        stale_s: float = STALE_S,
        world: World = THIS,
    ) -> None:
        self.path, self.me, self._world = path, me, world
        self._content = (json.dumps(asdict(me)) + "\n").encode()
        self._sees, self._lost, self._beat_s, self._stale_s = sees, lost, beat_s, stale_s
        self._stop: Callable[[], None] | None = None

    def take(
        self, *, wait: bool = False, patience_s: float = 0.0, beat: bool = True
    ) -> Holder | None:
        """Like `taking`, but wait here."""
        world = self._world
        with closing(self.taking(wait=wait, patience_s=patience_s, beat=beat)) as flow:
            while True:
                try:
                    until = next(flow)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                world.pause(max(0.0, until - world.now()))

    def taking(self, *, wait: bool = False, patience_s: float = 0.0, beat: bool = True) -> Waits:
        """Take the lease; return its dead former holder. Raises HeldError, and OSError if it cannot
        be written.

        `wait`: wait for the silence of a holder whose job the scheduler does not show.
        `patience_s`: how long to wait for a live holder.
        """
        world, mine, gone = self._world, self._beside("new"), None
        deadline = world.now() + patience_s
        try:
            world.files.create(mine, self._content)
            for _ in range(100_000):
                if self._linked(mine, self.path):
                    world.abandoned.discard((self.path, self.me.token))
                    if beat:
                        self._stop = world.every(self._beat_s, self._beat)
                    return gone
                held = look(self.path, self.me, self._sees, self._stale_s, world)
                if held is None:
                    continue  # released between the two reads
                holder, verdict = held
                if verdict.gone:
                    gone = holder
                    if not self._drop(holder, mine):
                        yield world.now() + 0.05
                elif wait and verdict.wait_s:
                    yield world.now() + min(verdict.wait_s, 2.0)
                elif world.now() < deadline:
                    yield world.now() + 0.02
                else:
                    raise HeldError(self.path, holder, verdict)
            raise HeldError(self.path, UNREADABLE, HolderVerdict(ALIVE, "others keep taking it"))
        finally:
            with _abandoning(
                mine, "", world
            ):  # an error must not take a lease away from its present holder
                world.files.remove(mine)

    @property
    def mine(self) -> bool:
        """Raises OSError."""
        try:
            content, _ = self._world.files.read_with_time(self.path, 1 << 16)
        except FileNotFoundError:
            return False
        return content == self._content

    def confirm(self) -> None:
        """Call directly before a step that must not happen twice. Raises HeldError, OSError."""
        if not self.mine:
            held = read(self.path, self._world)
            holder = held[0] if held else UNREADABLE
            raise HeldError(self.path, holder, HolderVerdict(ALIVE, "it took over meanwhile"))

    def release(self) -> None:
        """Remove the lease if it is still this one's, else later (remove_abandoned)."""
        if self._stop is not None:
            self._stop()
        with _abandoning(self.path, self.me.token, self._world):
            if self.mine:
                self._world.files.remove(self.path)

    def _drop(self, holder: Holder, mine: Path) -> bool:
        """Remove a dead holder's lease, unless another process has taken it since it was read.

        Only the creator of the guard for this holder removes it; others get False.
        """
        files = self._world.files
        guard = self.path.with_name(
            f".{self.path.name}.of-{holder.token if holder.token.isalnum() else 'unknown'}"
        )
        if not self._linked(mine, guard):
            taker = look(guard, self.me, self._sees, self._stale_s, self._world)
            if taker is not None and taker[1].gone:
                files.remove(guard)
            return False
        try:
            held = read(self.path, self._world)
            if held is not None and held[0] == holder:
                files.remove(self.path)
        finally:
            with _abandoning(guard, self.me.token, self._world):
                files.remove(guard)
        return True

    def _linked(self, mine: Path, target: Path) -> bool:
        """Raises OSError; even then the link may exist."""
        try:
            return self._link(mine, target)
        except OSError:
            self._world.abandoned.add((target, self.me.token))
            raise

    def _link(self, mine: Path, target: Path) -> bool:
        files = self._world.files
        try:
            return linked(mine, target, files)
        except FileNotFoundError:
            # Removed as a dead process's (remove_unfinished) while this one stood still.
            with suppress(FileExistsError):
                files.create(mine, self._content)
            return linked(mine, target, files)

    def _beside(self, what: str) -> Path:
        return self.path.with_name(f".{self.path.name}.{what}.{self.me.token}")

    def _beat(self) -> bool:
        """Touch the lease; return False if another process has taken it."""
        try:
            if not self.mine:
                if not self._world.files.is_folder(self.path.parent):
                    return True  # not mounted now: nobody can have taken it
                self._lost()
                return False
            self._world.files.touch(self.path)
        except OSError:
            pass  # the storage is away; the next beat may arrive
        return True
