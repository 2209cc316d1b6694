"""A job that works on a set: it takes the set, holds the nodes, runs what is missing, and closes the set whatever happens."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from ..events import EventLog
from ..settings import Settings, SettingsError, check_parts, load
from .folder import NO_ROOM, FolderError, open_folder
from .hold import Group
from .nodes import Flow, LocalNodes, Nodes, SlurmNodes
from .run import try_run
from .work import SetWork, log


def main(bundle: Path, kind: str) -> int:
    """Work on a set; return 0 when every run of it has a result."""
    environment = dict(os.environ)
    try:
        settings = load(bundle)
        check_parts(bundle, settings, deep=settings.preflight_deep == 1)
        scheduler = _scheduler(kind, settings, environment)
        folder = open_folder(bundle, settings, scheduler, environment)
        gone = folder.take(scheduler)
    except (SettingsError, LookupError, FolderError) as error:
        log(f"error: {error}")
        return 1
    if gone:
        log(f"taking over from job {gone}, which is gone")
    return SetJob(settings, scheduler, folder, environment).work()


def _scheduler(kind: str, settings: Settings, environment: dict[str, str]) -> Nodes:
    scheduler: Nodes
    if kind == "slurm":
        scheduler = SlurmNodes(environment)
    else:
        many = settings.nnodes > 1
        if many and settings.engine != "none" and environment.get("ALLOW_MANY_ON_ONE_HOST") != "1":
            raise LookupError(
                f"{settings.system} has {settings.nnodes} nodes; use sbatch job.sh "
                "(ALLOW_MANY_ON_ONE_HOST=1 puts them all on this host, for rehearsals)"
            )
        scheduler = LocalNodes(environment, settings.nnodes + settings.spares if many else 1)
    if len(scheduler.allocated) < settings.nnodes:
        found = len(scheduler.allocated)
        raise LookupError(
            f"{settings.system} needs {settings.nnodes} nodes, the allocation has {found} (--nodes of job.sh)"
        )
    return scheduler


class SetJob(SetWork):
    """One job of a set, from taking the set to letting it go."""

    group: Group | None = None

    def work(self) -> int:
        """Run what is missing; the exit status."""
        state, reason = "failed", "the loop ended unexpectedly, see the job output"
        try:
            self.folder.settle()
            self.environment_file()
            self.events = EventLog(self.layout.events(self.job_id))
            self.group = Group(self, self.scheduler.allocated)
            self.standing = self.group.standing
            self.write("starting")
            spare = len(self.scheduler.allocated) - self.settings.nnodes
            more = f", {spare} to spare" if spare else ""
            log(f"set {self.layout.root}: {self.folder.record.nexp} runs on {self.settings.nnodes} node(s){more}")
            state, reason = self.reactor.run(self._flow(self.group))
        except (SettingsError, FolderError) as error:
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
            log(f"{missing} of {self.folder.record.nexp} runs have no result; `{self.resume_command}` tries them again")
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
                outcome = yield from try_run(self, group, run, self.folder.last_attempt(run) + 1)
                used = not outcome.clean
                if outcome.outcome != "infrastructure":
                    break
                log(f"run {run} attempt {self.attempt} failed: {outcome.reason}")
                free = [group.blame(node, kind, reason) for node, kind, reason in outcome.blamed]
                if group.hopeless and not any(free):
                    return outcome.reason
                # An attempt that a bad node cost is not the run's, where a fresh one takes its rank.
                tried += not any(free)
            if missing and group.repeats():
                return f"{len(group.standing.ways)} attempts died alike, soon after their start: {outcome.reason}"
        return ""

    def _renew(self, group: Group) -> Flow:
        """New containers on all nodes; what a dead run left behind in the old ones is gone with them."""
        yield from group.release()
        return not self.ending and (yield from group.have_ready())

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
