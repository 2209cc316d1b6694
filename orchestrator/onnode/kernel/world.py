"""A program's surroundings: clocks, storage, other programs, its identity.

Loop and writing commands use a World alone, and so run in the simulated world
(orchestrator/simulation), too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property

from .files import HERE, Files
from .system import ask, first_line, process_start

TYPE_CHECKING = False  # importing typing is slow
if TYPE_CHECKING:
    from pathlib import Path

    from .holder import Holder


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class World:
    files: Files = HERE

    now = staticmethod(time.monotonic)
    """Monotonic seconds, for limits."""
    umask = staticmethod(os.umask)
    """Set the rights that new files lack; return the previous."""
    ask = staticmethod(ask)

    @cached_property
    def abandoned(self) -> set[tuple[Path, str]]:
        """Files of leases that this process could not remove or may have made, with token or ""."""
        return set()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def wall_ms(self) -> int:
        """Unix milliseconds, for records."""
        return now_ms()

    def token(self, size: int = 8) -> str:
        """Return `size` random bytes in hexadecimal."""
        return os.urandom(size).hex()

    @property
    def host(self) -> str:
        return os.uname().nodename

    @property
    def pid(self) -> int:
        return os.getpid()

    def holder(self, job: str = "", cluster: str = "", restart: int = 0) -> Holder:
        """Return this process as a lease's holder."""
        from .holder import Holder

        try:
            pids = os.readlink("/proc/self/ns/pid")
        except OSError:
            pids = ""
        boot = first_line("/proc/sys/kernel/random/boot_id")
        start = process_start(self.pid)
        return Holder(
            cluster, os.getuid(), self.host, boot, pids, self.pid, start, job, restart, self.token()
        )

    def lives(self, pid: int, start: str) -> bool:
        """Return whether a process of this kernel lives; hidden from /proc (hidepid), it may be
        another user's."""
        running = process_start(pid)
        if running:
            return running == start
        try:
            os.kill(pid, 0)
        except PermissionError:
            return True
        except OSError:
            return False
        return False  # dead, of this user

    def every(self, seconds: float, action: Callable[[], bool]) -> Callable[[], None]:
        """Call `action` every `seconds` in a thread until it returns False; return its stop."""
        import threading

        over = threading.Event()

        def beat() -> None:
            while not over.wait(seconds) and action():
                pass

        thread = threading.Thread(target=beat, name="beat", daemon=True)
        thread.start()

        def stop() -> None:
            over.set()
            if thread is not threading.current_thread():
                thread.join(seconds)

        return stop


LOG_TIME = "%Y-%m-%dT%H:%M:%S%z"


def stamp(wall_ms: int, form: str, *, utc: bool = False) -> str:
    """`form`: as for time.strftime."""
    return time.strftime(form, (time.gmtime if utc else time.localtime)(wall_ms / 1000))


def log(wall_ms: int, text: str) -> None:
    """Write a line with a time stamp to standard error. Failures stop nothing."""
    line = f"{stamp(wall_ms, LOG_TIME)} orchestrator: {text}\n"
    with suppress(OSError):
        os.write(2, line.encode("utf-8", "backslashreplace"))


THIS = World()

Ask = Callable[[Sequence[str], float], "tuple[int, str]"]
