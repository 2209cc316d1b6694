"""A simulated node: condition, faults, durations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Span = tuple[float, float]
"""Shortest and longest (s), drawn evenly."""


@dataclass(frozen=True)
class NodePace:
    """Durations on an idle cluster of servers."""

    line: Span = (0.002, 0.02)
    """To the batch host."""
    launch: Span = (0.2, 1.5)
    checks: Span = (1.0, 4.0)
    container: Span = (4.0, 15.0)
    pull: Span = (200.0, 600.0)
    prepare: Span = (0.5, 3.0)
    start: Span = (0.1, 0.5)
    stop: Span = (0.5, 3.0)
    ignored_term: float = 10.0
    """Until it is killed (agent/run.py, KILL_S)."""
    release: Span = (0.5, 3.0)
    evidence: Span = (1.0, 8.0)
    task_end: float = 0.3
    """Until srun notices an agent's end."""
    step_end: float = 0.1
    """Until srun ends after its last agent."""
    notices_death: Span = (60.0, 120.0)
    """Until Slurm and srun notice (SlurmdTimeout)."""


CONTENTS = {"packages": "a" * 16, "code": "b" * 16, "caches": "c" * 16}


@dataclass(frozen=True)
class NodeCondition:
    """Texts are reasons, "" without the fault."""

    image: str = "sha256:" + "5" * 64
    """Its identity; "" if missing."""
    network: str = "off"
    facts: Mapping[str, str] = field(
        default_factory=lambda: {"kernel": "6.8.0", "driver": "6.12.12"}
    )
    contents: Mapping[str, str] = field(default_factory=lambda: dict(CONTENTS))
    """Part of a container's content -> hash."""
    failing: Mapping[str, str] = field(default_factory=dict)
    """Check -> reason."""
    refuses: str = ""
    """To pass the gate of a run."""
    keeps_caches: str = ""
    starts_nothing: bool = False
    """Its slurmd is up but starts no tasks."""
    untunable: str = ""
    unreverted: str = ""
    broken_container: str = ""
    """The output of containers, which end at once."""
    forges: str = ""
    """The node whose departure new agents forge."""
    floods: bool = False
    """New agents send far too much."""


@dataclass(eq=False)
class Machine:
    name: str
    up: bool = True
    condition: NodeCondition = field(default_factory=NodeCondition)
    slow: float = 1.0
    """The factor of durations here, and of its trainings everywhere."""
    clock_ms: int = 0
    """How far it is ahead."""
    containers: set[str] = field(default_factory=set)
    """Owners."""
    tuned_by: set[str] = field(default_factory=set)
    """Owners of applied settings."""

    def change(self, **parts: Any) -> None:
        self.condition = replace(self.condition, **parts)

    def slow_down(self, factor: float) -> None:
        self.slow = factor

    def step_clock(self, by_ms: int) -> None:
        self.clock_ms += by_ms

    def power_on(self) -> None:
        self.up = True

    def power_off(self) -> None:
        self.up = False

    def forget_processes(self) -> None:
        self.containers.clear()
        self.tuned_by.clear()
