"""Repeated, cheap reads of sets: small files, new bytes of logs, rarely the scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import SetError
from orchestrator.evidence.asking import Asking
from orchestrator.evidence.picture import SetPicture, ask_all, picture
from orchestrator.evidence.progress import KeptLogs, age_s
from orchestrator.evidence.sets import (
    RunSet,
    SetEvidence,
    going,
    read_set_record,
    set_folders,
    surely_settled,
)
from orchestrator.evidence.training_log import training_log
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.records import SetRecord
from orchestrator.scheduler import open_scheduler
from orchestrator.scheduler.kinds import KINDS

if TYPE_CHECKING:
    from orchestrator.scheduler.job import Job, Scheduler

SHORTEST_S, LONGEST_S = 0.5, 5.0
QUIET_S = 60.0
"""A job whose log grew within this time is alive; the scheduler is not asked."""

LOST_S = 15.0
"""A job can end before its last files are visible here: NFS clients keep attributes for some
seconds (acregmax)."""


class Watch:
    """Repeated reads of one set. `interval_s` None adapts to the runs' length; all watched sets
    share `asking`."""

    def __init__(
        self,
        run_set: RunSet,
        scheduler: Scheduler,
        interval_s: float | None = None,
        asking: Asking | None = None,
    ) -> None:
        self.run_set = run_set
        self.scheduler = scheduler
        self.interval_s = interval_s
        self.logs = KeptLogs()
        self.asking = asking or Asking()
        self._answer: dict[str, Job] | None = {}
        self._asked = True
        self._about: tuple[str, bool] | None = None
        self._lost_since = 0.0

    def look(self) -> SetPicture:
        """Return the current set."""
        files = SetEvidence(self.run_set.layout.root)
        if self.due(files):
            self.asking.asked()
            self.take(ask_all([files], self.scheduler))
        return self.draw()  # from files newer than the answer

    def draw(self) -> SetPicture:
        """Return the set from its files, with the scheduler's last answer."""
        files = SetEvidence(self.run_set.layout.root)
        return picture(files, self._answer, self.logs, asked=self._asked)

    def pictures(self, pause: Callable[[float], None] = time.sleep) -> Iterator[SetPicture]:
        """Yield pictures until the set no longer changes by itself."""
        while True:
            current = self.look()
            yield current
            if not current.live and not self._may_reappear(current):
                return
            pause(self.pause_s(current))

    def due(self, files: SetEvidence) -> bool:
        """Return whether to ask the scheduler about the set now."""
        if files.settled:
            return False
        if self.scheduler.runs_here:  # a look at /proc
            return True
        about = (files.job_id, files.awaited)
        if about != self._about:
            self._about, self._answer, self._asked = about, None, False
            self.asking.changed()
        return self.asking.due and (self._answer is None or not self._growing(files))

    def take(self, answer: dict[str, Job] | None) -> None:
        """Apply the scheduler's answer."""
        self._answer, self._asked = answer, True

    def _growing(self, files: SetEvidence) -> bool:
        job = files.job
        if job is None or files.awaited:
            return False
        return any(
            age_s(training_log(files.layout, run, attempt)) < QUIET_S
            for run, attempt in going(job)
            if run and attempt
        )

    def _may_reappear(self, current: SetPicture) -> bool:
        if current.state != "lost" or self.scheduler.runs_here:
            return False
        now = self.asking.clock()
        self._lost_since = self._lost_since or now
        return now - self._lost_since < LOST_S

    def pause_s(self, current: SetPicture) -> float:
        """Return a fiftieth of a run, within limits: LONGEST_S bounds how late its end is seen."""
        if self.interval_s is not None:
            return self.interval_s
        walls = [run.seconds for run in current.runs if run.seconds]
        return min(LONGEST_S, max(SHORTEST_S, max(walls, default=0.0) / 50))


class WatchAll:
    """Repeated reads of every set of a log directory that was active."""

    def __init__(
        self,
        log_dir: Path,
        interval_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.log_dir = log_dir
        self.interval_s = interval_s
        self._asking = {name: Asking(clock) for name in KINDS}
        self._watches: dict[Path, Watch] = {}
        self._over: set[Path] = set()

    def look(self) -> list[SetPicture]:
        """Return the current sets, newest first, with one question to each scheduler."""
        fresh = self._find()
        files = {root: SetEvidence(root) for root in self._watches}
        by_scheduler: dict[str, list[Path]] = {}
        for root, watch in self._watches.items():
            by_scheduler.setdefault(watch.scheduler.name, []).append(root)
        for name, roots in by_scheduler.items():
            if any(self._watches[root].due(files[root]) for root in roots):
                self._asking[name].asked()
                answer = ask_all([files[root] for root in roots], self._watches[roots[0]].scheduler)
                for root in roots:
                    self._watches[root].take(answer)
        pictures = {root: watch.draw() for root, watch in self._watches.items()}
        for root in [root for root in fresh if not pictures[root].live]:
            drawn = pictures.pop(root)
            del self._watches[root]
            if drawn.state != "new":  # it may still be submitted
                self._over.add(root)
        return list(pictures.values())

    def pictures(self, pause: Callable[[float], None] = time.sleep) -> Iterator[list[SetPicture]]:
        while True:
            pictures = self.look()
            yield pictures
            live = [drawn for drawn in pictures if drawn.live]
            if not live:
                return
            pause(min(self._watches[drawn.root].pause_s(drawn) for drawn in live))

    def _find(self) -> list[Path]:
        """Add and return newly active sets."""
        fresh = []
        try:
            roots = set_folders(self.log_dir)
        except SetError:
            if not self._watches:
                raise
            return []  # the storage may fail for a moment
        for root in roots:
            if root in self._over or root in self._watches:
                continue
            record = None if surely_settled(root) else read_set_record(Layout(root))
            if not isinstance(record, SetRecord) or record.scheduler not in self._asking:
                self._over.add(root)
                continue
            about = RunSet(Layout(root), record), open_scheduler(record.scheduler)
            self._watches[root] = Watch(*about, self.interval_s, self._asking[record.scheduler])
            fresh.append(root)
        return fresh
