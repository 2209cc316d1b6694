"""A set's folder (docs/set-folder.md), written by the job that has taken it: states, results,
ledger.

A published result is final: nothing here replaces it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Protocol

from ..kernel import records
from ..kernel.files import Files, is_same, is_temporary, raise_if_away
from ..kernel.layout import Layout
from ..kernel.program import Program, walk
from ..kernel.records import RunRecord, SetRecord, StateFile
from ..kernel.waiting import Flow
from ..kernel.walk import SetWalk
from ..kernel.world import THIS, World
from ..policy.experiment import Facts
from ..policy.experiment_facts import of_run, parse_facts
from . import bundle as bundle_files
from . import ledger
from .lease import HeldError, Lease, remove_abandoned, remove_unfinished
from .submissions import settle_own

NO_ROOM = "disk full, quota, or the folder is missing"


class FolderError(Exception):
    """The set cannot be used."""


class SameJobError(FolderError):
    """This job already works on the set, from `node`."""

    def __init__(self, node: str, text: str) -> None:
        super().__init__(text)
        self.node = node


class TakingJob(Protocol):
    """The job that works on a set: JobAllocation (loop/allocation.py)."""

    name: str
    """The scheduler's name."""
    job_id: str
    cluster: str
    restart: int

    def sees(self, job_id: str) -> bool | None: ...


@dataclass
class Folder:
    """A set folder for job `job_id`, which writes only while it has the set."""

    layout: Layout
    record: SetRecord
    job_id: str
    world: World = THIS
    lease: Lease | None = None
    head: str = ""
    """The ledger's head after this job's records."""

    @property
    def files(self) -> Files:
        return self.world.files

    @property
    def _walk(self) -> SetWalk:
        return SetWalk(self.layout.root, self.files, raise_if_away)

    # ---- runs and attempts, read ----

    def run_state(self, run: int, *, strict: bool = False) -> RunRecord | None:
        """None without a usable state. `strict`: as in records.read."""
        state = records.read(RunRecord, self.layout.run_state(run), self.files, strict=strict)
        return state if isinstance(state, RunRecord) else None

    def is_done(self, run: int) -> bool:
        """Raises OSError: a failed read must not repeat a run."""
        state = self.run_state(run, strict=True)
        return state is not None and state.done

    def start_facts(self, *, inside: bool = False) -> list[tuple[int, Facts]]:
        """Return the facts of each run that counts, at its start and end; `inside`: only the
        content at the end. Raises OSError."""
        states = (self.run_state(run, strict=True) for run in range(1, self.record.nexp + 1))
        done = [state for state in states if state is not None and state.done]
        if inside:
            return [(state.run, of_run(state.inside)) for state in done]
        at_end = [(state.run, of_run(state.inside)) for state in done]  # code may be compiled there
        return [(state.run, self._facts_of(state)) for state in done] + at_end

    def _facts_of(self, state: RunRecord) -> Facts:
        path = self.layout.start_table(state.run, state.attempt)
        try:
            table = self.files.read_bytes(path)
        except OSError as error:
            raise_if_away(path, error)
            return {}
        return parse_facts(table.decode("utf-8", "replace"))

    def missing(self) -> list[int]:
        """Return the runs without a final result. Raises OSError."""
        return [run for run in range(1, self.record.nexp + 1) if not self.is_done(run)]

    def last_attempt(self, run: int) -> int:
        """0 without an attempt. Raises OSError."""
        return max(self.attempts(run), default=0)

    def has_results(self) -> bool:
        """Raises OSError."""
        runs = range(1, self.record.nexp + 1)
        return any(self.files.has_name(self.layout.result(run)) for run in runs)

    def attempts(self, run: int) -> list[int]:
        """Return a run's attempts. Raises OSError."""
        return self._walk.attempts(run)

    def ranks(self, run: int, attempt: int, suffix: str) -> list[int]:
        """Return the ranks with such a file. Raises OSError."""
        return self._walk.ranks(run, attempt, suffix)

    # ---- runs and attempts, written ----

    def begin(self, state: RunRecord) -> None:
        """Create a running attempt's folder, again after an error. Raises FolderError, OSError."""
        self.check_mine()
        attempt, is_new = self.layout.attempt(state.run, state.attempt), True
        try:
            self.files.make_folder(attempt)
        except FileExistsError:
            if not self._has_made(state):
                raise
            is_new = False
        try:
            for path in self._states(state):
                self.write(state, path, sync=False)
        except OSError:
            if is_new and self.is_mine:  # it may have stood still meanwhile
                self.files.remove_tree(attempt)
            raise
        # From here on the attempt stays: even if this fails, it may be on record.
        self.record_that(ledger.attempt_started(state), once=True)

    def _has_made(self, state: RunRecord) -> bool:
        """Return whether an earlier try has made the attempt's folder. Raises OSError."""
        path = self.layout.attempt_state(state.run, state.attempt)
        names = [name for name in self.files.names(path.parent) if not is_temporary(name)]
        if not names:
            return True
        state_there = records.read(RunRecord, path, self.files, strict=True)
        return names == [path.name] and state_there == state

    def close(self, state: RunRecord, rank: int | None) -> None:
        """Publish the log of `rank`, if given, as the run's result; write final states.

        The ledger comes first: the next job completes the rest. The result precedes states that
        refer to it. Everything final is on the disk before it is visible. Raises FolderError,
        OSError.
        """
        ended = ledger.attempt_ended(state)
        if rank is not None:
            self.publish(state.run, state.attempt, rank, ended)
        else:
            self.record_that(ended, once=True)
        for path in self._states(state):
            self.write(state, path)

    def write(self, record: StateFile, path: Path, *, sync: bool = True) -> None:
        """Raises FolderError, OSError."""
        self.check_mine()
        records.write(record, path, sync=sync, files=self.files)

    def put(self, path: Path, content: bytes) -> None:
        """Write a file that is no record. Raises FolderError, OSError."""
        self.check_mine()
        records.replace(path, content, files=self.files)

    def _states(self, state: RunRecord) -> tuple[Path, Path]:
        run, attempt = state.run, state.attempt
        return self.layout.attempt_state(run, attempt), self.layout.run_state(run)

    def publish(self, run: int, attempt: int, rank: int, *new: ledger.NewRecord) -> None:
        """Record a log and `new` records, then make the log its run's result. Raises FolderError,
        OSError."""
        layout, files = self.layout, self.files
        result = layout.result(run)
        temporary = layout.run(run) / f".result.tmp.{self.world.token()}"
        logs = layout.cache_log(run, attempt), layout.node_log(run, attempt, rank)
        try:
            files.join(temporary, logs)
            self.check_mine()  # the log may be long
            if files.has_name(result):
                raise FolderError(
                    f"{result} is there already; a published result is never replaced"
                )
            # A job killed before `_put_in_place` has recorded it already: hence `once`.
            published = ledger.published(temporary, run, attempt, rank, files)
            self.record_that(*new, published, once=True)
            self._put_in_place(temporary, result)
        finally:
            files.remove(temporary)
        self.link(run)

    def _put_in_place(self, temporary: Path, result: Path) -> None:
        """Raises OSError, FolderError if the result exists already."""
        try:
            self.files.link(temporary, result)  # fails if it exists already
        except OSError as error:
            if is_same(temporary, result, self.files):
                pass  # the server's reply was lost
            elif self.files.has_name(result):
                problem = f"{result} is there already; a published result is never replaced"
                raise FolderError(problem) from error
            else:
                self.files.rename(temporary, result)  # a file system without hard links
        self.files.sync_folder(result.parent)

    def link(self, run: int) -> None:
        """Link a run's result from results/. Raises OSError."""
        link = self.layout.result_link(run)
        if not self.files.has_name(link):
            with suppress(FileExistsError):  # asked again after a lost reply
                self.files.point(link, f"../runs/{run}/result_{run}.txt")

    # ---- the records ----

    def record_that(self, *new: ledger.NewRecord, once: bool = False) -> None:
        """Append to the set's ledger; `once`: only new records. Raises FolderError, OSError."""
        root, world = self.layout.root, self.world
        cluster = self.lease.me.cluster if self.lease else ""
        try:
            self.head = ledger.append(
                root,
                *new,
                job=self.job_id,
                cluster=cluster,
                once=once,
                confirm=self.check_mine,
                world=world,
            )
        except HeldError as held:
            raise OSError(errno.EBUSY, f"the ledger is held: {held}", str(held.path)) from held

    def verify_bundle(self, kept: str) -> tuple[list[str], Program]:
        """Return the files with accepted edits, and the bundle as verified.

        `kept`: its hash in the environment since the submission, "" for a job started by hand.
        Raises FolderError for a bundle neither declared nor accepted; OSError.
        """
        bundle, record = self.layout.bundle, self.record
        contents = dict(walk(bundle))
        program = Program({name: text for name, text in contents.items() if text is not None})
        hashes = dict.fromkeys(contents, "no file") | bundle_files.hashes_of(program.files)
        manifest = program.files.get(bundle_files.MANIFEST, b"")
        now = bundle_files.changed_from(manifest, hashes, record.bundle_sha256)
        meant = bundle_files.accepted(ledger.read(self.layout.root, self.files)[0])
        missing, edited = bundle_files.unexpected(now, meant)
        resume = f"orchestrator resume {quote(str(self.layout.root))}"
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            raise FolderError(
                f"{bundle_files.named(missing)} of the bundle {verb} missing; to put back what was "
                f"declared: {resume}"
            )
        if edited:
            raise FolderError(
                f"the bundle was edited since it was declared: {bundle_files.named(edited)}; "
                f"if that is meant: {resume} --edited"
            )
        if kept and bundle_files.digest(hashes) != kept:
            raise FolderError(
                "the bundle was edited since this job was submitted; `orchestrator resume` submits "
                "it anew"
            )
        if now != meant:  # edited files are as declared again: the next runs are not of the edit
            self.record_that(("edit", {"files": now}))
        return sorted(now), program

    def carry(self, program: Program) -> Program:
        """Like bundle.keep, but raises FolderError, OSError."""
        try:
            return bundle_files.keep(program, self.layout, self.files)
        except ValueError as error:
            raise FolderError(f"{self.layout.bundle}/{error}") from error

    # ---- one job at a time ----

    def taking(self, job: TakingJob, lost: Callable[[], object] = lambda: None) -> Flow:
        """Take the set for this job; return its dead former holder, or "". Raises FolderError at
        once if another job works on it; waits only for the silence of a holder whose job the
        scheduler does not show. `lost`: see Lease."""
        lock = self.layout.loop_lock
        me = self.world.holder(job.job_id, job.cluster, job.restart)
        self.lease = Lease(lock, me, sees=job.sees, lost=lost, world=self.world)
        try:
            gone = yield from self.lease.taking(wait=True)
        except HeldError as held:
            text = (
                f"{held.holder} is already working on {self.layout.root}: {held.verdict.why}"
                f" (if it has certainly ended: rm {quote(str(lock))})"
            )
            other = held.holder
            if (other.job, other.cluster, other.restart) == (me.job, me.cluster, me.restart):
                raise SameJobError(held.holder.host, text) from held
            raise FolderError(text) from held
        except OSError as error:
            causes = "disk full, quota, or a read-only file system"
            raise FolderError(
                f"cannot write {lock} ({causes}): {error.strerror or error}"
            ) from error
        return str(gone) if gone else ""

    @property
    def is_mine(self) -> bool:
        """A loop given up by Slurm may outlive its successor."""
        try:
            return self.lease is not None and self.lease.mine
        except OSError:
            return False

    @property
    def is_lost(self) -> bool:
        """True only if certain: unavailable storage proves nothing."""
        try:
            is_there = self.files.state(self.layout.root) is not None
            return is_there and (self.lease is None or not self.lease.mine)
        except OSError:
            return False

    def check_mine(self) -> None:
        """Raise FolderError if another job has the set, OSError if unknown."""
        if self.lease is None or not self.lease.mine:
            problem = "is not this job's any more: another job has the set, or had it"
            raise FolderError(f"{self.layout.loop_lock} {problem}")

    def release(self) -> None:
        """Leave the set to the next job."""
        if self.lease is None:
            return
        if self.is_mine:
            sweep(self.layout, self.world)
            with suppress(OSError):
                settle_own(self.layout, self.job_id, self.lease.me.cluster, self.world)
        self.lease.release()
        remove_abandoned(self.world)


BUNDLE_COPY = ".bundle.tmp."
"""Prefix of unfinished copies."""


def sweep(layout: Layout, world: World) -> None:
    """Remove killed programs' unfinished files from a set, as far as possible."""
    for folder in _folders(layout, world.files):
        with suppress(OSError):
            for name in world.files.names(folder):
                if name.startswith(BUNDLE_COPY):  # the set has its bundle: nobody copies it now
                    world.files.remove_tree(folder / name)
                elif is_temporary(name):
                    world.files.remove(folder / name)
    with suppress(OSError):
        remove_unfinished(layout.loop_lock, world)


def _folders(layout: Layout, files: Files) -> list[Path]:
    folders = [layout.root, layout.jobs, layout.preflight, *_below(layout.nodes, files)]
    for run in _below(layout.runs, files):
        attempts = _below(run, files)
        folders += [run, *attempts, *(attempt / "hang" for attempt in attempts)]
    return folders


def _below(folder: Path, files: Files) -> list[Path]:
    try:
        return [folder / name for name in sorted(files.names(folder)) if "." not in name]
    except OSError:
        return []
