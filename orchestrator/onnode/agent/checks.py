"""The checks of a node (docs/preflight.md); the batch host compares the nodes.

Jobs of checks run side by side, each in its own process group, with a hard limit for all: a hanging
driver, file server or tool costs only its own verdict. Processes stuck in the kernel are not
awaited.
"""

from __future__ import annotations

import os
import resource
import signal
import time

from ..kernel.events import UNIT
from ..kernel.system import MAX_BYTES
from ..kernel.waiting import stand_alone
from ..kernel.world import now_ms
from . import gpu, host
from .leftovers import leftovers
from .node import EngineState, Node, shortened
from .reach import reach
from .space import free_space

Jobs = dict[str, tuple[gpu.Check, ...]]
"""Process -> its checks by name."""

_JOBS: Jobs = {
    # Checks of small kernel files share a process.
    "engine image clock root limits versions reach": (
        host.engine,
        host.image,
        host.clock,
        host.root,
        host.limits,
        host.versions,
        reach,  # last: it may wait
    ),
    "log_dir": (host.log_dir,),
    "data": (host.data,),
    "free_space": (free_space,),
    "rdma": (host.rdma,),
    "leftovers": (leftovers,),
}
_ALONE: dict[gpu.Check, gpu.Check] = {host.engine: host.engine_and_its_users}
_GPUS = "gpu_count gpu_model gpu_memory gpu_errors gpu_processes gpu_links"
_GPU_NAMES = _GPUS.split()
NAMES = (*_GPU_NAMES, *" ".join(_JOBS).split())
_SUSPENDED_S = 2
_NO_FILES = "a file system does not answer: check the mounts and their server"
_NO_ANSWER = {
    **dict.fromkeys(_GPU_NAMES, "the GPU driver hangs: check dmesg, reboot the node"),
    **dict.fromkeys(("data", "log_dir", "free_space"), _NO_FILES),
    "rdma": "the network driver hangs: check dmesg, reboot the node",
    "leftovers": "the container engine or Slurm does not answer: restart {engine}",
}


class Checks:
    """Call `read` when `fileno` is readable, `finish` when `done` or without `rest_s`."""

    def __init__(self, node: Node, engine: EngineState, *, alone: bool) -> None:
        """`alone`: no container follows."""
        self._node, self._rest, self.done = node, b"", False
        self._missing = list(NAMES)
        self._seconds = node.settings.preflight_check_s
        self._seen = time.monotonic()
        self._deadline = self._seen + self._seconds
        self._pipe, write = os.pipe()
        os.set_blocking(self._pipe, False)
        for name in node.settings.preflight_skip:
            self._tell(name, "skip", 0, "switched off (preflight.skip)", "")
        jobs = {**_JOBS, _GPUS: gpu.checks(node)}
        if verdict := gpu.unreadable(node):
            del jobs[_GPUS]
            for name in _GPU_NAMES:
                self._tell(name, verdict[0], 0, *verdict[1:])
        wanted = {
            names: tuple(_ALONE.get(check, check) for check in job) if alone else job
            for names, job in jobs.items()
            if set(names.split()) & set(self._missing)
        }
        self._running = {_start(job, node, engine, write): names for names, job in wanted.items()}
        os.close(write)

    def fileno(self) -> int:
        return self._pipe

    def rest_s(self) -> float:
        """Return the remaining time. Call it each second: a node that is suspended meanwhile stops
        its checks, too."""
        now = time.monotonic()
        if now - self._seen > _SUSPENDED_S:
            self._deadline += now - self._seen
        self._seen = now
        return self._deadline - now

    def read(self) -> None:
        try:
            while not self.done:
                piece = os.read(self._pipe, 1 << 16)
                self.done = not piece
                *lines, self._rest = (self._rest + piece).split(b"\n")
                for line in lines:
                    self._hear(line.decode("utf-8", "replace").split(UNIT))
        except BlockingIOError:
            pass

    def finish(self) -> None:
        """End all jobs; send the missing rows."""
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT  # `end` waits for it
        ended = " ".join(
            names for pid, names in self._running.items() if os.waitid(os.P_PID, pid, look)
        ).split()
        self.read()
        ended = list(NAMES) if self.done else ended
        self.end()
        for name in list(self._missing):
            if name in ended:
                remedy = "look into hold.log of this node, or leave it out: preflight.skip"
                self._tell(name, "fail", 0, "the check ended without an answer", remedy)
            else:
                remedy = _NO_ANSWER.get(name, "check the node's load and dmesg")
                remedy = remedy.format(engine=self._node.settings.engine)
                self._tell(
                    name,
                    "fail",
                    self._seconds * 1000,
                    f"no answer within {self._seconds} s",
                    remedy,
                )
        self._node.say("checked", now_ms())

    def end(self) -> None:
        """End all jobs and their children without a message."""
        for pid in self._running:
            # Not yet waited for: the process id is still its own.
            try:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except OSError:
                pass
        self._running = {}
        if self._pipe >= 0:
            os.close(self._pipe)
        self._pipe, self.done = -1, True

    def _hear(self, row: list[str]) -> None:
        if len(row) == 5 and row[1] == "same":
            self._node.say("same", f"{row[0]}={row[3]}")
        elif len(row) == 5:
            self._tell(row[0], row[1], int(row[2]), row[3], row[4])

    def _tell(self, name: str, verdict: str, ms: int, text: str, remedy: str) -> None:
        if name in self._missing:
            self._missing.remove(name)
            softened = verdict == "fail" and name in self._node.settings.preflight_warn
            self._node.say("check", name, "warn" if softened else verdict, ms, text, remedy)


# ---- jobs ---------------------------------------------------------------------------------------


def _start(job: tuple[gpu.Check, ...], node: Node, engine: EngineState, write: int) -> int:
    """Return the process id, also its group's."""
    agent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _alone(write, node.settings.preflight_check_s, agent)
            _run(job, node, engine, write)
        finally:
            if os.getpgrp() == os.getpid():
                os.killpg(0, signal.SIGKILL)  # with the remains of slow tools
            os._exit(0)
    os.setpgid(pid, pid)  # both do: either may be faster
    return pid


def _alone(keep: int, seconds: int, agent: int) -> None:
    """Keep only the parent's pipe: a hanging check must not hold the step's descriptors."""

    def end_alone(*_: object) -> None:
        if os.getppid() != agent:
            os.killpg(0, signal.SIGKILL)
        signal.alarm(1)

    os.setpgid(0, 0)
    stand_alone(keep)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    # Kills this process and its children if the agent is gone; a slow agent still reports them.
    signal.signal(signal.SIGALRM, end_alone)
    signal.alarm(seconds + 1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_BYTES, MAX_BYTES))  # of a program's output
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _run(job: tuple[gpu.Check, ...], node: Node, engine: EngineState, write: int) -> None:
    begin = time.monotonic()
    for check in job:
        try:
            for name, verdict, text, remedy in check(node, engine):
                now = time.monotonic()
                ms, begin = f"{(now - begin) * 1000:.0f}", now
                fields = (name, verdict, ms, shortened(text, 480), shortened(remedy, 240))
                # A single write, short enough to stay whole.
                os.write(write, (UNIT.join(fields) + "\n").encode("utf-8", "replace"))
        except Exception as error:  # costs only its own verdict
            import traceback

            place = traceback.extract_tb(error.__traceback__)[-1]
            message = (
                f"check {check.__name__}: {error!r} "
                f"({os.path.basename(place.filename)}:{place.lineno})"
            )
            with open(node.hold_log, "a", encoding="utf-8", errors="replace") as file:
                file.write(f"orchestrator: node {node.name}: {message}\n")
