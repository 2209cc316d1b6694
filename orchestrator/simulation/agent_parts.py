"""The parts of a simulated agent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.onnode.kernel.layout import Layout

if TYPE_CHECKING:
    from orchestrator.onnode.kernel.files import Files
    from orchestrator.onnode.kernel.settings import Settings
    from orchestrator.simulation.engine import SimProcess
    from orchestrator.simulation.machine import Machine, NodePace


@dataclass(frozen=True)
class AgentPost:
    process: SimProcess
    machine: Machine
    files: Files
    settings: Settings
    environment: Mapping[str, str]
    write_line: Callable[[bytes], None]
    pace: NodePace
    gone: Callable[[str, str], None]
    """Called at its end with node and srun's report, "" after exit status 0."""

    @cached_property
    def layout(self) -> Layout:
        return Layout(Path(self.environment["ORCH_SET_DIR"]))


class SimContainer:
    """An agent's container and host settings. Methods return an error, or ""."""

    def __init__(self, post: AgentPost) -> None:
        self._machine, self._settings = post.machine, post.settings
        job_id = post.environment["ORCH_JOB_ID"]
        self.owner = f"{job_id}-{post.machine.name}-{post.process.pid}"
        self.lost = False
        self.image = ""
        """Its id; the name may move."""
        self._facts: dict[str, str] = {}
        self._contents: dict[str, str] = {}
        """At its start."""

    @property
    def wanted(self) -> bool:
        return self._settings.engine != "none"

    def look_for_image(self) -> None:
        self.image = self._machine.condition.image

    @property
    def missing_image(self) -> str:
        """Return a problem, or ""."""
        if not self.wanted or self.image:
            return ""
        return f"image {self._settings.cont} is not on this node; pull or load it there"

    def start(self) -> str:
        if self.wanted:
            if text := self._machine.condition.broken_container:
                return text
            self._machine.containers.add(self.owner)
        return ""

    def remove(self) -> None:
        self._machine.containers.discard(self.owner)

    def lose(self) -> None:
        self.remove()
        self.lost = True

    def tune(self) -> str:
        if self._settings.runtime_tunables == 1:
            if text := self._machine.condition.untunable:
                return text
            self._machine.tuned_by.add(self.owner)
        return ""

    def revert(self) -> str:
        if self.owner in self._machine.tuned_by and self._machine.condition.unreverted:
            return self._machine.condition.unreverted
        self._machine.tuned_by.discard(self.owner)
        return ""

    def note_contents(self) -> None:
        at_start = self._machine.condition.contents.items()
        self._contents = {part: sha for part, sha in at_start if part != "caches"}

    @property
    def contents(self) -> list[str]:
        return [f"inside.{part}={sha}" for part, sha in self._contents.items()]

    def changed_facts(self) -> list[str]:
        """Return all facts, if any changed since the last call."""
        condition = self._machine.condition
        facts = {"image": self.image or "-", **condition.facts}
        if self.owner in self._machine.tuned_by:
            facts["knob.numa_balancing"] = "0"
        if facts == self._facts:
            return []
        self._facts = facts
        return [f"{name}={value}" for name, value in facts.items()]


class OrderQueue:
    def __init__(self) -> None:
        self._orders: deque[dict[str, Any]] = deque()
        self.awaited = ""
        """The only order obeyed now: pull, use or ""."""
        self._busy = False
        self.gathers = False
        """It gathers evidence, and obeys nothing but an end."""

    def add(self, message: Mapping[str, Any]) -> None:
        self._orders.append(dict(message))

    def next(self, *, ready: bool) -> dict[str, Any] | None:
        if self._orders and not self._busy and (self.awaited or ready):
            return self._orders.popleft()
        return None

    def await_only(self, word: str) -> None:
        self.awaited = word

    def pause(self, *, gathers: bool = False) -> None:
        """Obey nothing until `resume`."""
        self._busy, self.gathers = True, gathers

    def resume(self) -> None:
        self._busy = self.gathers = False


class Departure:
    def __init__(self) -> None:
        self.begun = self.over = False
        self.reason = ""
        self._status = 0

    def begin(self) -> bool:
        """Return whether it starts now."""
        starts, self.begun = not self.begun, True
        return starts

    def exit_with(self, status: int) -> None:
        self._status = status

    def interrupt(self, status: int) -> None:
        """Exit with `status` unless another is set."""
        self._status = self._status or status

    def explain(self, reason: str) -> None:
        self.reason = reason

    def finish(self) -> str:
        """Return srun's report, "" after exit status 0."""
        self.over = True
        return f"Exited with exit code {self._status}" if self._status else ""
