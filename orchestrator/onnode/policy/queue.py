"""The runs to do, shared by a job's groups, folded from events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..kernel.events import Event

IN_A_ROW = 3
"""After this many dead attempts, a group takes no runs while another works."""


@dataclass
class Queue:
    missing: list[int] = field(default_factory=list)
    """In order: without a result, not in hand, with attempts left."""
    most: int = 0
    """Attempts per run in this job."""
    groups: set[int] = field(default_factory=set)
    """At work."""
    in_hand: set[int] = field(default_factory=set)
    tried: Counter[int] = field(default_factory=Counter)
    """Run -> counted attempts of this job."""
    dead: Counter[int] = field(default_factory=Counter)
    """Group -> dead attempts since its last success."""
    died: set[tuple[int, int]] = field(default_factory=set)
    """(group, run)"""


def apply(queue: Queue, event: Event) -> None:
    """Unknown and incomplete events change nothing."""
    if event.source != "loop" or event.word not in ("runs", "take", "gives", "leaves"):
        return
    about = event.data()
    if event.word == "runs":
        vars(queue).update(vars(Queue()))
        queue.missing, queue.most = _numbers(about, "missing"), _number(about, "most")
        queue.groups = set(_numbers(about, "groups"))
        return
    group, run = _number(about, "group"), _number(about, "run")
    if event.word == "leaves":
        queue.groups.discard(group)
    elif event.word == "take" and run in queue.missing:
        queue.missing.remove(run)
        queue.in_hand.add(run)
    elif event.word == "gives" and run in queue.in_hand:
        _take_back(queue, group, run, str(about.get("why", "")))


def _take_back(queue: Queue, group: int, run: int, why: str) -> None:
    """`why`: result, interrupted (the job ends), died, free (died, not counted), or back (not
    counted: nodes not ready, or another attempt would fail alike)."""
    queue.in_hand.discard(run)
    if why in ("result", "interrupted"):
        queue.dead[group] = 0
        return
    if why in ("died", "free"):
        counts = why == "died"
        queue.died.add((group, run))
        # Counts in this job alone: a resumed set tries again.
        queue.tried[run] += counts
        queue.dead[group] += counts
    if why == "back" or queue.tried[run] < queue.most:
        queue.missing.insert(0, run)


def _number(about: Mapping[str, Any], name: str) -> int:
    value = about.get(name)
    return value if isinstance(value, int) else 0


def _numbers(about: Mapping[str, Any], name: str) -> list[int]:
    values = about.get(name)
    if not isinstance(values, list):
        return []
    return [value for value in values if isinstance(value, int)]


def next_run(queue: Queue, group: int) -> int:
    """Return a run, or 0. Runs that died in `group` come last; their last attempt waits for another
    group while any run is in hand."""
    runs = queue.missing
    if len(queue.groups) > 1:
        died_here = [run for run in runs if (group, run) in queue.died]
        others = [run for run in runs if run not in died_here]
        runs = others or [run for run in died_here if not _is_kept_for_others(queue, run)]
    return next(iter(runs), 0)


def _is_kept_for_others(queue: Queue, run: int) -> bool:
    return bool(queue.in_hand) and queue.tried[run] >= queue.most - 1


def is_to_stop(queue: Queue, group: int) -> bool:
    """Return whether IN_A_ROW attempts died in `group` while another group works."""
    return queue.dead[group] >= IN_A_ROW and len(queue.groups) > 1
