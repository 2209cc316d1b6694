"""Runs on the host: a process next to the agent starts them and reaps their remains.

Orphans become its children (child subreaper), a run's first process dies with it, and after the
agent's death it ends all of its children.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import NoReturn

from ..kernel.waiting import Partner, Waiting, end_session, exit_code, stand_alone
from .executor import AtEnd, Conversation, Executor, Hear
from .node import Node, host_environment

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_END_S = 5


class HostExecutor(Executor):
    def __init__(self, node: Node, waiting: Waiting) -> None:
        super().__init__(node.channel, node.code)
        self._gone = False
        requests, self._requests = os.pipe()
        said, messages = os.pipe()
        agent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _Reaper(agent, node.channel, requests, messages).serve()
        os.close(requests)
        os.close(messages)
        waiting.watch_lines(said, self.hear, self._ended)

    @property
    def gone(self) -> bool:
        return self._gone

    def root(self) -> int:
        return self._pid

    def _ended(self) -> None:
        self._gone = True

    def start(self, name: str) -> None:
        self._ask(f"run {name}")

    def signal(self, word: str, pid: str) -> None:
        self._ask(word)

    def converse(self, waiting: Waiting, script: str, hear: Hear, at_end: AtEnd) -> Conversation:
        return _HostConversation(waiting, f"{self.inside}/{script}", hear, at_end)

    def _ask(self, line: str) -> None:
        # The end of its messages shows its end.
        with contextlib.suppress(OSError):
            os.write(self._requests, line.encode() + b"\n")

    def close(self) -> None:
        if not self._gone:
            os.close(self._requests)
            self._gone = True
            os.waitpid(self._pid, 0)


class _HostConversation(Conversation):
    def __init__(self, waiting: Waiting, script: str, hear: Hear, at_end: AtEnd) -> None:
        self._waiting = waiting
        errors, environment = subprocess.DEVNULL, host_environment()
        argv = ["bash", script]
        self._partner = Partner(waiting, argv, hear, at_end, errors=errors, environment=environment)

    def send(self, line: str) -> bool:
        return self._partner.send(line)

    def close(self) -> None:
        self._partner.input.close()
        end_session(self._partner.process)
        self._partner.process.wait()
        self._partner.leave(self._waiting)


class _Reaper:
    def __init__(self, agent: int, channel: str, requests: int, messages: int) -> None:
        self._agent, self._channel = agent, channel
        self._requests, self._messages = requests, messages
        self._run, self._main, self._killing, self._closed = "", 0, False, False

    def serve(self) -> NoReturn:
        try:
            self._begin()
            waiting = Waiting()
            # Signals to the whole job are for the agent.
            waiting.start_release()
            waiting.watch_lines(self._requests, self._do, self._close)
            waiting.wait(self._is_left)
            self._killing = True
            waiting.wait(lambda: not self._reap(), _END_S)
        finally:
            os._exit(0)

    def _begin(self) -> None:
        os.setsid()
        stand_alone(self._requests, self._messages)
        # Its import takes longer than the start of a run.
        import ctypes

        self._prctl = ctypes.CDLL(None).prctl
        self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)

    def _close(self) -> None:
        self._closed = True

    def _is_left(self) -> bool:
        self._reap()
        return self._closed or os.getppid() != self._agent

    def _do(self, line: str) -> None:
        word, _, name = line.partition(" ")
        if word == "run":
            self._run, self._killing = name, False
            self._main = self._start(f"{self._channel}/script.{name}")
            self._say(f"started {self._main}")
        elif word == "TERM" and self._main:
            with contextlib.suppress(OSError):
                os.killpg(self._main, signal.SIGTERM)
        elif word == "KILL":
            self._killing = True

    def _start(self, script: str) -> int:
        reaper, environment = os.getpid(), host_environment()
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                for number in set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP}:
                    signal.signal(number, signal.SIG_DFL)
                os.setsid()
                self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() == reaper:
                    os.execvpe("bash", ["bash", script], environment)
            finally:
                os._exit(127)
        return pid

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._messages, f"{self._run} {text}\n".encode())

    def _reap(self) -> bool:
        """Reap ended processes; while `_killing`, kill the others. Return whether to continue."""
        left, ended = True, None
        try:
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if reaped[0] == self._main:
                    self._main, ended = 0, exit_code(os.waitstatus_to_exitcode(reaped[1]))
        except ChildProcessError:
            left = False
        if ended is not None:
            self._say(f"ended {ended} {int(left)}")
        if self._killing and left:
            for child in _children():
                with contextlib.suppress(OSError):
                    os.kill(child, signal.SIGKILL)
        elif self._killing:
            self._killing = False
            self._say("clear")
        return self._killing


def _children() -> list[int]:
    """[] without CONFIG_PROC_CHILDREN."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []
