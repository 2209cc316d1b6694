"""One preparation of the same data at a time, on whatever machine: a file on the shared storage that says who is at work.

It is made with O_EXCL, which is atomic on NFS and Lustre too. Its holder touches it every `BEAT_S` seconds. It is taken over
when its holder is gone for certain (its own machine, not booted since, has no such process any more), or when it was not
touched for `STALE_S` seconds. That is measured against a file made now in the same folder: both times are of the clock
that the storage uses, so the clocks of the machines may differ.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.errors import InputError, SetError
from orchestrator.onnode.regular import open_regular, parse

BEAT_S = 20.0
STALE_S = 120.0
"""Six beats: an NFS client may show a time that is a minute old (acregmax)."""


@dataclass(frozen=True, slots=True)
class DataHolder:
    """A process, so that its own machine can tell whether it still lives. Empty and 0 where /proc does not say."""

    host: str
    boot: str
    """The kernel's boot id: machines may have one name, and one machine had other processes before it was booted."""
    pids: str
    """The namespace in which `pid` means something."""
    pid: int
    start: int
    """Start time of the process in clock ticks since boot; tells a recycled pid."""
    token: str

    @property
    def gone(self) -> bool:
        """Whether this machine knows that the process is over; False for another machine's."""
        here = bool(self.boot) and (self.boot, self.pids) == (_boot(), _pids())
        return here and not _lives(self.pid, self.start)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.pid else self.host


UNREADABLE = DataHolder("an unknown host (the lock cannot be read)", "", "", 0, 0, "")


class DataLock:
    """`with DataLock(path, lost) as lock:`; raises SetError when somebody else holds it, InputError when it cannot be made.

    `lost` is called, in another thread, when the lock turns out to be another's: this machine was cut off for too long.
    """

    def __init__(self, path: Path, lost: Callable[[], None], *, beat_s: float = BEAT_S) -> None:
        self.path = path
        self._lost = lost
        self._beat_s = beat_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="beat", daemon=True)
        pid = os.getpid()
        self.me = DataHolder(os.uname().nodename, _boot(), _pids(), pid, _start_ticks(pid) or 0, os.urandom(8).hex())

    def __enter__(self) -> DataLock:
        for _ in range(3):
            if self._take():
                self._thread.start()
                return self
            found = _read(self.path)
            if found is None:
                continue  # released between the two looks
            holder, touched = found
            age_s = self._now() - touched
            if not holder.gone and age_s < STALE_S:
                raise self._held(holder, f"it was heard of {max(0, age_s):.0f} s ago")
            self._remove(holder)
        raise SetError(f"{self.path}: others keep taking it", hint="try again in a minute")

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()
        with suppress(OSError):
            if self._mine():
                self.path.unlink()

    def confirm(self) -> None:
        """Raise SetError unless the lock is still ours. (Two that remove the same old lock can cross.)"""
        try:
            found = _read(self.path)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        if found is None or found[0] != self.me:
            raise self._held(found[0] if found else UNREADABLE, "it took over while this machine was not heard of")

    def _mine(self) -> bool:
        found = _read(self.path)
        return found is not None and found[0] == self.me

    def _held(self, holder: DataHolder, why: str) -> SetError:
        return SetError(
            f"the same data are being prepared by {holder}; {why}",
            hint=f"wait for it; one that died is taken over after {STALE_S / 60:.0f} minutes",
        )

    def _take(self) -> bool:
        try:
            _create(self.path, self.me)
        except FileExistsError:
            return False
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be made: {error.strerror or error}", hint=f"ls -ld {self.path.parent}"
            ) from error
        return True

    def _now(self) -> float:
        """The time of the clock that gives the lock its own."""
        probe = self._beside("clock")
        try:
            probe.write_text("")
            return probe.stat().st_mtime
        except OSError as error:
            raise InputError(f"{probe}: cannot be written: {error.strerror or error}") from error
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)

    def _remove(self, old: DataHolder) -> None:
        aside = self._beside("old")
        try:
            os.rename(self.path, aside)
        except FileNotFoundError:
            return
        found = _read(aside)
        if found is not None and found[0] != old:
            # Somebody removed the old one before us and this is their lock: give it back. Should a third one have taken
            # it meanwhile, the second one's confirm() says so.
            with suppress(FileExistsError):
                _create(self.path, found[0])
        aside.unlink(missing_ok=True)

    def _beside(self, what: str) -> Path:
        return self.path.with_name(f".{self.path.name}.{what}.{self.me.token}")

    def _beat(self) -> None:
        while not self._over.wait(self._beat_s):
            try:
                if not self._mine():
                    self._lost()
                    return
                os.utime(self.path)
            except OSError:
                continue  # the storage is away; the next beat may arrive


def _create(path: Path, holder: DataHolder) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w") as file:
        try:
            json.dump(asdict(holder), file)
            file.flush()
        except OSError:
            path.unlink(missing_ok=True)
            raise


def _read(path: Path) -> tuple[DataHolder, float] | None:
    """Who holds the lock, and when they touched it; None when nobody does. Opened, so that NFS asks its server."""
    try:
        with open_regular(path) as file:
            touched = os.fstat(file.fileno()).st_mtime
            text = file.read(4096)
    except FileNotFoundError:
        return None
    try:
        return DataHolder(**parse(text)), touched
    except (ValueError, TypeError):
        return UNREADABLE, touched


def _boot() -> str:
    return _line("/proc/sys/kernel/random/boot_id")


def _pids() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _line(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _lives(pid: int, start: int) -> bool:
    ticks = _start_ticks(pid)
    if ticks is not None:
        return ticks == start
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # another user's, and this machine hides such processes (hidepid)
    except OSError:
        return False
    return False  # ours, and over


def _start_ticks(pid: int) -> int | None:
    """When the process began; None when there is none, or only what its parent has not yet taken note of."""
    text = _line(f"/proc/{pid}/stat")
    fields = text[text.rindex(")") + 2 :].split() if ")" in text else []
    return int(fields[19]) if len(fields) > 19 and fields[0] not in "ZX" else None
