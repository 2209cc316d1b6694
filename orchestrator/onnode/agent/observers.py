"""Observers of a run: output, transport, drift of host settings, start (content: inside.py).

A new observer is a subclass of Observer and a line in NodeRun, in whose order they are called.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from glob import escape, glob
from typing import Any

from ..kernel import regular
from ..kernel.events import NetworkUse, Pulse
from ..kernel.mllog_keys import EVALUATIONS, START
from ..kernel.mllog_tail import TOKEN, StopFinder, lines
from ..kernel.settings_file import shown
from ..kernel.waiting import Waiting
from .node import Node
from .tuning import Answer, Tuning, drift

MOST_STEP_S = 120.0
"""Longest counted time between two clock readings: a suspended node saw no hang."""
_RHYTHM = (START, *EVALUATIONS)
_RHYTHM_BYTES = tuple(key.encode() for key in _RHYTHM)
_HEAD_BYTES = 64 << 20
_MOST_PROCESSES = 4096
_MOST_FILES, _FILE_BYTES = 256, 1 << 20
# RCCL's lines: host:pid:thread [gpu] NCCL INFO text; per communicator `Using network IB` (Socket,
# or a plug-in's name).
_INFO, _MOST_LINE = b"NCCL INFO ", 300
_RDMA = re.compile(rb"Using network (?!(?:Fast)?Socket)\S|via NET/(?!(?:Fast)?Socket)\S")
_OTHER = re.compile(
    rb"NET/IB ?: No device found|Using network (?:Fast)?Socket|via NET/\w*Socket"
    rb"|NET/Socket ?: Using"
)


class Transports:
    """The networks that RCCL's processes name in their lines."""

    def __init__(self) -> None:
        self._processes: dict[bytes, bytes] = {}
        """Process -> b"" with RDMA, else its first line about another network."""

    def take(self, chunk: bytes) -> None:
        """Read whole lines."""
        at = chunk.find(_INFO)
        while at >= 0:
            end = chunk.find(b"\n", at)
            begin = max(chunk.rfind(b"\n", max(0, at - _MOST_LINE), at) + 1, at - _MOST_LINE)
            self._take_line(
                chunk[begin:at].split()[-2:-1], chunk[at + len(_INFO) : min(end, at + _MOST_LINE)]
            )
            at = chunk.find(_INFO, end)

    def _take_line(self, speaker: list[bytes], text: bytes) -> None:
        process = speaker[0].rpartition(b":")[0] if speaker else b""
        if _RDMA.search(text):
            self._processes[process] = b""
        elif _OTHER.search(text) and len(self._processes) < _MOST_PROCESSES:
            self._processes.setdefault(process, text)

    def __bool__(self) -> bool:
        return bool(self._processes)

    @property
    def use(self) -> NetworkUse:
        other = [text for text in self._processes.values() if text]
        line = other[0][:160].decode("utf-8", "replace") if other else ""
        return NetworkUse(len(self._processes) - len(other), len(other), line)


class RunOutput(StopFinder):
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._looked, self._quiet_s, self._bytes = clock(), 0.0, 0
        self._logged_s: dict[str, float] = {}
        """Times of run_start and of the last evaluation of each key."""
        self._interval_s = 0.0
        """The longest time between two evaluations of a key, or before its first."""
        self.transports = Transports()

    def feed(self, piece: bytes) -> None:
        self._looked, self._quiet_s = self._clock(), 0.0
        self._bytes += len(piece)
        super().feed(piece)

    def _take(self, chunk: bytes) -> None:
        super()._take(chunk)
        if TOKEN in chunk and any(key in chunk for key in _RHYTHM_BYTES):
            for record in lines(chunk):
                if record["key"] in _RHYTHM:
                    self._note(record["key"])
        if self._bytes < _HEAD_BYTES:
            self.transports.take(chunk)

    def _note(self, key: str) -> None:
        """Keys may alternate: a hang is judged by the rarest."""
        if key == START:
            self._logged_s.clear()
        before_s = self._logged_s.get(key, self._logged_s.get(START, self._looked))
        self._interval_s = max(self._interval_s, self._looked - before_s)
        self._logged_s[key] = self._looked

    def pulse(self) -> Pulse:
        now = self._clock()
        self._quiet_s += min(now - self._looked, MOST_STEP_S)
        self._looked = now
        began, stopped = int(bool(self._logged_s)), int(self.status != "")
        return Pulse(int(1000 * self._quiet_s), began, int(1000 * self._interval_s), stopped)


DRIFT_S = 10
TRANSPORT_S = 60
"""After the first process, all report the network within this time."""
FILES_S = 30
"""Interval of looks for RCCL's files, until a file names a network."""


class Observer:
    """A part of a run's record."""

    is_done = True
    """False: the record of the run waits for it."""

    def begin(self) -> None:
        """The run starts; not called if it is withdrawn or stopped before."""

    def feed(self, piece: bytes) -> None:
        """New output, perhaps before `begin`."""

    def run_ended(self) -> None:
        """The run's first process has ended, in any case."""

    def end(self) -> dict[str, Any]:
        """Return the members for its record (NodeRunRecord), which a withdrawn run lacks."""
        return {}


class OutputObserver(Observer):
    """Output: run_stop, silence, rhythm."""

    def __init__(self) -> None:
        self.output = RunOutput()

    def begin(self) -> None:
        self.output = RunOutput()

    def feed(self, piece: bytes) -> None:
        self.output.feed(piece)

    def end(self) -> dict[str, Any]:
        self.output.finish()
        return {}

    def pulse(self) -> Pulse:
        return self.output.pulse()


class TransportObserver(Observer):
    """RCCL's network, reported a minute after its first line in the log or the files of
    NCCL_DEBUG_FILE, and at the end."""

    def __init__(self, node: Node, waiting: Waiting, attempt: str, heard: OutputObserver) -> None:
        self._node, self._waiting, self._attempt = node, waiting, attempt
        self._heard = heard
        self._is_due = False
        self._pattern = ""
        self._before: set[str] = set()
        """Files of an earlier run."""

    def begin(self) -> None:
        self._pattern = debug_files(self._node)
        if self._pattern:
            self._before = set(glob(self._pattern))
            self._read_later()

    def feed(self, piece: bytes) -> None:
        if self._heard.output.transports and not self._is_due:
            self._is_due = True
            self._waiting.after("transport", TRANSPORT_S, self._report)

    def end(self) -> dict[str, Any]:
        self._waiting.cancel("transport")
        self._waiting.cancel("transport files")
        self._read()
        if self._heard.output.transports:
            self._say()
        use = self._heard.output.transports.use
        return {"transport": {"rdma": use.rdma, "other": use.other, "line": use.line}}

    def _report(self) -> None:
        self._read()
        self._say()

    def _say(self) -> None:
        self._node.say("transport", self._attempt, *self._heard.output.transports.use)

    def _read_later(self) -> None:
        self._waiting.after("transport files", FILES_S, self._look)

    def _look(self) -> None:
        self._read()
        self.feed(b"")
        if not self._is_due:
            self._read_later()

    def _read(self) -> None:
        """Read the files' starts: RCCL names its network before use."""
        for path in sorted(set(glob(self._pattern)) - self._before)[:_MOST_FILES]:
            with contextlib.suppress(OSError):
                if os.path.islink(path):  # the training can make links to anything
                    continue
                with regular.open_regular(path) as file:
                    head = file.read(_FILE_BYTES)
                self._heard.output.transports.take(head[: head.rfind(b"\n") + 1])


def debug_files(node: Node) -> str:
    """The pattern of RCCL's own files as this host sees them, or ""."""
    try:
        variables = node.run_variables()
    except OSError:
        return ""
    name = re.sub("%[a-z]", "*", shown(variables.get("NCCL_DEBUG_FILE", "")))
    if node.settings.engine == "none":
        return name if name.startswith("/") else ""
    inside = "/results/"
    is_there = name.startswith(inside) and ".." not in name
    return f"{escape(node.results)}/{name[len(inside) :]}" if is_there else ""


class DriftObserver(Observer):
    """Host settings that changed during the run, checked after its end."""

    def __init__(self, waiting: Waiting, tuning: Tuning, then: Callable[[], object]) -> None:
        """`then`: called when it is done."""
        self._waiting, self._tuning, self._then = waiting, tuning, then
        self._begun = False
        self._drift: list[dict[str, Any]] = []

    def begin(self) -> None:
        self._begun = True

    def run_ended(self) -> None:
        if self._tuning.on and self._begun:
            self.is_done = False
            self._waiting.after("drift", DRIFT_S, lambda: self._take(None))
            self._tuning.ask(self._take)

    def _take(self, knobs: Answer) -> None:
        if not self.is_done:
            self.is_done = True
            self._drift = drift(knobs)
            self._then()

    def end(self) -> dict[str, Any]:
        self._waiting.cancel("drift")
        self.is_done = True  # too late
        return {"drift": self._drift}


class StartObserver(Observer):
    """The warmth of a start: the run's number in the container (1: the first), and the caches."""

    def __init__(self, container_run: int, cache: dict[str, Any]) -> None:
        self._about = {"container_run": container_run, "cache": cache}

    def end(self) -> dict[str, Any]:
        return self._about
