"""Facts from a run's output while it is active: its silence, its own rhythm, and RCCL's network
between the nodes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from ..kernel.events import NetworkUse, Pulse
from ..kernel.mllog_tail import TOKEN, StopFinder, lines

MOST_STEP_S = 120.0
"""The most silence counted between two readings of the clock: a suspended node has not seen a
run hang."""
_HEAD_BYTES = 64 << 20
_MOST_PROCESSES = 4096
# RCCL's lines: host:pid:thread [gpu] NCCL INFO text. Once per communicator `Using network IB`
# (Socket, or a plug-in's name).
_INFO, _MOST_LINE = b"NCCL INFO ", 300
_RDMA = re.compile(rb"Using network (?!(?:Fast)?Socket)\S|via NET/(?!(?:Fast)?Socket)\S")
_OTHER = re.compile(
    rb"NET/IB ?: No device found|Using network (?:Fast)?Socket|via NET/\w*Socket|NET/Socket ?: Using"
)


class RunOutput(StopFinder):
    """Parses a run's output, piece by piece."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._looked, self._quiet_s, self._bytes = clock(), 0.0, 0
        self._began = self._interval_s = 0.0
        """Time of run_start or the last evaluation; the longest time between two of these."""
        self._processes: dict[bytes, bytes] = {}
        """Process -> b"" if it uses RDMA, else the first line about another network."""

    def feed(self, piece: bytes) -> None:
        self._looked, self._quiet_s = self._clock(), 0.0
        self._bytes += len(piece)
        super().feed(piece)

    def _take(self, chunk: bytes) -> None:
        super()._take(chunk)
        if TOKEN in chunk and (b"run_start" in chunk or b"eval_accuracy" in chunk):
            for record in lines(chunk):
                if record["key"] in ("run_start", "eval_accuracy"):
                    if self._began:
                        self._interval_s = max(self._interval_s, self._looked - self._began)
                    self._began = self._looked
        at = chunk.find(_INFO) if self._bytes < _HEAD_BYTES else -1
        while at >= 0:
            end = chunk.find(b"\n", at)
            begin = max(chunk.rfind(b"\n", max(0, at - _MOST_LINE), at) + 1, at - _MOST_LINE)
            self._hear_network(
                chunk[begin:at].split()[-2:-1], chunk[at + len(_INFO) : min(end, at + _MOST_LINE)]
            )
            at = chunk.find(_INFO, end)

    def _hear_network(self, speaker: list[bytes], text: bytes) -> None:
        process = speaker[0].rpartition(b":")[0] if speaker else b""
        if _RDMA.search(text):
            self._processes[process] = b""
        elif _OTHER.search(text) and len(self._processes) < _MOST_PROCESSES:
            self._processes.setdefault(process, text)

    @property
    def speaks(self) -> bool:
        """Return whether RCCL has printed a line about the network."""
        return bool(self._processes)

    def transport(self) -> NetworkUse:
        other = [text for text in self._processes.values() if text]
        line = other[0][:160].decode("utf-8", "replace") if other else ""
        return NetworkUse(len(self._processes) - len(other), len(other), line)

    def pulse(self) -> Pulse:
        """Return the present progress."""
        now = self._clock()
        self._quiet_s += min(now - self._looked, MOST_STEP_S)
        self._looked = now
        began, stopped = int(self._began > 0), int(self.status != "")
        return Pulse(int(1000 * self._quiet_s), began, int(1000 * self._interval_s), stopped)
