"""A job that works on a set: it takes the set, holds the nodes, runs what is missing, and closes the set whatever happens."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ..kernel.events import EventLog
from ..kernel.flow import UNTIL_WOKEN, Flow, together
from ..kernel.layout import group_name
from ..kernel.settings import SettingsError, check_parts
from ..policy import place
from ..policy.job_state import fits
from ..policy.outcome import Outcome
from ..policy.queue import IN_A_ROW, Queue, apply, is_to_stop, next_run
from ..policy.reports import NodeReport
from ..set.folder import NO_ROOM, Folder, FolderError
from ..set.opening import open_folder
from ..set.settle import settle
from .attempt import Attempt
from .context import SetContext
from .group import Group
from .host import BatchHost
from .notice import Notices
from .slurm import job_nodes
from .storage import patiently, write_last

MEET_PART = 5
"""Groups wait for one another before their first runs, for this part of the time that a container may take: a minute by default."""


def main(bundle: Path, kind: str) -> int:
    """JobContext on a set; return 0 when every run of it has a result."""
    world = BatchHost()
    status: int = world.run(work(world, bundle, kind))
    return status


def work(world: BatchHost, bundle: Path, kind: str) -> Flow:
    """JobContext on a set in `world`; `kind` is slurm or local. Its value is 0 when every run of the set has a result."""
    try:
        settings = world.settings(bundle)
        world.share(settings.shared_group)
        check_parts(bundle, settings, deep=settings.preflight_deep == 1)
        scheduler = job_nodes(kind, settings, world, world.environment)
        folder = open_folder(bundle, settings, scheduler, world.environment, world)
        gone = yield from folder.taking(scheduler, lambda: _lost(folder, world))
    except (SettingsError, LookupError, FolderError) as error:
        world.log(f"error: {error}")
        return 1
    if gone:
        world.log(f"taking over from {gone}, which is gone")
    return (yield from SetJob(settings, scheduler, folder, world).work())


def _lost(folder: Folder, world: BatchHost) -> None:
    words = (
        "is not this job's any more: ending what is running, and writing nothing more into the set"
    )
    world.log(f"error: {folder.layout.loop_lock} {words}")
    world.interrupt()


class SetJob(SetContext):
    """One job of a set, from taking the set to letting it go."""

    groups: list[Group]
    queue: Queue
    notices: Notices
    late: set[int]
    """Groups of which it is not known yet whether they get nodes ready."""
    out_of_time = ""
    """Why no run is begun any more."""

    def work(self) -> Flow:
        """Run what is missing; the exit status."""
        state, reason, self.groups = "failed", "the loop ended unexpectedly, see the job output", []
        self.notices = Notices(self.bundle, self.settings, self.folder, self.job_id, self.world)
        try:
            self._verify_bundle()
            settle(self.folder)
            self.environment_file()
            self._divide()
            self.write("starting")
            state, reason = yield from self._flow()
        except (SettingsError, FolderError) as error:
            reason = str(error)
            self.log(f"error: {error}")
        except OSError as error:
            state = "paused"
            reason = f"cannot write to {error.filename or self.layout.root}: {error.strerror} ({NO_ROOM})"
            self.log(f"error: {reason}")
        finally:
            yield from self._finish(state, reason)
        return 0 if state == "complete" and not self._tell_missing() else 1

    def _tell_missing(self) -> int:
        try:
            missing = len(self.folder.missing())
        except OSError as error:
            self.log(f"error: cannot read {error.filename or self.layout.root}: {error.strerror}")
            return 1
        if missing:
            self.log(
                f"{missing} of {self.folder.record.nexp} runs have no result; `{self.resume_command}` tries them again"
            )
        return missing

    def _verify_bundle(self) -> None:
        kept = self.environment.get("ORCH_BUNDLE_SHA256", "")
        self.status.edit(self.folder.verify_bundle(kept))
        script = self.world.files.read_bytes(self.layout.bundle / "runtime_tunables.sh")
        self.environment["ORCH_TUNABLES_SHA256"] = hashlib.sha256(
            script
        ).hexdigest()  # nodes compare before root runs it
        if edited := self.status.edited:
            self.warn(f"the bundle was edited since it was made: {', '.join(edited[:8])}")

    def _divide(self) -> None:
        """Make the groups of nodes, as many as there are runs for, and the queue of these."""
        need, missing, allocated = (
            self.settings.nnodes,
            self.folder.missing(),
            self.scheduler.allocated,
        )
        groups, self.pool = place.groups(
            allocated, need, min(self.settings.side_by_side, len(missing))
        )
        self.late = set(range(1, len(groups) + 1))
        self.queue, self.side_by_side = Queue(), len(groups) > 1
        for number, nodes in enumerate(groups, 1):
            events = EventLog(self.layout.events(group_name(self.job_id, number)), self.world)
            self.groups.append(Group(self, nodes, number, events))
        self.active = [*self.groups]
        most = self.settings.max_attempts
        self._turn("runs", missing=missing, most=most, groups=sorted(self.late))
        spare = len(allocated) - need * len(groups)
        more = f", {len(groups)} side by side" * self.side_by_side + (
            f", {spare} to spare" if spare else ""
        )
        self.log(f"set {self.layout.root}: {self.folder.record.nexp} runs on {need} node(s){more}")

    def _flow(self) -> Flow:
        """JobContext on the set, with all groups of nodes side by side; (state, reason)."""
        problems = yield from together([self._work_on(group) for group in self.groups])
        if (
            self.ending and self.folder.missing()
        ):  # a signal may come when the last run has just ended
            self.ask_why()
            return self.ending, self.ending_reason
        if not self.queue.missing:
            self.status.complete(self.folder.record.nexp)
            return "complete", ""
        if self.out_of_time:
            return "time_limit", self.out_of_time
        return self._stopped(), "; ".join(dict.fromkeys(filter(None, problems)))

    def _stopped(self) -> str:
        """With results already, or with spares that are used up, it is only paused: another allocation may do better."""
        used_up = any(one.too_few for one in self.groups) and self.has_spares
        return "paused" if self.status.run or used_up or self.folder.has_results() else "failed"

    def _work_on(self, group: Group) -> Flow:
        """Have the nodes of a group ready and work on what is missing; why that cannot go on, or ""."""
        try:
            fit = not self.queue.missing or (yield from group.make_ready())
            self._is_here(group.number)
            problem = (yield from self._runs(group)) if fit else group.problem
            if problem:
                yield from self._leave(group, problem)
        except Exception as error:  # the other groups close what they have begun
            self.ending, self.ending_reason = (
                self.ending or "failed",
                self.ending_reason or str(error),
            )
            raise
        return problem

    def _runs(self, group: Group) -> Flow:
        """Run what is missing; why that cannot go on, or ""."""
        used = False
        while run := (yield from self._next(group)):
            # Not before there is something to run: a set that is done needs no nodes any more.
            self.out_of_time = self._too_late(group) or self.out_of_time
            if self.out_of_time:
                self._give_back(group, run, "back")
                return self.out_of_time
            if used:  # the nodes need the storage, too
                yield from patiently(self, lambda: None)
            if used and not (yield from self._renew(group)):
                self._give_back(group, run, "back")
                return f"the containers could not be renewed: {group.problem}"
            attempt = Attempt(self, group, run, self.folder.last_attempt(run) + 1)
            outcome = yield from attempt.play()
            used = not outcome.clean
            if outcome.outcome != "infrastructure":
                self._give_back(group, run, "result")
                self._tell("running")
                continue
            if problem := self._died(group, run, outcome, hopeless=attempt.is_hopeless):
                return problem
        return ""

    def _too_late(self, group: Group) -> str:
        """Return why no run is started any more; "" if one can end before the job's time limit.

        The length of a run is unknown until it has ended: only the shortest so far is certain to be
        too long. A job always starts its first run: after a clock step or a stalled loop the only
        known length may be far too long, and then no job would ever start another run.
        """
        if not self.status.run:
            return ""
        nexp = self.folder.record.nexp
        runs = [self.folder.run_state(run) for run in range(1, nexp + 1)]
        took_ms = [
            run.end_ms - run.start_ms
            for run in runs
            if run is not None and run.done and run.start_ms
        ]
        left_s = self.scheduler.seconds_left() if took_ms else None
        needs_s = min(took_ms, default=0) / 1000
        if left_s is None or fits(left_s, needs_s):
            return ""
        group.record.note("late", detail={"left_s": left_s, "needs_s": needs_s})
        left = len(self.queue.missing) + 1
        return (
            f"{left} of {nexp} runs are left; a run takes {needs_s / 60:.0f} min at least, "
            f"and the job's time limit leaves {left_s / 60:.0f}; "
            f"`{self.resume_command}` does them in another job"
        )

    def _died(self, group: Group, run: int, outcome: Outcome, *, hopeless: bool) -> str:
        """Take note of an attempt that died; why the group cannot go on, or ""."""
        self.log(f"run {run} attempt {group.at[1]} failed: {outcome.reason}")
        self.reactor.wake()  # the next attempt may be for another group
        blamed = [group.blame(node, kind, reason) for node, kind, reason in outcome.blamed]
        # An attempt that a bad node cost is not the run's, where a fresh one takes its rank.
        free = any(blamed)
        if hopeless and not free:
            self._give_back(group, run, "back")
            return outcome.reason
        self._give_back(group, run, "free" if free else "died")
        if is_to_stop(self.queue, group.number):
            self._turn("stops", group=group.number)
            return f"{IN_A_ROW} attempts in a row died there, the last one of run {run}: {outcome.reason}"
        if run not in self.queue.missing and self.queue.missing and group.repeats():
            return f"{len(group.cluster.ways)} attempts died alike, soon after their start: {outcome.reason}"
        return ""

    def _next(self, group: Group) -> Flow:
        """The next run for a group; 0 when nothing is left to run, or the set is ending."""
        waits = False
        while not self.is_ending():
            if run := next_run(self.queue, group.number):
                self._turn("take", group=group.number, run=run)
                return run
            if not self.queue.in_hand:
                return 0
            if not waits:
                self.write()  # that there is no run on these nodes
            waits = True
            yield UNTIL_WOKEN  # another group may have to give up a run
        return 0

    def _give_back(self, group: Group, run: int, why: str) -> None:
        self._turn("gives", group=group.number, run=run, why=why)

    def _turn(self, word: str, **about: object) -> None:
        """Put on record what becomes of the queue, and let it count."""
        apply(self.queue, self.groups[0].record.note(word, detail=about))

    def _renew(self, group: Group) -> Flow:
        """New containers on all nodes; what a dead run left behind in the old ones is gone with them."""
        yield from group.release()
        return not self.ending and (yield from group.make_ready())

    def _leave(self, group: Group, problem: str) -> Flow:
        """Let a group end alone, if others are at work: they can have its good nodes. The last one stays until the job ends."""
        if self.ending or len(self.queue.groups) < 2:
            return
        self._turn("leaves", group=group.number)
        self.warn(
            f"no more runs on {' '.join(group.cluster.workers or group.cluster.allocated)}: {problem}"
        )
        yield from group.release()
        group.checks.clear()
        self.active.remove(group)
        self.pool += place.healthy(group.cluster) if group.too_few else []
        self.write()

    def _is_here(self, group: int) -> None:
        self.late.discard(group)
        self.reactor.wake()

    def meet(self, group: int) -> Flow:
        """Wait until the other groups have their first nodes ready, too, or cannot; not for long: their runs are not ours.

        What those have that go ahead is the experiment: who comes later has to be like them.
        """
        self._is_here(group)
        deadline = self.world.now() + self.settings.container_start_s / MEET_PART
        while self.late and not self.ending:
            if self.world.now() >= deadline:
                self.behind |= self.late
                return
            yield deadline

    def others(self, group: int) -> dict[str, NodeReport]:
        """Return what the nodes told that are ready in other groups; to one that is behind, in those that went ahead."""
        others = (
            {one.number for one in self.active}
            - {group}
            - (self.behind if group in self.behind else set())
        )
        reports = {
            node: one.cluster.reports[node]
            for one in self.active
            for node in one.cluster.workers
            if one.number in others and node in one.cluster.reports
        }
        return {node: report for node, report in reports.items() if "ready" in report.messages}

    def note_ending(self, decided: dict[str, Any]) -> None:
        """Put on record why the set is closed."""
        for group in self.groups[:1]:
            group.record.note("ending", detail=decided)

    def _tell(self, state: str, reason: str = "") -> None:
        """Tell people what is due. That nobody could be told never stops a set."""
        try:
            if (decided := self.notices.look(state, reason)) and self.groups:
                self.groups[0].record.note("notify", detail=decided)
        except Exception as error:  # a message is worth less than the set
            self.log(f"notify: {error!r}")

    def _finish(self, state: str, reason: str) -> Flow:
        self.ending = self.ending or "closing"
        try:
            yield from together([group.release() for group in self.groups])
            for group in self.groups:
                group.checks.clear()
        finally:
            self.status.forget_reason()
            yield from write_last(self, state, reason)
            self._tell(state, reason)
            self.folder.let_go()
            self.notices.finish()
            self.log(f"set {self.layout.root.name}: {state}" + (f" ({reason})" if reason else ""))
