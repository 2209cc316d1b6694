"""One place to wait for all events of a process: input, signals, children, pipes, times.

The agent blocks in `Waiting.wait`, which serves everything else; the loop's code is generators
(Flow). Signals arrive through a descriptor, too, so they cannot interrupt the end.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import IO, Any

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NOT_DONE, CANNOT_START = 124, 127
_MAX_OUTPUT = 1 << 20
MAX_LINE = 1 << 20
"""Bytes."""
_NOT_MEANT = signal.SIGHUP, signal.SIGINT
"""If ignored from the start, as under nohup."""


class ReleaseRequested(Exception):
    """This node must release everything. `status`: exit status of its process."""

    def __init__(self, status: int) -> None:
        self.status = status


class Failed(Exception):
    """This node is unusable. `kind`: the protocol's word (image, container, ...); `text`: why."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind, self.text = kind, text


@contextlib.contextmanager
def failing(kind: str, what: str) -> Iterator[None]:
    """Turn an OSError into Failed, with `what` and the system's reason."""
    try:
        yield
    except OSError as error:
        raise Failed(kind, f"{what}: {error.strerror}") from error


class Waiting:
    """Descriptors, timers and children of this process.

    `release_status`: set by a signal (143) or `request_release`; `wait` then raises
    ReleaseRequested until `releasing`.
    """

    def __init__(self) -> None:
        self.release_status: int | None = None
        self.signals: set[int] = set()
        self.releasing = False
        # Not epoll: the input can be a file.
        self._selector = selectors.PollSelector()
        self._timers: dict[str, tuple[float, Callable[[], object]]] = {}
        self._wake, woken = os.pipe()
        for fd in (self._wake, woken):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        for number in (*ENDS, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
            if number in _NOT_MEANT and signal.getsignal(number) is signal.SIG_IGN:
                continue
            signal.signal(number, lambda *_: None)  # the wake-up pipe has the number
        self.watch(self._wake, self.notice)

    def watch(self, fd: int, then: Callable[[], object]) -> None:
        """Call `then` when `fd` is readable or has ended."""
        self._selector.register(fd, selectors.EVENT_READ, then)

    def watch_lines(
        self, fd: int, then: Callable[[str], object], at_end: Callable[[], object] = lambda: None
    ) -> None:
        """Pass on lines without their ends. Too long lines are lost."""
        Lines(self, fd, lambda line: then(line.decode("utf-8", "replace")), at_end)

    def forget(self, fd: int) -> None:
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def after(self, name: str, seconds: float, then: Callable[[], object]) -> None:
        """Replaces a timer of this name."""
        self._timers[name] = time.monotonic() + seconds, then

    def cancel(self, name: str) -> None:
        self._timers.pop(name, None)

    def wait(
        self, done: Callable[[], object], seconds: float | None = None, *, patient: bool = False
    ) -> bool:
        """Serve events until `done`; False after `seconds`. Raises ReleaseRequested, unless
        `patient`."""
        limit = None if seconds is None else time.monotonic() + seconds
        while True:
            if self.release_status is not None and not self.releasing and not patient:
                raise ReleaseRequested(self.release_status)
            if done():
                return True
            if limit is not None and time.monotonic() >= limit:
                return False
            self.serve(limit)

    def request_release(self, status: int) -> None:
        """Let `wait` raise ReleaseRequested, with the first `status` or a signal's 143."""
        self.release_status = status if self.release_status is None else self.release_status

    def start_release(self) -> None:
        """Stop raising ReleaseRequested."""
        self.releasing = True

    def raise_if_signalled(self) -> None:
        """Wait 0.3 s: a signal to the whole job may have ended a child, and follow. Raises
        ReleaseRequested."""
        self.wait(lambda: False, 0.3)

    def serve(self, limit: float | None) -> None:
        """Wait for an event, `limit` or an hour; serve all events."""
        times = [when for when, _ in self._timers.values()] + ([] if limit is None else [limit])
        for key, _ in self._selector.select(
            min(max(min(times) - time.monotonic(), 0), 3600) if times else None
        ):
            # Another callback may have closed it, and its number is reused.
            now_there = self._selector.get_map().get(key.fd)
            if now_there is not None and now_there.data is key.data:
                key.data()
        now = time.monotonic()
        for name, (when, then) in list(self._timers.items()):
            if when <= now and name in self._timers:
                del self._timers[name]
                then()

    def notice(self) -> None:
        self.signals |= {*ENDS, signal.SIGUSR1}.intersection(read_piece(self._wake) or b"")
        if not self.signals.isdisjoint(ENDS):
            self.release_status = 128 + signal.SIGTERM

    def call(
        self,
        argv: Sequence[str],
        seconds: float | None = None,
        *,
        patient: bool = False,
        shielded: bool = False,
        errors: int | IO[bytes] = subprocess.DEVNULL,
        given: bytes = b"",
    ) -> tuple[int, bytes]:
        """Run a program while serving everything else; return exit status and up to a megabyte of
        output.

        NOT_DONE: killed after `seconds`. CANNOT_START: the output is the reason. `patient`: not
        ended on ReleaseRequested. `shielded`: it and its children ignore `ENDS`, and another
        failure (Failed) is raised after its end. `given`: standard input.
        """
        try:
            with os.fdopen(os.memfd_create("given"), "wb+") as stdin:
                stdin.write(given)
                stdin.seek(0)
                process = subprocess.Popen(
                    argv,
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                    preexec_fn=_ignore_ends if shielded else None,
                )
        except OSError as error:
            return CANNOT_START, f"{argv[0]}: {error.strerror}".encode()
        pipe: IO[bytes] = process.stdout  # type: ignore[assignment]
        fd, output = pipe.fileno(), bytearray()
        os.set_blocking(fd, False)

        def take() -> bytes | None:
            piece = read_piece(fd)
            if piece and len(output) < _MAX_OUTPUT:
                output.extend(piece)
            elif piece == b"":
                self.forget(fd)
            return piece

        self.watch(fd, take)
        failure = None
        try:
            while True:
                try:
                    ended = self.wait(lambda: process.poll() is not None, seconds, patient=patient)
                    break
                except Failed as error:
                    if not shielded:
                        raise
                    failure = failure or error
        finally:
            end_session(process)
            # Its children may hold its output open, and write more.
            while len(output) < _MAX_OUTPUT and take():
                pass
            self.forget(fd)
            pipe.close()
        if failure is not None:
            raise failure
        return exit_code(process.returncode) if ended else NOT_DONE, bytes(output)


def _ignore_ends() -> None:
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)


def end_session(process: subprocess.Popen[Any], number: int = signal.SIGKILL) -> None:
    """Send a signal to a process's session, unless it is root's, as of sudo. A child has its
    signals back before its session: a signal to the whole job can end it in between."""
    if process.poll() is None:
        with contextlib.suppress(PermissionError):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                process.send_signal(number)


class Lines:
    """Splits input into lines without their ends. `at_end` is called once, also by `close`."""

    def __init__(
        self,
        waiting: Waiting,
        fd: int,
        take: Callable[[bytes], object],
        at_end: Callable[[], object] = lambda: None,
    ) -> None:
        self._waiting, self._fd, self._take, self._at_end = waiting, fd, take, at_end
        self._rest, self.open = bytearray(), True
        waiting.watch(fd, self._read)

    def _read(self) -> None:
        try:
            piece = read_piece(self._fd)
        except OSError:
            piece = b""
        if piece and b"\n" in piece:
            *lines, rest = bytes(self._rest + piece).split(b"\n")
            self._rest = bytearray(rest)
            for line in lines:
                self._take(line)
        elif piece and len(self._rest) < MAX_LINE:
            self._rest += piece
        elif piece == b"":
            self.close()

    def close(self) -> None:
        if self.open:
            self.open = False
            self._waiting.forget(self._fd)
            self._at_end()


class Partner:
    """A process with its own session. `hear` gets its lines; `held`: inherited descriptors. Raises
    OSError."""

    def __init__(
        self,
        waiting: Waiting,
        argv: Sequence[str],
        hear: Callable[[str], object],
        at_end: Callable[[], object] = lambda: None,
        *,
        errors: int | IO[bytes],
        environment: Mapping[str, str] | None = None,
        held: Sequence[int] = (),
    ) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            argv,
            bufsize=0,
            stdin=pipe,
            stdout=pipe,
            stderr=errors,
            env=environment,
            start_new_session=True,
            pass_fds=held,
        )
        self.input: IO[bytes] = self.process.stdin  # type: ignore[assignment]
        waiting.watch_lines(self.process.stdout.fileno(), hear, at_end)  # type: ignore[union-attr]

    def send(self, line: str) -> bool:
        """Return False if it no longer reads."""
        try:
            self.input.write(f"{line}\n".encode())
        except (OSError, ValueError):  # ended, or closed
            return False
        return True

    def leave(self, waiting: Waiting) -> None:
        """Hear no more of it."""
        output: IO[bytes] = self.process.stdout  # type: ignore[assignment]
        if not output.closed:
            waiting.forget(output.fileno())
            output.close()


def stand_alone(*kept: int) -> None:
    """Detach a forked process: no input, output or signals; descriptors only `kept`."""
    signal.set_wakeup_fd(-1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd not in kept:
            with contextlib.suppress(OSError):
                os.close(fd)


def read_piece(fd: int, size: int = 1 << 16) -> bytes | None:
    """Return available input, b"" at the end, None without any. Raises OSError."""
    try:
        return os.read(fd, size)
    except BlockingIOError:
        return None


def exit_code(status: int) -> int:
    """Return a shell's exit status: 128 + n for signal n."""
    return 128 - status if status < 0 else status


Flow = Generator[float, None, Any]
"""Waiting code: yields the time (World.now) of its next check, and resumes then or sooner."""

UNTIL_WOKEN = float("inf")
"""Wait for another flow or a node."""


def together(flows: Sequence[Flow]) -> Flow:
    """Run `flows` side by side; return their values, or raise the first exception.

    After a flow's end the others check: they may wait for its nodes.
    """
    going, values, raised = dict(enumerate(flows)), dict[int, Any](), list[Exception]()
    while going:
        until, before = [], len(going)
        for at, flow in list(going.items()):
            try:
                until.append(next(flow))
                continue
            except StopIteration as end:
                values[at] = end.value
            except Exception as error:
                raised.append(error)
            del going[at]
        if going:
            yield min(until) if len(going) == before else 0.0
    if raised:
        raise raised[0]
    return [values[at] for at in sorted(values)]
