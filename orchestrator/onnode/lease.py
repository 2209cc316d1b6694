"""One at a time on shared storage: a file that says who is at work, with the time of its last beat and a token.

It is complete when it appears (a finished file is linked to its name; where there are no hard links it is made with O_EXCL), on
NFS and Lustre too; flock is not everywhere. Its holder touches it every `BEAT_S` seconds. How old that is, is measured against a
file written now in the same folder: both times are of the clock that the storage uses, so the clocks of the machines may differ.
Whether a holder is gone is decided in policy/lease.py.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path

from .policy.lease import ALIVE, STALE_S, Holder, HolderVerdict, Sight, judge, same_kernel
from .records import open_new
from .regular import open_regular, parse
from .system import first_line, process_start

BEAT_S = 15.0
UNREADABLE = Holder(token="?")
_TYPES = {item.name: int if item.type == "int" else str for item in fields(Holder)}

JobSight = Callable[[str], "bool | None"]
"""Whether the scheduler shows a job: False when it answers and does not, None without an answer."""


class HeldError(Exception):
    """Somebody else holds the lease."""

    def __init__(self, path: Path, holder: Holder, verdict: HolderVerdict) -> None:
        super().__init__(f"{path}: {holder}; {verdict.why}")
        self.path, self.holder, self.verdict = path, holder, verdict


def this_process(job: str = "", cluster: str = "", restart: int = 0) -> Holder:
    """Return what is on record of this process."""
    pid = os.getpid()
    try:
        pids = os.readlink("/proc/self/ns/pid")
    except OSError:
        pids = ""
    boot = first_line("/proc/sys/kernel/random/boot_id")
    host, token = os.uname().nodename, os.urandom(8).hex()
    return Holder(cluster, os.getuid(), host, boot, pids, pid, process_start(pid), job, restart, token)


def lives(pid: int, start: str) -> bool:
    """Whether a process of this kernel lives. One that /proc does not show may be another user's (hidepid)."""
    found = process_start(pid)
    if found:
        return found == start
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False  # ours, and over


def read(path: Path) -> tuple[Holder, float] | None:
    """Return who holds a lease and when they touched it (seconds); None when nobody does. Raises OSError.

    Opened, so that NFS asks its server. One that cannot be read is held by somebody unknown, since its file's time.
    """
    try:
        with open_regular(path) as file:
            touched = os.fstat(file.fileno()).st_mtime
            text = file.read(1 << 16)
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


def server_now(folder: Path) -> float:
    """Return the time (seconds) of the clock that gives the files of a folder theirs. Raises OSError."""
    probe = folder / f".clock.{os.urandom(8).hex()}"
    try:
        with open_new(probe) as file:
            file.write(b"\n")
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def look(path: Path, viewer: Holder, sees: JobSight, stale_s: float = STALE_S) -> tuple[Holder, HolderVerdict] | None:
    """Return who holds a lease and what has become of them; None when nobody does. Raises OSError.

    Who may not write in its folder has only the clock of this machine to compare with.
    """
    found = read(path)
    if found is None:
        return None
    holder, touched = found
    process = lives(holder.pid, holder.start) if holder.pid and same_kernel(holder, viewer) else None
    job = sees(holder.job) if holder.job and process is None else None
    try:
        now = server_now(path.parent)
    except OSError:
        now = time.time()
    if touched - now > BEAT_S:  # of a clock that was set back meanwhile: it counts from now on
        with suppress(OSError):
            os.utime(path)
        touched = now
    sight = Sight(process, job, now - touched)
    return holder, judge(holder, viewer, sight, stale_s)


class Lease:
    """A lease on `path` for `me`. `lost` is called, in another thread, when it turns out to be another's.

    `sees` is asked about the job of a holder. `patience_s`: how long `take` waits for somebody who is alive.
    """

    def __init__(
        self,
        path: Path,
        me: Holder,
        *,
        sees: JobSight = lambda job: None,
        lost: Callable[[], object] = lambda: None,
        beat_s: float = BEAT_S,
        stale_s: float = STALE_S,
    ) -> None:
        self.path, self.me = path, me
        self._sees, self._lost, self._beat_s, self._stale_s = sees, lost, beat_s, stale_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, *, wait: bool = False, patience_s: float = 0.0, beat: bool = True) -> Holder | None:
        """Take the lease; return who had it and is gone. Raises HeldError, and OSError when it cannot be written.

        `wait`: until a holder whose job is not there any more is silent for long enough; else that is told at once.
        """
        mine, gone, deadline = self._beside("new"), None, time.monotonic() + patience_s
        try:
            with open_new(mine) as file:
                file.write((json.dumps(asdict(self.me)) + "\n").encode())
            for _ in range(100_000):
                if linked(mine, self.path):
                    if beat:
                        self._thread = threading.Thread(target=self._beat, name="beat", daemon=True)
                        self._thread.start()
                    return gone
                found = look(self.path, self.me, self._sees, self._stale_s)
                if found is None:
                    continue  # released between the two looks
                holder, verdict = found
                if verdict.gone:
                    gone = holder
                    self._drop(holder, mine)
                elif wait and verdict.wait_s:
                    time.sleep(min(verdict.wait_s, 2.0))
                elif time.monotonic() < deadline:
                    time.sleep(0.02)
                else:
                    raise HeldError(self.path, holder, verdict)
            raise HeldError(self.path, UNREADABLE, HolderVerdict(ALIVE, "others keep taking it"))
        finally:
            mine.unlink(missing_ok=True)

    @property
    def mine(self) -> bool:
        """Whether the file is still this lease's. Raises OSError."""
        found = read(self.path)
        return found is not None and found[0] == self.me

    def confirm(self) -> None:
        """Raise HeldError unless the lease is still ours: directly before what must not happen twice. Raises OSError."""
        found = read(self.path)
        if found is None or found[0] != self.me:
            raise HeldError(
                self.path, found[0] if found else UNREADABLE, HolderVerdict(ALIVE, "it took over meanwhile")
            )

    def release(self) -> None:
        """Let go. Only the own file is removed."""
        self._over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(self._beat_s)
        with suppress(OSError):
            if self.mine:
                self.path.unlink()

    def _drop(self, holder: Holder, mine: Path) -> None:
        """Remove the lease of a holder who is gone, but not one that another has taken since it was read.

        Of those who find it, the one that makes the guard for this holder removes it.
        """
        guard = self.path.with_name(f".{self.path.name}.of-{holder.token if holder.token.isalnum() else 'unknown'}")
        if not linked(mine, guard):
            taker = look(guard, self.me, self._sees, self._stale_s)
            if taker is not None and taker[1].gone:
                guard.unlink(missing_ok=True)
            time.sleep(0.05)
            return
        try:
            found = read(self.path)
            if found is not None and found[0] == holder:
                self.path.unlink(missing_ok=True)
        finally:
            guard.unlink(missing_ok=True)

    def _beside(self, what: str) -> Path:
        return self.path.with_name(f".{self.path.name}.{what}.{self.me.token}")

    def _beat(self) -> None:
        while not self._over.wait(self._beat_s):
            try:
                if not self.mine:
                    self._lost()
                    return
                os.utime(self.path)
            except OSError:
                continue  # the storage is away; the next beat may arrive


def linked(source: Path, target: Path) -> bool:
    """Make `target` with the content of `source`, complete when it appears; False where there is one. Raises OSError."""
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError:  # no hard links here: the next best thing that only one can do
        try:
            with open_new(target) as file:
                file.write(source.read_bytes())
        except FileExistsError:
            return False
        except OSError:  # half of it must not lock anybody out
            target.unlink(missing_ok=True)
            raise
    return True
