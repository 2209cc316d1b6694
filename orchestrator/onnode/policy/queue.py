"""Which run comes next where. The groups of nodes of a job share one queue, and each run is in one hand at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

IN_A_ROW = 3
"""A group in which so many attempts died one after the other, of whatever runs, takes no more: others do better, or worse."""

CLOSE_S = 120
"""Seconds: so long before the job's time limit Slurm's warning closes the set (--signal of job.sh)."""


class Queue:
    """The runs without a result, in order. `most`: attempts of one run, in this job; `groups`: those that are at work."""

    def __init__(self, missing: Iterable[int], most: int, groups: Iterable[int]) -> None:
        self.missing, self.most, self.groups = list(missing), most, set(groups)
        self.in_hand: set[int] = set()
        self.tried: Counter[int] = Counter()
        self.dead: Counter[int] = Counter()
        """group -> attempts that died there since the last one that did not."""
        self._died: set[tuple[int, int]] = set()

    def take(self, group: int) -> int:
        """Return the next run for `group`, 0 when there is none now. One that died there comes after all others, and its last
        attempt is for another group, as long as one is at work."""
        found = self.missing
        if len(self.groups) > 1:
            here = [run for run in found if (group, run) in self._died]
            last = [run for run in here if self.in_hand and self.tried[run] >= self.most - 1]
            found = [run for run in found if run not in here] or [run for run in here if run not in last]
        run = next(iter(found), 0)
        if run:
            self.missing.remove(run)
            self.in_hand.add(run)
        return run

    def put_back(self, run: int) -> None:
        """It goes on before all others."""
        self.in_hand.discard(run)
        self.missing.insert(0, run)

    def ended(self, group: int, run: int) -> None:
        """The run has a result."""
        self.in_hand.discard(run)
        self.dead[group] = 0

    def died(self, group: int, run: int, *, free: bool) -> bool:
        """An attempt says nothing about convergence, and is not counted where it was `free`; whether `group` is to stop."""
        self.in_hand.discard(run)
        self._died.add((group, run))
        # The limit counts this job's own attempts: a resumed set tries again, and the earlier attempts stay on record.
        self.tried[run] += not free
        self.dead[group] += not free
        if self.tried[run] < self.most:
            self.put_back(run)
        return self.dead[group] >= IN_A_ROW and len(self.groups) > 1


def fits(left_s: float, needs_s: float) -> bool:
    """Whether a run can end before the job's time limit: the shortest that is known took `needs_s`, 0 where none is."""
    return left_s - CLOSE_S >= needs_s
