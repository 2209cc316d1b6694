"""One controller per set: an exclusive file that says who holds it.

Made with O_EXCL, which is atomic on local file systems, NFS (from version 3 on) and Lustre; flock is not everywhere.
The holder's host, pid and start time are in it, so that one that died is recognised.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.errors import SetError
from orchestrator.onnode.regular import parse, read_bytes

FOREIGN_STALE_S = 900
"""A holder on another host cannot be looked at. It holds the lock for one submission (at most about two minutes)."""


@dataclass(frozen=True, slots=True)
class Holder:
    host: str
    pid: int
    start: int
    """Start time of the process in clock ticks since boot; tells a recycled pid."""
    time_ms: int
    token: str

    @property
    def gone(self) -> bool:
        if self.host == os.uname().nodename:
            return _start_ticks(self.pid) != self.start
        return time.time() * 1000 - self.time_ms > FOREIGN_STALE_S * 1000

    def __str__(self) -> str:
        age_s = max(0, int(time.time() - self.time_ms / 1000))
        return f"process {self.pid} on {self.host}, since {age_s} s"


class ControllerLock:
    """`with ControllerLock(path) as lock:`; raises SetError when somebody else holds it.

    Call `confirm()` directly before the step that must not happen twice.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        pid = os.getpid()
        self.me = Holder(os.uname().nodename, pid, _start_ticks(pid) or 0, int(time.time() * 1000), os.urandom(8).hex())

    def __enter__(self) -> ControllerLock:
        for _ in range(3):
            if self._take():
                return self
            holder = read_holder(self.path)
            if holder is None:
                continue  # released between the two looks
            if not holder.gone:
                raise _held(self.path, holder)
            self._remove(holder)
        raise SetError(f"{self.path}: other controllers keep taking it", hint="try again in a minute")

    def __exit__(self, *exc: object) -> None:
        if read_holder(self.path) == self.me:
            self.path.unlink(missing_ok=True)

    def confirm(self) -> None:
        """Raise SetError unless the lock is still ours. (Two controllers that remove the same stale lock can cross.)"""
        holder = read_holder(self.path)
        if holder != self.me:
            raise _held(self.path, holder) if holder else SetError(f"{self.path} vanished while it was held")

    def _take(self) -> bool:
        try:
            _create(self.path, self.me)
        except FileExistsError:
            return False
        except OSError as error:
            raise SetError(
                f"{self.path}: cannot be written: {error.strerror or error}",
                hint=f"look at the folder: ls -ld {self.path.parent}; df -h {self.path.parent}",
            ) from error
        return True

    def _remove(self, stale: Holder) -> None:
        aside = self.path.with_name(f"{self.path.name}.stale.{self.me.token}")
        try:
            os.rename(self.path, aside)
        except FileNotFoundError:
            return
        taken = read_holder(aside)
        aside.unlink(missing_ok=True)
        if taken is not None and taken != stale:
            # Somebody removed the stale one before us and this was their lock: give it back. Should a third one have
            # taken it meanwhile, the second one's confirm() says so.
            with suppress(FileExistsError):
                _create(self.path, taken)


def _create(path: Path, holder: Holder) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with open(descriptor, "w") as file:
        json.dump(asdict(holder), file)


def read_holder(path: Path) -> Holder | None:
    """Who holds the lock; None when nobody does. A lock that cannot be read counts as held since its file's time."""
    try:
        holder = Holder(**parse(read_bytes(path)))
        if any(
            type(value) is not (str if name in ("host", "token") else int) for name, value in asdict(holder).items()
        ):
            raise TypeError
        return holder
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        return _unreadable(path)


def _unreadable(path: Path) -> Holder | None:
    try:
        return Holder("an unknown host (the lock cannot be read)", 0, 0, int(path.stat().st_mtime * 1000), "")
    except OSError:
        return None


def _held(path: Path, holder: Holder) -> SetError:
    return SetError(
        f"another controller works on {path.parent.name}: {holder}",
        hint=f"wait for it; if that process is gone for certain: rm {path}",
    )


def _start_ticks(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])
