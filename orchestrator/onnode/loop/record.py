"""The records of a group: its events, and the state that follows from them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..kernel.events import UNIT, Event, EventLog
from ..policy import place


class GroupRecord:
    """A group's events: node messages, and decisions of the loop."""

    def __init__(self, events: EventLog) -> None:
        self.events = events
        self.state = place.GroupState()
        self.last = 0, 0
        """Run and attempt."""

    def start_attempt(self, run: int, attempt: int) -> None:
        self.last = run, attempt

    def note(
        self, word: str, node: str = "", detail: str | dict[str, Any] = "", source: str = "loop"
    ) -> Event:
        """Record an event and apply it to the state."""
        event = self.events.append(source, word, node, detail)
        place.apply(self.state, event)
        return event

    def note_with_attempt(self, word: str, node: str, kind: str, reason: str) -> None:
        self.note(word, node, UNIT.join((kind, reason, *map(str, self.last))))

    def fail(self, node: str, kind: str, reason: str) -> None:
        if node not in self.state.failed:
            self.note("fail", node, f"{kind}{UNIT}{reason}")

    def lose(self, node: str, reason: str, kind: str = "silent") -> None:
        """Record that a node is silent and failed, unless it sent `left`. Its agent may still
        run."""
        report = self.state.reports.get(node)
        if report is None or "left" in report.messages or node in self.state.silent:
            return
        self.note("silent", node)
        self.fail(node, kind, reason)

    def is_gone(self, node: str) -> bool:
        """Nothing more can come from the node in this step."""
        return node in self.state.silent or "left" in self.state.reports[node].messages

    def still_there(self, nodes: Iterable[str]) -> list[str]:
        return [node for node in nodes if not self.is_gone(node)]

    def has_failed(self, nodes: Iterable[str]) -> bool:
        return any(node in self.state.failed for node in nodes)
