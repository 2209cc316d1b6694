"""A job as its groups use it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..kernel.events import UNIT, Event, EventLog
from ..kernel.layout import Layout
from ..kernel.program import Program
from ..kernel.settings import Settings
from ..kernel.waiting import Flow
from ..policy import place
from ..policy.queue import Queue
from ..policy.reports import NodeReport
from .allocation import JobAllocation
from .ending import Ending
from .host import BatchHost


class SharedByGroups:
    """Runs, unassigned nodes, the image, the wait for first runs, pulls. Groups are numbers."""

    def __init__(self) -> None:
        self.queue = Queue()
        """Of runs; its groups are at work."""
        self.pool: list[str] = []
        """Unassigned nodes."""
        self.image = ""
        """The image's identity, the same on all nodes; "" before it is known."""
        self.behind: set[int] = set()
        """Groups whose first runs the others did not await."""
        self._arrived: set[int] = set()
        """Groups that were ready for a first run, or never will be."""
        self._pulls: dict[int, int] = {}
        """Group -> number of pulls."""

    def take_image(self, image: str) -> None:
        """Set the image's identity; "" keeps it."""
        self.image = image or self.image

    # ---- unassigned nodes ----

    def take_node(self) -> str:
        return self.pool.pop(0)

    def add_nodes(self, nodes: Iterable[str]) -> None:
        self.pool += nodes

    # ---- first runs ----

    def arrive(self, group: int) -> None:
        self._arrived.add(group)

    @property
    def awaited(self) -> set[int]:
        """Groups neither ready for a first run nor left behind."""
        return self.queue.groups - self._arrived - self.behind

    def leave_behind(self) -> None:
        """Never again wait for the awaited groups."""
        self.behind |= self.awaited

    def is_reference(self, other: int, group: int) -> bool:
        """Return whether `group` must be like `other`."""
        return other != group and not {other, group} <= self.behind

    # ---- pulls ----

    def pulls_of_others(self, group: int) -> int:
        return sum(count for other, count in self._pulls.items() if other != group)

    def set_pulls(self, group: int, count: int) -> None:
        self._pulls[group] = count

    def end_pulls(self, group: int) -> None:
        self._pulls.pop(group, None)


class BatchJob:
    """A job that holds nodes. Without a set it keeps no record."""

    allocation: JobAllocation
    job_id: str

    def __init__(
        self, program: Program, settings: Settings, layout: Layout, world: BatchHost
    ) -> None:
        self.program, self.settings, self.layout, self.world = program, settings, layout, world
        self.shared = SharedByGroups()
        self.ending = Ending()
        self.reactor = world.reactor(self.take_signals)

    @property
    def can_replace_nodes(self) -> bool:
        return False

    @property
    def environment(self) -> dict[str, str]:
        return self.world.environment

    def log(self, text: str) -> None:
        self.world.log(text)

    def take_signals(self) -> None:
        self.ending.close("cancelled", "ended by a signal")

    def warn(self, text: str) -> None:
        """Log and record, once."""

    def write(self, state: str = "", reason: str = "") -> bool:
        """Write the job's record; return False if the storage fails."""
        return True

    def exclude(self, node: str, kind: str, reason: str, last: tuple[int, int]) -> None:
        """`last`: the node's last run and attempt, or 0."""

    def blame(self, node: str, kind: str, reason: str, last: tuple[int, int]) -> None: ...

    def others(self, group: int) -> dict[str, NodeReport]:
        return {}

    def compare_with_runs(
        self, facts: Mapping[str, Mapping[str, str]], note: Callable[[dict[str, Any]], object]
    ) -> str:
        """Compare node facts with counted runs; return why no run starts, or "". `note` records
        that."""
        return ""

    def meet(self, group: int) -> Flow:
        yield from ()

    def take_environment(self, text: bytes) -> str:
        """Let nodes use only this environment of the runs; return its hash."""
        sha256 = hashlib.sha256(text).hexdigest()
        self.environment["ORCH_ENVIRONMENT_SHA256"] = sha256
        return sha256

    def node_names(self, text: str) -> list[str]:
        """Expand `n[1-3]`."""
        return self.allocation.names(text)

    def append_to(self, path: Path, text: str) -> None:
        with suppress(OSError):
            self.world.files.append(path, f"{text}\n".encode("utf-8", "replace"))


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

    def give_up(self, node: str, reason: str, kind: str = "silent") -> None:
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
