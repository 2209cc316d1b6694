"""Repeated, cheap reads of sets: their small files, only new bytes of logs, the scheduler
rarely."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

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
from orchestrator.evidence.telling import telling_log
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.records import SetRecord
from orchestrator.scheduler import open_scheduler

if TYPE_CHECKING:
    from orchestrator.scheduler.job import Job, Scheduler

SHORTEST_S, LONGEST_S = 0.5, 5.0
QUIET_S = 60.0
"""A job whose log grew within this time is alive; Slurm is not asked then."""

LOST_S = 15.0
"""A job can end before its last files are visible here: NFS clients keep attributes for some
seconds (acregmax)."""


class Watch:
    """Repeated reads of one set. `interval_s` None adapts to the length of the runs; all watched
    sets share `asking`."""

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
        """Return the set from its current files, with the scheduler's last answer."""
        files = SetEvidence(self.run_set.layout.root)
        return picture(files, self._answer, self.logs, asked=self._asked)

    def pictures(self, pause: Callable[[float], None] = time.sleep) -> Iterator[SetPicture]:
        """Yield pictures until the set no longer changes by itself; the last one is its final
        state."""
        while True:
            one = self.look()
            yield one
            if not one.live and not self._may_reappear(one):
                return
            pause(self.pause_s(one))

    def due(self, files: SetEvidence) -> bool:
        """Return whether to ask the scheduler about the set now."""
        if files.settled:
            return False
        if self.scheduler.name == "local":  # a look at /proc
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
            age_s(telling_log(files.layout, run, attempt)) < QUIET_S
            for run, attempt in going(job)
            if run and attempt
        )

    def _may_reappear(self, one: SetPicture) -> bool:
        if one.state != "lost" or self.scheduler.name == "local":
            return False
        now = self.asking.clock()
        self._lost_since = self._lost_since or now
        return now - self._lost_since < LOST_S

    def pause_s(self, one: SetPicture) -> float:
        """Return a fiftieth of a run, within limits; the end of a run is seen within LONGEST_S."""
        if self.interval_s is not None:
            return self.interval_s
        walls = [run.seconds for run in one.runs if run.seconds]
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
        self._asking = {name: Asking(clock) for name in ("local", "slurm")}
        self._watches: dict[Path, Watch] = {}
        self._over: set[Path] = set()

    def look(self) -> list[SetPicture]:
        """Return the current sets, newest first, with at most one question to each scheduler."""
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
        found = {root: watch.draw() for root, watch in self._watches.items()}
        for root in [root for root in fresh if not found[root].live]:
            one = found.pop(root)
            del self._watches[root]
            if one.state != "new":  # it may still be submitted
                self._over.add(root)
        return list(found.values())

    def pictures(self, pause: Callable[[float], None] = time.sleep) -> Iterator[list[SetPicture]]:
        """Yield pictures until no set is active."""
        while True:
            found = self.look()
            yield found
            if not any(one.live for one in found):
                return
            pause(min(self._watches[one.root].pause_s(one) for one in found if one.live))

    def _find(self) -> list[Path]:
        """Add and return newly active sets."""
        fresh = []
        for root in set_folders(self.log_dir):
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
