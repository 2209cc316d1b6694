"""Which run comes next where, by the events of a job.

The groups of nodes of a job share one queue, and each run is in one hand at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..kernel.events import Event

IN_A_ROW = 3
"""A group in which so many attempts died one after the other takes no more runs.

Whatever these runs were: other groups do better, or worse.
"""


@dataclass
class Queue:
    """The runs without a result, in order, and what became of those that were taken."""

    missing: list[int] = field(default_factory=list)
    most: int = 0
    """Attempts of one run, in this job."""
    groups: set[int] = field(default_factory=set)
    """Those that are at work."""
    in_hand: set[int] = field(default_factory=set)
    tried: Counter[int] = field(default_factory=Counter)
    dead: Counter[int] = field(default_factory=Counter)
    """group -> attempts that died there since the last one that did not."""
    died: set[tuple[int, int]] = field(default_factory=set)
    """(group, run)"""


def apply(queue: Queue, event: Event) -> None:
    """Fold one event into `queue`. Words that are not known, or not whole, change nothing."""
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
    """Fold the end of an attempt: `why` is result, died, free (died, and not counted) or back."""
    queue.in_hand.discard(run)
    if why == "result":
        queue.dead[group] = 0
        return
    if why in ("died", "free"):
        counts = why == "died"
        queue.died.add((group, run))
        # This job's own attempts: a resumed set tries again, and the earlier ones stay on record.
        queue.tried[run] += counts
        queue.dead[group] += counts
    if why == "back" or queue.tried[run] < queue.most:
        queue.missing.insert(0, run)  # before all others


def _number(about: Mapping[str, Any], name: str) -> int:
    found = about.get(name)
    return found if isinstance(found, int) else 0


def _numbers(about: Mapping[str, Any], name: str) -> list[int]:
    found = about.get(name)
    return [one for one in found if isinstance(one, int)] if isinstance(found, list) else []


def next_run(queue: Queue, group: int) -> int:
    """Return the next run for `group`, 0 when there is none now.

    One that died there comes after all others, and its last attempt is for another group, as long
    as one is at work.
    """
    found = queue.missing
    if len(queue.groups) > 1:
        here = [run for run in found if (group, run) in queue.died]
        others = [run for run in found if run not in here]
        found = others or [run for run in here if not _is_kept_for_others(queue, run)]
    return next(iter(found), 0)


def _is_kept_for_others(queue: Queue, run: int) -> bool:
    return bool(queue.in_hand) and queue.tried[run] >= queue.most - 1


def is_to_stop(queue: Queue, group: int) -> bool:
    """Whether so many attempts died in `group` that it takes no more runs; the last one goes on."""
    return queue.dead[group] >= IN_A_ROW and len(queue.groups) > 1
