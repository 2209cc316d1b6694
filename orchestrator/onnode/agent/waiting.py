"""One place to wait for everything that can happen to a process that holds a node: input, signals, children, pipes, times.

Nothing is done inside a signal handler: the kernel's word comes in through a descriptor like all others, so the work of a way
out cannot be cut off by the signal that asked for it.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NOT_DONE, CANNOT_START = 124, 127
_MAX_OUTPUT = 1 << 20
_MAX_LINE = 1 << 22


class LetGo(Exception):
    """This node is to let go. `status` is the exit status of its process."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Failed(Exception):
    """This node cannot be used: `kind` is a word of the protocol (image, container, ...), `text` says it to people."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind, self.text = kind, text


def _noted(number: int, frame: object) -> None:
    """Do nothing: the number is in the wake-up pipe."""


def _nothing() -> None:
    pass


class Waiting:
    """The descriptors, timers and children of this process. `order` is the exit status that was asked for, or None.

    `wait` raises LetGo once there is an order, until `leaving` is set.
    """

    def __init__(self) -> None:
        self.order: int | None = None
        self.leaving = False
        self.on_child: list[Callable[[], None]] = []
        # Not epoll: the input can be a file.
        self._selector = selectors.PollSelector()
        self._timers: dict[str, tuple[float, Callable[[], None]]] = {}
        self._wake, self._woken = os.pipe()
        for fd in (self._wake, self._woken):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        for number in (*ENDS, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, _noted)
        self.watch(self._wake, self._signalled)

    def watch(self, fd: int, then: Callable[[], None]) -> None:
        """Call `then` whenever `fd` can be read, or has ended."""
        self._selector.register(fd, selectors.EVENT_READ, then)

    def watch_lines(self, fd: int, then: Callable[[str], None], at_end: Callable[[], None] = _nothing) -> None:
        """Call `then` with each line that comes from `fd`, without its end, and `at_end` once; what is no line is lost with it."""
        rest = bytearray()

        def take() -> None:
            try:
                piece = os.read(fd, 1 << 16)
            except BlockingIOError:
                return
            except OSError:
                piece = b""
            if not piece:
                self.forget(fd)
                at_end()
                return
            rest.extend(piece)
            if b"\n" in piece:
                *lines, last = bytes(rest).split(b"\n")
                rest[:] = last
                for line in lines:
                    then(line.decode("utf-8", "replace"))
            elif len(rest) > _MAX_LINE:
                rest.clear()

        self.watch(fd, take)

    def forget(self, fd: int) -> None:
        self._selector.unregister(fd)

    def at(self, name: str, when: float, then: Callable[[], None]) -> None:
        """Call `then` once at `when` (time.monotonic()); replaces a timer of the same name."""
        self._timers[name] = when, then

    def after(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        self.at(name, time.monotonic() + seconds, then)

    def cancel(self, name: str) -> None:
        self._timers.pop(name, None)

    def wait(self, done: Callable[[], object], seconds: float | None = None, *, patient: bool = False) -> bool:
        """Serve what happens until `done`. Return False when `seconds` are over before. Raises LetGo, unless `patient`."""
        limit = None if seconds is None else time.monotonic() + seconds
        while True:
            if self.order is not None and not self.leaving and not patient:
                raise LetGo(self.order)
            if done():
                return True
            now = time.monotonic()
            if limit is not None and now >= limit:
                return False
            self._serve(limit, now)

    def let_signals_come(self) -> None:
        """Wait a moment before the end of a child is told: a signal to the whole job may have ended it first. Raises LetGo."""
        self.wait(lambda: False, 0.3)

    def _serve(self, limit: float | None, now: float) -> None:
        times = [when for when, _ in self._timers.values()]
        if limit is not None:
            times.append(limit)
        for key, _ in self._selector.select(max(min(times) - now, 0) if times else None):
            # One of the others may have closed it, and its number can be another's by now.
            now_there = self._selector.get_map().get(key.fd)
            if now_there is not None and now_there.data is key.data:
                key.data()
        now = time.monotonic()
        for name, (when, then) in list(self._timers.items()):
            if when <= now and name in self._timers:
                del self._timers[name]
                then()

    def _signalled(self) -> None:
        for number in os.read(self._wake, 4096):
            if number in ENDS:
                self.order = 128 + signal.SIGTERM
        # Always: a full pipe may have lost the word of a child.
        for look in self.on_child:
            look()

    def call(
        self,
        argv: Sequence[str],
        seconds: float | None = None,
        *,
        patient: bool = False,
        environment: dict[str, str] | None = None,
        errors: int | IO[bytes] = subprocess.DEVNULL,
    ) -> tuple[int, bytes]:
        """Run a program while everything else is served; return its exit status and what it printed, at most a megabyte.

        NOT_DONE: it was killed after `seconds`. CANNOT_START: there is no such program; the output says why. `patient`: it is
        not ended when this node is to let go.
        """
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": errors}
        try:
            process = subprocess.Popen(argv, env=environment, start_new_session=True, **options)
        except OSError as error:
            return CANNOT_START, f"{argv[0]}: {error.strerror}".encode()
        assert process.stdout is not None
        fd, pieces = process.stdout.fileno(), bytearray()
        os.set_blocking(fd, False)

        def take() -> bool:
            try:
                piece = os.read(fd, 1 << 16)
            except BlockingIOError:
                return False
            if len(pieces) < _MAX_OUTPUT:
                pieces.extend(piece)
            if not piece and fd in self._selector.get_map():
                self.forget(fd)
            return bool(piece)

        self.watch(fd, lambda: [take()].clear())
        try:
            in_time = self.wait(lambda: process.poll() is not None, seconds, patient=patient)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            # What it left behind may hold its output open; that is not waited for.
            while take():
                pass
            if fd in self._selector.get_map():
                self.forget(fd)
            process.stdout.close()
        return exit_code(process.returncode) if in_time else NOT_DONE, bytes(pieces)


def exit_code(status: int) -> int:
    """Return the exit status as a shell gives it: 128 + n for signal n."""
    return 128 - status if status < 0 else status
