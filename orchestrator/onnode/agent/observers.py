"""Observers of a run besides its end: its output, its transport, drift of host settings, caches.

All share one seam: a new observer is a class here and a line in `observers`.
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
"""After RCCL's first line about the network all processes should have reported theirs."""


class Observer:
    """An observer. It never sees a withdrawn run."""

    is_done = True
    """False: the record of the run waits for it."""

    def begin(self) -> None:
        """Handle the start of the run."""

    def feed(self, piece: bytes) -> None:
        """Handle new output of the run."""

    def run_ended(self) -> None:
        """Handle the end of its first process."""

    def end(self) -> dict[str, Any]:
        """Finish; return the members for its record (NodeRunRecord)."""
        return {}


class OutputObserver(Observer):
    """Observes its output: run_stop, silence, its own rhythm."""

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
    """Observes RCCL's lines about the network; reports a minute after the first, and at the end."""

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
    """Asks for host settings that did not hold during the run, after its end."""

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
        self.is_done = True  # a later answer comes too late
        return {"drift": self._found}


class StartObserver(Observer):
    """Observes how warm its start was: earlier runs in its container, content of the caches."""

    def __init__(self, container_run: int, cache: dict[str, Any]) -> None:
        self._about = {"container_run": container_run, "cache": cache}

    def end(self) -> dict[str, Any]:
        return self._about
