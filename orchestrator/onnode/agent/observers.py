"""What is learnt of a run beside its end: its output, its transport, drift of settings, caches.

All of it comes through one seam, so that what is to be learnt next is a class here and a line in
`observers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..kernel.events import Pulse
from ..kernel.waiting import Waiting
from .listening import RunOutput
from .node import Node
from .tuning import Answer, Tuning, drift

DRIFT_S = 10
TRANSPORT_S = 60
"""After RCCL's first line about the network all processes should have said what they use."""


class Observer:
    """One of them. It sees nothing of a run that was withdrawn."""

    is_done = True
    """False: the record of the run waits for it."""

    def begin(self) -> None:
        """The run begins."""

    def feed(self, piece: bytes) -> None:
        """The run has printed `piece`."""

    def run_ended(self) -> None:
        """Its first process has ended."""

    def end(self) -> dict[str, Any]:
        """All of it is over; return what is to be in its record (NodeRunRecord)."""
        return {}


class OutputObserver(Observer):
    """Its output: run_stop, since when it is quiet, its own rhythm."""

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
    """What RCCL says of the network: said a minute after its first line, and at the end."""

    def __init__(self, node: Node, waiting: Waiting, attempt: str, heard: OutputObserver) -> None:
        self._node, self._waiting, self._attempt = node, waiting, attempt
        self._heard = heard
        self._is_due = False

    def feed(self, piece: bytes) -> None:
        if self._heard.output.speaks and not self._is_due:
            self._is_due = True
            self._waiting.after("transport", TRANSPORT_S, self._say)

    def end(self) -> dict[str, Any]:
        self._waiting.cancel("transport")
        if self._heard.output.speaks:
            self._say()
        return {}

    def _say(self) -> None:
        self._node.say("transport", self._attempt, *self._heard.output.transport())


class DriftObserver(Observer):
    """The settings of the host that did not hold during the run, asked for when it has ended."""

    def __init__(self, waiting: Waiting, tuning: Tuning, then: Callable[[], object]) -> None:
        """`then` is called when it is done after the end of the run."""
        self._waiting, self._tuning, self._then = waiting, tuning, then
        self._begun = False
        self._found: list[dict[str, Any]] = []

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
            self._found = drift(knobs)
            self._then()

    def end(self) -> dict[str, Any]:
        self._waiting.cancel("drift")
        self.is_done = True  # what is answered now comes too late
        return {"drift": self._found}


class StartObserver(Observer):
    """How warm its start was: the runs of its container so far, what the caches held."""

    def __init__(self, container_run: int, cache: dict[str, Any]) -> None:
        self._about = {"container_run": container_run, "cache": cache}

    def end(self) -> dict[str, Any]:
        return self._about
