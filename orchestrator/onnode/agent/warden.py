"""Runs on the host itself: a small process beside the agent that starts them and is the parent of all that they leave behind.

The kernel ties everything to this node's agent: processes whose parent ends become the warden's children (child subreaper), the
first process of a run dies with the warden, and the warden ends all of its children when the agent is gone, however that ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import NoReturn

from .node import Node
from .run import Place
from .waiting import Waiting, exit_code

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_END_S = 5


class Host(Place):
    """The shell of runs without a container. Make it before anything else is open: its process inherits what is."""

    def __init__(self, node: Node, waiting: Waiting) -> None:
        super().__init__(node.channel, node.settings.code_source or str(node.bundle / "code"))
        self.gone = False
        requests, self._requests = os.pipe()
        self._said, words = os.pipe()
        agent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _Warden(agent, node.channel, requests, words).serve()
        os.close(requests)
        os.close(words)
        self.listen(waiting, self._said, self._ended)

    def start(self, name: str) -> None:
        self._ask(f"run {name}")

    def signal(self, word: str, pid: str) -> None:
        self._ask(word)

    def close(self) -> None:
        """End the warden, and with it whatever is left."""
        if not self.gone:
            os.close(self._requests)
            self.gone = True
            os.waitpid(self.pid, 0)

    def _ask(self, line: str) -> None:
        # Its end is known by the end of its words.
        with contextlib.suppress(OSError):
            os.write(self._requests, line.encode() + b"\n")

    def _ended(self) -> None:
        self.gone = True


class _Warden:
    """The other side, in its own process."""

    def __init__(self, agent: int, channel: str, requests: int, words: int) -> None:
        self._agent, self._channel, self._requests, self._words = agent, channel, requests, words
        self._run, self._main, self._killing = "", 0, False

    def serve(self) -> NoReturn:
        try:
            self._begin()
            rest = b""
            while os.getppid() == self._agent:
                ready = [fd for fd, _ in self._poll.poll()]
                if self._wake in ready:
                    os.read(self._wake, 4096)
                    self._reap()
                if self._requests in ready:
                    piece = os.read(self._requests, 4096)
                    if not piece:
                        break
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        self._do(line.decode().split())
            self._end()
        finally:
            os._exit(0)

    def _begin(self) -> None:
        os.setsid()
        signal.set_wakeup_fd(-1)
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) not in (self._requests, self._words):
                with contextlib.suppress(OSError):
                    os.close(int(name))
        self._wake, woken = os.pipe()
        os.set_blocking(woken, False)
        # A signal to the whole job is the agent's business; here it only wakes.
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        self._poll = select.poll()
        for fd in (self._wake, self._requests):
            self._poll.register(fd, select.POLLIN)
        # Not before it is needed, and in no other process: it takes longer to import than a run takes to start.
        import ctypes

        self._prctl = ctypes.CDLL(None).prctl
        self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)

    def _do(self, words: list[str]) -> None:
        if words[:1] == ["run"]:
            self._run, self._killing = words[1], False
            self._main = self._start(f"{self._channel}/script.{words[1]}")
            self._say(f"started {self._main}")
        elif words == ["TERM"] and self._main:
            with contextlib.suppress(OSError):
                os.killpg(self._main, signal.SIGTERM)
        elif words == ["KILL"]:
            self._killing = True
            self._reap()

    def _start(self, script: str) -> int:
        warden, environment = os.getpid(), {name: os.environ[name] for name in _KEPT if name in os.environ}
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                for number in range(1, 32):
                    if number not in (signal.SIGKILL, signal.SIGSTOP):
                        signal.signal(number, signal.SIG_DFL)
                os.setsid()
                self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() == warden:
                    os.execvpe("bash", ["bash", script], environment)
            finally:
                os._exit(127)
        return pid

    def _say(self, words: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._words, f"{self._run} {words}\n".encode())

    def _reap(self) -> None:
        """Take in who has ended; while `_killing`, end who is there: their children come to us and are next."""
        left, pid, main = True, 1, None
        while pid:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                left, pid = False, 0
            if pid and pid == self._main:
                self._main, main = 0, exit_code(os.waitstatus_to_exitcode(status))
        if main is not None:
            self._say(f"ended {main} {int(left)}")
        if self._killing and left:
            for child in children():
                with contextlib.suppress(OSError):
                    os.kill(child, signal.SIGKILL)
        elif self._killing:
            self._killing = False
            self._say("clear")

    def _end(self) -> None:
        limit = time.monotonic() + _END_S
        self._killing = True
        self._poll.unregister(self._requests)
        self._reap()
        while self._killing and (left := limit - time.monotonic()) > 0:
            if self._poll.poll(left * 1000):
                os.read(self._wake, 4096)
            self._reap()


def children() -> list[int]:
    """Return the processes whose parent is this one; none on a kernel without CONFIG_PROC_CHILDREN."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []
