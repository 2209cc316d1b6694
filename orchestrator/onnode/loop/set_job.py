"""A set's job."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import Any

from ..kernel import records
from ..kernel.program import Program
from ..kernel.records import JobRecord, RunRecord
from ..kernel.settings import Settings
from ..kernel.waiting import Flow
from ..policy.experiment import (
    FactChange,
    changes,
    judge_end,
    judge_start,
    known,
)
from ..policy.experiment_facts import INSIDE, list_differences
from ..policy.place import waiting_now
from ..policy.reports import NodeReport
from ..set.folder import Folder, FolderError
from .allocation import JobAllocation
from .batch_job import BatchJob
from .ending import SetEnding
from .group import Group
from .host import BatchHost

MEET_DIVISOR = 5
"""A group awaits the others before its first run for `container_start_s` / MEET_DIVISOR: a minute
by default. Containers' starts differ by less."""


class JobStatus:
    """For a job's record. `started_ms`: Unix milliseconds."""

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.state = self.reason = ""
        self.run = self.attempt = 0
        """The last started attempt; 0 before the first."""
        self.warnings: list[str] = []
        self.excluded: list[dict[str, Any]] = []
        """Excluded nodes, and blamed nodes: used only if too few others are left."""
        self.edited: list[str] = []
        """The bundle's files with accepted edits."""
        self._problem = ""

    def update(self, state: str = "", reason: str = "") -> None:
        """Set state and reason; "" keeps a value."""
        self.state = state or self.state
        self.reason = reason or self.reason

    def clear_reason(self) -> None:
        self.reason = ""

    def start(self, run: int, attempt: int) -> None:
        self.run, self.attempt = run, attempt

    def end_at(self, run: int) -> None:
        """Show `run` as the last, whoever did it."""
        self.run = run

    def warn(self, text: str) -> bool:
        """Return whether the warning is new."""
        is_new = text not in self.warnings
        if is_new:
            self.warnings.append(text)
        return is_new

    def edit(self, files: Sequence[str]) -> None:
        self.edited = list(files)

    def fail_to_write(self, problem: str) -> bool:
        """Keep `problem`, or ""; return whether it is new."""
        is_new = problem not in ("", self._problem)
        self._problem = problem
        return is_new


class SetJob(BatchJob):
    """A job of a set, which keeps its record."""

    ending: SetEnding

    def __init__(
        self,
        program: Program,
        settings: Settings,
        allocation: JobAllocation,
        folder: Folder,
        world: BatchHost,
    ) -> None:
        super().__init__(program, settings, folder.layout, world)
        self.allocation, self.folder, self.job_id = allocation, folder, allocation.job_id
        self.status = JobStatus(world.wall_ms())
        self.groups: list[Group] = []
        """Also those that take no more runs (see `active`)."""
        self.unique: frozenset[str] = frozenset()
        """The runs' variables that differ per job."""
        self._run_environment = b""
        self.ending = SetEnding(self.reactor, allocation, self._announce_end, self._record_end)

    @property
    def can_replace_nodes(self) -> bool:
        """More nodes than a group needs; side by side, those of a group that stops."""
        return len(self.allocation.allocated) > self.settings.nnodes

    @property
    def resume_command(self) -> str:
        return f"orchestrator resume {quote(str(self.layout.root.name))}"

    def verify_bundle(self) -> None:
        """Take the set's bundle, and note its accepted edits. Raises FolderError, OSError."""
        kept = self.environment.get("ORCH_BUNDLE_SHA256", "")
        edited, program = self.folder.verify_bundle(kept)
        self.status.edit(edited)
        if not self.program.archive:  # started by hand, perhaps from another bundle
            self.program = self.folder.carry(program)
        elif self.program.files != program.files:
            raise FolderError(
                "the bundle was edited since this job was submitted; `orchestrator resume` submits "
                "it anew"
            )
        if edited:
            self.warn(f"the bundle was edited since it was declared: {', '.join(edited[:8])}")

    def environment_file(self) -> None:
        """Write the runs' environment. Raises SettingsError, FolderError, OSError."""
        text, self.unique = self.world.config(self.program, self.settings, self.folder.record.nexp)
        self._run_environment = text
        self.folder.put(self.layout.environment, text)
        sha256 = self.take_environment(text)
        # Each job keeps its own, with its unique values.
        kept = gzip.compress(text, mtime=0)
        self.folder.put(self.layout.job_environment(self.job_id, self.allocation.restart), kept)
        entry = {
            "job_id": self.job_id,
            "restart": self.allocation.restart,
            "environment": sha256,
            "edited": self.status.edited,
            "program": self.program.sha256,
        }
        self.folder.record_that(("job", entry), once=True)

    def run_environment(self) -> bytes:
        """Return it; write a lost file anew. Raises FolderError, OSError."""
        if not self.world.files.exists(self.layout.environment):
            self.folder.put(self.layout.environment, self._run_environment)
        return self._run_environment

    # ---- groups side by side ----

    @property
    def active(self) -> list[Group]:
        """The groups at work."""
        return [group for group in self.groups if group.number in self.shared.queue.groups]

    def arrive(self, group: int) -> None:
        """Let the other groups start: `group` is ready, or never will be."""
        self.shared.arrive(group)
        self.reactor.wake()

    def meet(self, group: int) -> Flow:
        """Await the other groups' first nodes, within a limit: later nodes must be like those of
        the first runs."""
        self.arrive(group)
        deadline = self.world.now() + self.settings.container_start_s / MEET_DIVISOR
        while self.shared.awaited and not self.ending.state:
            if self.world.now() >= deadline:
                self.shared.leave_behind()
                return
            yield deadline

    def others(self, group: int) -> dict[str, NodeReport]:
        """Return the reports of ready nodes to compare with."""
        reports = {}
        for other in self.active:
            if not self.shared.is_reference(other.number, group):
                continue
            for node in other.state.workers:
                report = other.state.reports.get(node)
                if report is not None and "ready" in report.messages:
                    reports[node] = report
        return reports

    # ---- one experiment ----

    def compare_with_runs(
        self, facts: Mapping[str, Mapping[str, str]], note: Callable[[dict[str, Any]], object]
    ) -> str:
        """Raises OSError."""
        before = known(self.folder.start_facts())
        policy = self.settings.changes
        verdict = judge_start(facts, before, policy)
        if not (verdict.problem or verdict.warnings):
            return ""
        nodes = list(facts)
        note({"nodes": nodes, "known": before, "changes": policy, **verdict._asdict()})
        detail = self._list_changes(changes(facts, before))
        if verdict.problem:
            hint = f"`{self.resume_command} --allow-changes` runs all the same"
            return f"{verdict.problem}{detail} ({hint})"
        texts = [verdict.warnings[0] + detail, *verdict.warnings[1:]]
        for warning in texts:
            self.warn(warning)
        self.record_change(texts)
        return ""

    def _list_changes(self, differences: Sequence[FactChange]) -> str:
        """Return changes in containers, as the end of a sentence."""
        inside = [change for change in differences if change.field.startswith(INSIDE)]
        texts = [
            self._list_differences(change.field, change.before, change.value) for change in inside
        ]
        return "".join(f": {text}" for text in dict.fromkeys(filter(None, texts)))

    def compare_after(self, state: RunRecord, inside: Mapping[str, Mapping[str, str]]) -> str:
        """Compare containers at a run's end with earlier runs; return the difference, or "". Raises
        OSError."""
        runs = self.folder.start_facts(inside=True)
        before = known(facts for facts in runs if facts[0] != state.run)
        text = judge_end(state.run, inside, before, self._list_differences)
        if text:
            self.warn(text)
            self.record_change([text], state.run, state.attempt)
        return text

    def _list_differences(self, field: str, old: str, new: str) -> str:
        """ "" if a list is missing."""
        files, part = self.world.files, field[len(INSIDE) :]
        try:
            before, after = (files.read_bytes(self.layout.inside(part, sha)) for sha in (old, new))
        except OSError:
            return ""
        return list_differences(before.decode("utf-8", "replace"), after.decode("utf-8", "replace"))

    def record_change(self, texts: Sequence[str], run: int = 0, attempt: int = 0) -> None:
        """Put changes of the experiment into the ledger. Raises OSError."""
        about = {"job_id": self.job_id, "run": run, "attempt": attempt, "texts": list(texts)}
        self.folder.record_that(("change", about), once=True)

    # ---- the job's record ----

    def write(self, state: str = "", reason: str = "") -> bool:
        """Return True also if another job has the set: nothing is written."""
        status, path = self.status, self.layout.job(self.job_id)
        status.update(state, reason)
        if not self.folder.is_mine:
            return self.folder.is_lost
        is_final = status.state in JobRecord.FINAL
        try:
            record = self._job_record(is_final=is_final)
            records.write(record, path, sync=is_final, files=self.world.files)
        except OSError as error:
            text = f"error: cannot write {path}: {error.strerror}"
            if status.fail_to_write(text):
                self.log(text)
            return False
        status.fail_to_write("")
        return True

    def _job_record(self, *, is_final: bool) -> JobRecord:
        status, now_ms = self.status, self.world.wall_ms()
        states = [group.state for group in self.active]
        planned = self.allocation.allocated[: self.settings.nnodes * max(1, len(states))]
        workers = [node for state in states for node in state.workers]
        waiting = [node for state in states for node in waiting_now(state)]
        groups = [_group_entry(group) for group in self.active]
        return JobRecord(
            job_id=self.job_id,
            state=status.state,
            reason=status.reason,
            host=self.world.host,
            pid=self.world.pid,
            started_ms=status.started_ms,
            updated_ms=now_ms,
            ended_ms=now_ms if is_final else 0,
            nodes=workers or list(planned),
            run=status.run,
            attempt=status.attempt,
            image_digest=self.shared.image,
            engine=self.settings.engine,
            spares=[*waiting, *self.shared.pool],
            set_aside=status.excluded,
            warnings=status.warnings,
            groups=groups if len(self.groups) > 1 and not is_final else [],
            ledger=self.folder.head,
            edited=status.edited,
        )

    def warn(self, text: str) -> None:
        if self.status.warn(text):
            self.log(f"WARNING: {text}")

    def exclude(self, node: str, kind: str, reason: str, last: tuple[int, int]) -> None:
        self.log(f"node {node} is excluded: {reason}")
        self._record_aside(node, kind, reason, last)

    def blame(self, node: str, kind: str, reason: str, last: tuple[int, int]) -> None:
        self.log(f"node {node} is used only if too few others are left: {reason}")
        self._record_aside(node, kind, reason, last)

    def _record_aside(self, node: str, kind: str, reason: str, last: tuple[int, int]) -> None:
        entry = {"node": node, "kind": kind, "reason": reason, "run": last[0], "attempt": last[1]}
        self.status.excluded.append({**entry, "time_ms": self.world.wall_ms()})

    # ---- the end of the job ----

    def take_signals(self) -> None:
        self.ending.take_signals()

    def _announce_end(self) -> None:
        state, reason = self.ending.state, self.ending.reason
        self.log(f"{reason}: closing the set; `{self.resume_command}` continues")
        # First: time may not suffice for more.
        if self.status.state:
            self.write(state, reason)

    def _record_end(self, decision: dict[str, Any]) -> None:
        for group in self.groups[:1]:
            group.record.note("ending", detail=decision)


def _group_entry(group: Group) -> dict[str, Any]:
    run, attempt = group.record.last if group.is_at_work else (0, 0)
    return {"nodes": group.state.workers, "run": run, "attempt": attempt}
