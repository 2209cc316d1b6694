"""What the nodes of an attempt report of it."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernel.events import Event, NetworkUse, Pulse, number
from ..policy.outcome import ENDED_BY_US
from ..policy.reports import line
from .gate import Gate


class Reports:
    """The reports of the nodes of one attempt. `ranks`: these nodes; `id`: `3.1` of run 3."""

    def __init__(self, run: int, number: int, ranks: Sequence[str]) -> None:
        self.id, self.ranks = f"{run}.{number}", tuple(ranks)
        self.gate = Gate(run, ranks)
        self.exits: dict[str, int] = {}
        self.stops: dict[str, str] = {}
        """node -> status of the last run_stop in its log, "" for none."""
        self.lasted: dict[str, int] = {}
        """Milliseconds from start to end, by the node's clock."""
        self.pulses: dict[str, Pulse] = {}
        self.transports: dict[str, NetworkUse] = {}
        self.doing: dict[str, str] = {}
        """What the processes of a node do in a run that hangs, "" where nothing tells."""
        self.was_signalled = False
        """By somebody else before the loop ended it, as Slurm's to a job that it ends."""
        self._members = frozenset(ranks)
        self._is_stopped = False
        """By this loop."""
        self._has_news = True

    def take(self, event: Event) -> None:
        """Take in a word of a node; what is of another attempt, or not whole, changes nothing."""
        if event.node not in self._members:
            return
        self._has_news = True
        if event.word in ("failed", "gone", "left"):
            self.gate.take(event)
        elif event.parts[0] == self.id:
            self._take_own(event, event.parts)
            self.gate.take(event)

    def _take_own(self, event: Event, parts: Sequence[str]) -> None:
        """Take in a word that names this attempt."""
        node, word, size = event.node, event.word, len(parts)
        if word == "transport" and size == 4:
            counts = _numbers(parts[1:3])
            if counts:
                self.transports[node] = NetworkUse(counts[0], counts[1], line(parts[3], 200))
        elif word == "evidence" and size == 2:
            self.doing[node] = line(parts[1], 300)
        elif word == "exit" and size == 5:
            self._take_exit(node, *parts[1:])

    def _take_exit(self, node: str, status: str, began: str, ended: str, stop: str) -> None:
        code = number(status, 3)
        if code is None or code < 0:
            return
        self.exits[node], self.stops[node] = code, stop
        if code == ENDED_BY_US and not self._is_stopped:
            self.was_signalled = True
        began_ms, ended_ms = number(began), number(ended)
        if began_ms is not None and ended_ms is not None:
            self.lasted[node] = max(0, ended_ms - began_ms)

    def take_pulse(self, node: str, attempt: str, pulse: Pulse) -> None:
        """Take in a node's pulse in `attempt`, from its answer to a ping."""
        if attempt == self.id and node in self._members:
            self.pulses[node] = pulse
            self._has_news = True

    def has_news(self) -> bool:
        """Whether something has come in since this was asked last."""
        news, self._has_news = self._has_news, False
        return news

    def stop(self) -> None:
        """Take note that the loop ends the attempt: exits that follow are its doing."""
        self._is_stopped = True

    @property
    def has_result(self) -> bool:
        """Whether a node has reported a run_stop."""
        return any(self.stops.values())


def _numbers(texts: Sequence[str]) -> list[int]:
    """Return them as numbers from 0 on, [] where one is none."""
    if not all(text.isascii() and text.isdigit() and len(text) <= 15 for text in texts):
        return []
    return list(map(int, texts))
