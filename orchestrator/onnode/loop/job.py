"""A job that works on a set: it takes the set, holds the nodes, runs what is missing, and closes the set whatever happens."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from .. import records
from ..events import EventLog, now_ms
from ..policy.place import waiting_now
from ..records import JobRecord
from ..settings import Settings, SettingsError, evaluate_config, load
from .folder import NO_ROOM, Folder, SetError, open_folder
from .hold import Group
from .nodes import Flow, Local, Reactor, Slurm
from .run import try_run

TIME_LIMIT = ("time_limit", "the time limit of the job is near")
CANCELLED = ("cancelled", "ended by a signal (scancel or cancel)")


def log(text: str) -> None:
    """Write one line with a time stamp to standard error."""
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} orchestrator: {text}", file=sys.stderr, flush=True)


def main(bundle: Path, kind: str) -> int:
    """Work on a set; return 0 when every run of it has a result."""
    environment = dict(os.environ)
    try:
        settings = load(bundle)
        scheduler = _scheduler(kind, settings, environment)
        folder = open_folder(bundle, settings, scheduler, environment)
        gone = folder.take(scheduler)
    except (SettingsError, LookupError, SetError) as error:
        log(f"error: {error}")
        return 1
    if gone:
        log(f"taking over from job {gone}, which is gone")
    return Job(settings, scheduler, folder, environment).work()


def _scheduler(kind: str, settings: Settings, environment: dict[str, str]) -> Slurm | Local:
    scheduler: Slurm | Local
    if kind == "slurm":
        scheduler = Slurm(environment)
    else:
        many = settings.nnodes > 1
        if many and settings.engine != "none" and environment.get("ALLOW_MANY_ON_ONE_HOST") != "1":
            raise LookupError(
                f"{settings.system} has {settings.nnodes} nodes; use sbatch job.sh "
                "(ALLOW_MANY_ON_ONE_HOST=1 puts them all on this host, for rehearsals)"
            )
        scheduler = Local(environment, settings.nnodes + settings.spares if many else 1)
    if len(scheduler.allocated) < settings.nnodes:
        found = len(scheduler.allocated)
        raise LookupError(
            f"{settings.system} needs {settings.nnodes} nodes, the allocation has {found} (--nodes of job.sh)"
        )
    return scheduler


class Job:
    """One job of a set, from taking the set to letting it go."""

    def __init__(
        self, settings: Settings, scheduler: Slurm | Local, folder: Folder, environment: dict[str, str]
    ) -> None:
        self.settings, self.scheduler, self.folder, self.environment = settings, scheduler, folder, environment
        self.settings_record = {**dataclasses.asdict(settings), "data": {}}
        self.layout, self.job_id = folder.layout, scheduler.job_id
        self.bundle = folder.layout.bundle
        self.reactor = Reactor(self.look_at_signals)
        self.now_ms = now_ms
        self.started_ms = now_ms()
        self.run = self.attempt = 0
        self.state, self.reason = "", ""
        self.ending = self.ending_reason = ""
        """Why the set is being closed before it is done."""
        self.warnings: list[str] = []
        self.aside: list[dict[str, Any]] = []
        digits = "".join(char for char in self.job_id if char.isdecimal())[-6:]
        self.port_base = int(digits or "0") * 101
        self.has_spares = len(scheduler.allocated) > settings.nnodes
        self.events: EventLog
        self.group: Group | None = None

    log = staticmethod(log)

    def work(self) -> int:
        """Run what is missing; the exit status."""
        state, reason = "failed", "the loop ended unexpectedly, see the job output"
        try:
            self.folder.settle()
            self.environment_file()
            self.events = EventLog(self.layout.events(self.job_id))
            self.group = Group(self, self.scheduler.allocated)
            self.write("starting")
            spare = len(self.scheduler.allocated) - self.settings.nnodes
            more = f", {spare} to spare" if spare else ""
            log(f"set {self.layout.root}: {self.folder.record.nexp} runs on {self.settings.nnodes} node(s){more}")
            state, reason = self.reactor.run(self._flow(self.group))
        except (SettingsError, SetError) as error:
            reason = str(error)
            log(f"error: {error}")
        except OSError as error:
            state, reason = (
                "paused",
                f"cannot write to {error.filename or self.layout.root}: {error.strerror} ({NO_ROOM})",
            )
            log(f"error: {reason}")
        finally:
            self._finish(state, reason)
        if state != "complete":
            return 1
        missing = len(self.folder.missing())
        if missing:
            log(f"{missing} of {self.folder.record.nexp} runs have no result; `{self._resume}` tries them again")
        return 1 if missing else 0

    def _flow(self, group: Group) -> Flow:
        """Work on the set; (state, reason)."""
        if (missing := deque(self.folder.missing())) and not (yield from group.have_ready()):
            if self.ending:
                return self.ending, self.ending_reason
            # With results already, or with spares that are used up, it is only paused: another allocation may do better.
            paused = (group.too_few and self.has_spares) or any(self.layout.runs.glob("*/result_*.txt"))
            return ("paused" if paused else "failed"), group.problem
        problem = yield from self._runs(group, missing)
        if self.ending:
            return self.ending, self.ending_reason
        if problem:
            return "paused", problem
        self.run = self.folder.record.nexp
        return "complete", ""

    def _runs(self, group: Group, missing: deque[int]) -> Flow:
        """Run what is missing; why that cannot go on, or ""."""
        used = False
        while missing and not self.is_ending():
            run, tried = missing.popleft(), 0
            # The limit counts this job's own attempts: a resumed set tries again, and the earlier attempts stay on record.
            while tried < self.settings.max_attempts and not self.is_ending():
                # Not before there is something to run: a set that is done needs no nodes any more.
                if used and not (yield from self._renew(group)):
                    return f"the containers could not be renewed: {group.problem}"
                outcome = yield from try_run(group, run, self.folder.last_attempt(run) + 1)
                used = not outcome.clean
                if outcome.outcome != "infrastructure":
                    break
                log(f"run {run} attempt {self.attempt} failed: {outcome.reason}")
                free = [group.blame(node, kind, reason) for node, kind, reason in outcome.blamed]
                if group.hopeless and not any(free):
                    return outcome.reason
                # An attempt that a bad node cost is not the run's, where a fresh one takes its rank.
                tried += not any(free)
        return ""

    def _renew(self, group: Group) -> Flow:
        """New containers on all nodes; what a dead run left behind in the old ones is gone with them."""
        yield from group.release()
        return not self.ending and (yield from group.have_ready())

    # ---- records ----

    def environment_file(self) -> None:
        """Write the environment of the runs. Raises SettingsError, OSError."""
        text = evaluate_config(self.layout.bundle, self.settings, self.folder.record.nexp)
        records.write_bytes(self.layout.environment, text)

    def write(self, state: str = "", reason: str = "") -> None:
        """Write the job's own state, as long as the set is its own: its successor has closed it otherwise.

        A disk that is full does not stop the job here: the next state of a run does.
        """
        self.state, self.reason = state or self.state, reason or self.reason
        if not self.folder.is_mine:
            return
        standing = self.group.standing if self.group else None
        final = self.state in JobRecord.FINAL
        record = JobRecord(
            job_id=self.job_id,
            state=self.state,
            reason=self.reason,
            host=os.uname().nodename,
            pid=os.getpid(),
            started_ms=self.started_ms,
            updated_ms=now_ms(),
            ended_ms=now_ms() if final else 0,
            nodes=(standing.workers if standing else []) or list(self.scheduler.allocated[: self.settings.nnodes]),
            run=self.run,
            attempt=self.attempt,
            image_digest=self.group.image if self.group else "",
            engine=self.settings.engine,
            spares=waiting_now(standing) if standing else [],
            set_aside=self.aside,
            warnings=self.warnings,
        )
        try:
            records.write(record, self.layout.job(self.job_id), sync=final)
        except OSError as error:
            log(f"error: cannot write {self.layout.job(self.job_id)}: {error.strerror}")

    def warn(self, text: str) -> None:
        """Put a warning into the job's output and its record, once."""
        if text not in self.warnings:
            self.warnings.append(text)
            log(f"WARNING: {text}")

    def put_aside(self, node: str, kind: str, reason: str) -> None:
        """Put on record that a node is not used any more, with the run that was going on (0 before the first)."""
        log(f"node {node} is set aside: {reason}")
        about = {
            "node": node,
            "kind": kind,
            "reason": reason,
            "run": self.run,
            "attempt": self.attempt,
            "time_ms": now_ms(),
        }
        self.aside.append(about)

    @property
    def where(self) -> tuple[str, str]:
        return str(self.run), str(self.attempt)

    def append_to(self, path: Path, text: str) -> None:
        try:
            with open(path, "a", encoding="utf-8", errors="replace") as file:
                file.write(text + "\n")
        except OSError:  # a log that cannot be written stops nothing
            pass

    # ---- the end ----

    @property
    def _resume(self) -> str:
        return f"orchestrator resume {self.layout.root.name}"

    def look_at_signals(self) -> None:
        """Take in signals: the first one says why the set is closed."""
        if self.reactor.signals and not self.ending:
            only_usr1 = tuple(self.reactor.signals) == (signal.SIGUSR1,)
            self.ending, self.ending_reason = TIME_LIMIT if only_usr1 else CANCELLED
            log(f"{self.ending_reason}: closing the set; `{self._resume}` goes on")
            # States first: what follows may not get the time it needs.
            if self.state:
                self.write(self.ending, self.ending_reason)

    def is_ending(self) -> bool:
        """Whether the set is being closed; also for a signal that came while nothing was waited for."""
        self.look_at_signals()
        return bool(self.ending)

    def _finish(self, state: str, reason: str) -> None:
        self.ending = self.ending or "closing"
        try:
            if self.group is not None:
                self.reactor.run(self.group.release())
                self.group.clear_markers()
        finally:
            self.reason = ""
            self.write(state, reason)
            self.folder.let_go()
            log(f"set {self.layout.root.name}: {state}" + (f" ({reason})" if reason else ""))
