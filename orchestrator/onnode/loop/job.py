"""A job of a set: takes it, runs missing runs, and closes it in any case.

A SetWork has a SetJob and its groups for the whole job. A group has a step at a time, for many
attempts; a failed one ends it.

Final states: complete (each run has a result or no attempts left), time_limit (warned, or no run
fits), cancelled, paused (`resume` continues), failed. Exit status 0: all runs have results, or
another copy works.

One thread waits; another touches the lease. A full disk delays events.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..kernel.events import EventLog
from ..kernel.layout import group_name
from ..kernel.plural import count
from ..kernel.program import Program
from ..kernel.settings_file import SettingsError, check_parts
from ..kernel.waiting import UNTIL_WOKEN, Flow, together
from ..policy import place
from ..policy.job_state import fits
from ..policy.outcome import Outcome
from ..policy.queue import IN_A_ROW, Queue, apply, is_to_stop, next_run
from ..set.folder import NO_ROOM, Folder, FolderError, SameJobError
from ..set.ledger import mark
from ..set.opening import open_folder
from ..set.settle import settle
from . import storage
from .allocation import OtherCopy
from .attempt import Attempt
from .checks import CheckResults
from .group import Group
from .host import BatchHost
from .set_job import SetJob
from .slurm import job_nodes

if TYPE_CHECKING:
    from .notice import Notices


def main(program: Program, kind: str) -> int:
    """Return the exit status."""
    world = BatchHost()
    status: int = world.run(work(world, program, kind))
    return status


def work(world: BatchHost, program: Program, kind: str) -> Flow:
    """`kind`: slurm or local. Value: the exit status."""
    try:
        settings = world.settings(program)
        world.share(settings.shared_group)
        check_parts(program.files, settings, deep=settings.preflight_deep == 1)
        allocation = job_nodes(kind, settings, world, world.environment)
        folder = open_folder(program, settings, allocation, world.environment, world)
        gone = yield from folder.taking(allocation, lambda: _lost(folder, world))
    except OtherCopy as other:
        world.log(str(other))
        return 0
    except SameJobError as held:
        world.log(str(OtherCopy(allocation.job_id, held.node)))
        return 0
    except (SettingsError, LookupError, FolderError) as error:
        world.log(f"error: {error}")
        return 1
    if gone:
        world.log(f"taking over from {gone}, which has ended")
    set_work = SetWork(SetJob(program, settings, allocation, folder, world))
    return (yield from set_work.work())


def _lost(folder: Folder, world: BatchHost) -> None:
    """In the lease's thread."""
    lock = folder.layout.loop_lock
    consequence = "ending what is running, and writing nothing more into the set"
    world.log(f"error: {lock} is not this job's any more: {consequence}")
    world.interrupt()


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"


class SetWork:
    """Does the missing runs of a set."""

    out_of_time = ""
    """Why no more runs start."""

    def __init__(self, job: SetJob) -> None:
        self._job = job
        self.notices: Notices | None = None

    @property
    def queue(self) -> Queue:
        return self._job.shared.queue

    def _open_notices(self) -> Notices | None:
        job = self._job
        if not job.settings.notifies:
            return None
        from .notice import Notices

        return Notices(job.program, job.settings, job.folder, job.job_id, job.world)

    def work(self) -> Flow:
        """Value: the exit status."""
        state, reason = "failed", "the loop ended unexpectedly, see the job output"
        try:
            yield from self._prepare_set()
            state, reason = yield from self._flow()
        except (SettingsError, FolderError, OSError) as error:
            state, reason = self._failure(error)
            self._job.log(f"error: {reason}")
        finally:
            yield from self._finish(state, reason)
        status = 0 if state == "complete" and not self._log_missing() else 1
        if self._job.folder.head:  # the last line: compared by `orchestrator audit`
            self._job.log(mark(self._job.folder.head))
        return status

    def _flow(self) -> Flow:
        """Value: the job's state and reason."""
        job = self._job
        problems = yield from together([self._work_on(group) for group in job.groups])
        # A signal may follow the last run.
        if job.ending.state and job.folder.missing():
            job.ending.ask_why()
            return job.ending.state, job.ending.reason
        if not self.queue.missing:  # results, or no attempts left
            job.status.end_at(job.folder.record.nexp)
            return "complete", ""
        if self.out_of_time:
            return "time_limit", self.out_of_time
        return self._stopped(), "; ".join(dict.fromkeys(filter(None, problems)))

    def _work_on(self, group: Group) -> Flow:
        """Value: why the group stopped, or ""."""
        job = self._job
        try:
            is_ready = not self.queue.missing or (yield from self._make_ready(group))
            job.arrive(group.number)
            problem = (yield from self._runs(group)) if is_ready else group.problem
            if problem:
                yield from self._leave(group, problem)
        except Exception as error:  # other groups end their runs
            job.ending.close("failed", str(error) or type(error).__name__)
            raise
        return problem

    def _runs(self, group: Group) -> Flow:
        """Value: why the group stopped, or ""."""
        job, needs_renewal = self._job, False
        while run := (yield from self._next(group)):
            if problem := (yield from self._prepare_run(group, needs_renewal=needs_renewal)):
                self._give_back(group, run, "back")
                return problem
            last = yield from storage.retry(job, partial(job.folder.last_attempt, run))
            attempt = Attempt(job, group, run, last + 1)
            outcome = yield from attempt.play()
            needs_renewal = not outcome.clean
            if outcome.outcome != "infrastructure":
                is_result = outcome.outcome != "interrupted"
                self._give_back(group, run, "result" if is_result else "interrupted")
                self._notify("running")
                if attempt.change and job.settings.changes == "stop":
                    return attempt.change
            elif problem := self._died(group, run, outcome, hopeless=attempt.is_hopeless):
                return problem
        return ""

    # ---- before the first run, and after the last ----

    def _prepare_set(self) -> Flow:
        """Raises SettingsError, FolderError, OSError."""
        job = self._job
        self.notices = self._open_notices()
        for step in (job.verify_bundle, partial(settle, job.folder), job.environment_file):
            yield from storage.retry(job, step)
        yield from self._divide()
        job.write("starting")

    def _divide(self) -> Flow:
        """Form groups (at most as many as missing runs) and their queue. Raises OSError."""
        job, need = self._job, self._job.settings.nnodes
        missing = yield from storage.retry(job, job.folder.missing)
        allocated = job.allocation.allocated
        most = min(job.settings.side_by_side, len(missing))
        groups, pool = place.groups(allocated, need, most)
        job.shared.add_nodes(pool)
        results = CheckResults()
        for number, nodes in enumerate(groups, 1):
            path = job.layout.events(group_name(job.job_id, number))
            events = yield from storage.retry(job, partial(EventLog, path, job.world))
            job.groups.append(Group(job, nodes, events, number, results))
        numbers, attempts = [group.number for group in job.groups], job.settings.max_attempts
        self._turn("runs", missing=missing, most=attempts, groups=numbers)
        spare = len(allocated) - need * len(groups)
        nexp = job.folder.record.nexp
        text = f"set {job.layout.root}: {count(nexp, 'run')} on {count(need, 'node')}"
        text += f", {len(groups)} side by side" if len(groups) > 1 else ""
        text += f", {spare} to spare" if spare else ""
        job.log(text)

    def _failure(self, error: Exception) -> tuple[str, str]:
        if not isinstance(error, OSError):
            return "failed", str(error)
        path = error.filename or self._job.layout.root
        return "paused", f"cannot write to {path}: {error.strerror} ({NO_ROOM})"

    def _stopped(self) -> str:
        """Return the state of a set that cannot continue here: failed if this job started no
        attempt, and another allocation could continue nothing (results, used spares)."""
        used_up = any(group.too_few for group in self._job.groups) and self._job.can_replace_nodes
        continues = self._job.status.run or used_up or self._job.folder.has_results()
        return "paused" if continues else "failed"

    def _finish(self, state: str, reason: str) -> Flow:
        job = self._job
        job.ending.close("closing", "the job is closing the set")
        try:
            yield from together([group.release() for group in job.groups])
            for group in job.groups:
                group.checks.remove_markers()
        finally:
            job.status.clear_reason()
            yield from storage.write_last(job, state, reason)
            self._notify(state, reason)
            if job.folder.head:
                urgent = bool(job.reactor.signals)
                job.allocation.keep_mark(mark(job.folder.head), urgent=urgent)
            job.folder.release()
            if self.notices:
                self.notices.finish()
            job.log(f"set {job.layout.root.name}: {state}" + (f" ({reason})" if reason else ""))

    def _log_missing(self) -> int:
        """Return the number of missing runs, 1 if unknown."""
        job = self._job
        try:
            missing = len(job.folder.missing())
        except OSError as error:
            job.log(f"error: cannot read {error.filename or job.layout.root}: {error.strerror}")
            return 1
        if missing:
            runs = f"{missing} of {count(job.folder.record.nexp, 'run')} without a result"
            job.log(f"{runs}; `{job.resume_command}` tries them again")
        return missing

    # ---- the queue of runs ----

    def _next(self, group: Group) -> Flow:
        """Value: the group's next run; 0 at the end of queue or set."""
        waits = False
        while not self._job.ending.has_come():
            if run := next_run(self.queue, group.number):
                self._turn("take", group=group.number, run=run)
                return run
            if not self.queue.in_hand:
                return 0
            if not waits:
                self._job.write()  # no run on these nodes
            waits = True
            yield UNTIL_WOKEN  # another group may give up a run
        return 0

    def _give_back(self, group: Group, run: int, why: str) -> None:
        self._turn("gives", group=group.number, run=run, why=why)

    def _turn(self, word: str, **about: object) -> None:
        """Record a change of the queue in the first group's events; apply it."""
        apply(self.queue, self._job.groups[0].record.note(word, detail=about))

    def _prepare_run(self, group: Group, *, needs_renewal: bool) -> Flow:
        """Value: why no run starts, or "".

        Call it with a run in hand: nodes get ready for a run only.
        """
        job = self._job
        self.out_of_time = self._too_late(group) or self.out_of_time
        if self.out_of_time or not needs_renewal:
            return self.out_of_time
        yield from storage.wait(job)  # also for the nodes
        # Ends all processes of a dead run.
        yield from group.release()
        if not job.ending.state and (yield from self._make_ready(group)):
            return ""
        return f"the containers could not be renewed: {group.problem}"

    def _make_ready(self, group: Group) -> Flow:
        """Value: as of Group.make_ready."""
        if not (yield from group.make_ready()):
            return False
        yield from storage.retry(self._job, group.compare_with_runs)
        return not group.problem

    def _too_late(self, group: Group) -> str:
        """Return why no more runs start, or "".

        The shortest run so far counts. A job always starts its first run: after a clock step, known
        lengths may be far too long.
        """
        job = self._job
        if not job.status.run:
            return ""
        nexp = job.folder.record.nexp
        states = [job.folder.run_state(run) for run in range(1, nexp + 1)]
        took_ms = [
            state.end_ms - state.start_ms
            for state in states
            if state is not None and state.done and state.start_ms
        ]
        left_s = job.allocation.seconds_left() if took_ms else None
        needs_s = min(took_ms, default=0) / 1000
        if left_s is None or fits(left_s, needs_s):
            return ""
        group.record.note("late", detail={"left_s": left_s, "needs_s": needs_s})
        left = len(self.queue.missing) + 1
        return (
            f"{left} of {count(nexp, 'run')} left; a run takes {_time(needs_s)} at least, and "
            f"the job's time limit leaves {_time(left_s)}; "
            f"`{job.resume_command}` does them in another job"
        )

    def _died(self, group: Group, run: int, outcome: Outcome, *, hopeless: bool) -> str:
        """Return why the group stops, or ""."""
        self._job.log(f"run {run} attempt {group.record.last[1]} failed: {outcome.reason}")
        self._job.reactor.wake()  # perhaps for another group
        blamed = [group.blame(node, kind, reason) for node, kind, reason in outcome.blamed]
        # With a fresh node, the attempt does not count.
        has_fresh_node = any(blamed)
        if hopeless and not has_fresh_node:
            self._give_back(group, run, "back")
            return outcome.reason
        if not has_fresh_node and group.refuses_settings():
            self._give_back(group, run, "back")
            return f"settings refused at the start: {outcome.reason}"
        self._give_back(group, run, "free" if has_fresh_node else "died")
        if is_to_stop(self.queue, group.number):
            self._turn("stops", group=group.number)
            last = f"the last one of run {run}: {outcome.reason}"
            return f"{IN_A_ROW} attempts in a row died there, {last}"
        if run not in self.queue.missing and self.queue.missing and group.repeats():
            attempts = len(group.state.ends.ways)
            return f"{attempts} attempts died alike, soon after their start: {outcome.reason}"
        return ""

    # ---- groups side by side ----

    def _leave(self, group: Group, problem: str) -> Flow:
        """Release a group while others work and may use its healthy nodes. The last group stays."""
        job = self._job
        if job.ending.state or len(self.queue.groups) < 2:
            return
        self._turn("leaves", group=group.number)
        nodes = group.state.workers or group.state.allocated
        job.warn(f"no more runs on {' '.join(nodes)}: {problem}")
        yield from group.release()
        group.checks.remove_markers()
        if group.too_few:
            job.shared.add_nodes(place.unblemished(group.state))
        job.write()

    # ---- people ----

    def _notify(self, state: str, reason: str = "") -> None:
        """A failure never stops a set."""
        try:
            decision = self.notices.check(state, reason) if self.notices else None
            if decision and self._job.groups:
                self._job.groups[0].record.note("notify", detail=decision)
        except Exception as error:  # the set is worth more
            self._job.log(f"notify: {error!r}")
