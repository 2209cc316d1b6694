"""Looking at one set again and again, cheaply: its small files, of logs only what is new, the scheduler rarely."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.evidence.picture import SetPicture, ask_all, picture
from orchestrator.evidence.progress import KeptLogs
from orchestrator.evidence.sets import RunSet, SetEvidence, going
from orchestrator.onnode.mllog_tail import telling_log

if TYPE_CHECKING:
    from orchestrator.scheduler import Job, Scheduler

SHORTEST_S, LONGEST_S = 0.5, 5.0
FIRST_QUERY_S, STEADY_QUERY_S = 3.0, 90.0
"""Pauses between questions to Slurm: short after the submission, then at most 40 an hour."""

QUIET_S = 60.0
"""A job whose log grew within this time is alive; Slurm is not asked then."""

LOST_S = 15.0
"""A job can be gone before its last files are seen here: NFS clients keep attributes for some seconds (acregmax)."""


class Watch:
    """Repeated looks at one set. `interval_s` None adapts to the length of the runs."""

    def __init__(self, run_set: RunSet, scheduler: Scheduler, interval_s: float | None = None) -> None:
        self.run_set = run_set
        self.scheduler = scheduler
        self.interval_s = interval_s
        self.logs = KeptLogs()
        self.queries = 0
        self._answer: dict[str, Job] | None = {}
        self._about: tuple[str, bool] | None = None
        self._next_query = 0.0
        self._pause_s = FIRST_QUERY_S
        self._lost_since = 0.0

    def look(self) -> SetPicture:
        """Return the set as it is now."""
        files = SetEvidence(self.run_set.layout.root)
        if not files.settled and self._due(files):
            self._ask(files)
            files = SetEvidence(self.run_set.layout.root)  # so that the files are newer than the answer
        return picture(files, self._answer, self.logs)

    def pictures(self, pause: Callable[[float], None] = time.sleep) -> Iterator[SetPicture]:
        """Yield looks until the set no longer changes by itself; the last one is its final state."""
        while True:
            one = self.look()
            yield one
            if not one.live and not self._may_reappear(one):
                return
            pause(self._interval(one))

    def _due(self, files: SetEvidence) -> bool:
        if self.scheduler.name == "local":  # a look at /proc
            return True
        about = (files.job_id, files.awaited)
        if about != self._about:
            self._about, self._pause_s = about, FIRST_QUERY_S
            return True
        return time.monotonic() >= self._next_query and not self._growing(files)

    def _ask(self, files: SetEvidence) -> None:
        self._answer = ask_all([files], self.scheduler)
        self.queries += 1
        # Jitter: the watchers of a whole lab should not ask in step.
        self._next_query = time.monotonic() + self._pause_s * random.uniform(0.9, 1.1)
        self._pause_s = min(self._pause_s * 1.5, STEADY_QUERY_S)

    def _growing(self, files: SetEvidence) -> bool:
        job = files.job
        if job is None or files.awaited:
            return False
        return any(
            _age_s(telling_log(files.layout, run, attempt)) < QUIET_S for run, attempt in going(job) if run and attempt
        )

    def _may_reappear(self, one: SetPicture) -> bool:
        if one.state != "lost" or self.scheduler.name == "local":
            return False
        self._lost_since = self._lost_since or time.monotonic()
        return time.monotonic() - self._lost_since < LOST_S

    def _interval(self, one: SetPicture) -> float:
        """Return a fiftieth of a run, within limits; the end of a run is seen within LONGEST_S."""
        if self.interval_s is not None:
            return self.interval_s
        walls = [run.seconds for run in one.runs if run.seconds]
        return min(LONGEST_S, max(SHORTEST_S, max(walls, default=0.0) / 50))


def _age_s(path: Path) -> float:
    """Return how long ago a file was changed; for ever where there is none."""
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError:
        return math.inf
