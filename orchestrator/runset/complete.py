"""Settle a complete set: no further job does it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from orchestrator.errors import SchedulerError
from orchestrator.evidence.sets import RunSet, SetEvidence
from orchestrator.onnode.kernel.files import make_below
from orchestrator.onnode.kernel.records import RunRecord, read
from orchestrator.onnode.kernel.world import THIS, World
from orchestrator.onnode.set import ledger
from orchestrator.onnode.set.folder import Folder, FolderError, sweep
from orchestrator.onnode.set.lease import HeldError, Lease
from orchestrator.onnode.set.settle import Settling, as_failed, last_seen_ms
from orchestrator.scheduler.job import Scheduler


def settle_complete_set(
    run_set: RunSet,
    scheduler: Scheduler,
    note: Callable[[str], object] = lambda _: None,
    world: World = THIS,
) -> None:
    """Settle the remains of killed jobs and commands in a set without missing runs.

    Only jobs add attempts and results to the ledger. `note` gets a line if the last job's state
    changes, a live process holds the set, or the storage refuses. Needs the controller's lock.
    """

    def sees(job_id: str) -> bool | None:
        try:
            job = scheduler.job(job_id)
        except SchedulerError:
            return None
        return job is not None and job.alive

    layout = run_set.layout
    me = world.holder(cluster=scheduler.cluster())
    lease = Lease(layout.loop_lock, me, sees=sees, world=world)
    folder = Folder(layout, run_set.record, job_id="", world=world, lease=lease)
    try:
        if ledger.declared(ledger.read(layout.root, world.files)[0]) is None:
            return  # of an older version: jobs declare their sets, commands do not
        lease.take()
        try:
            restore(folder)
            _remove_ledger_lock(folder)
            _close_jobs(folder, note)
            _restore_links(folder)
        finally:
            lease.release()
    except HeldError as held:
        note(f"note: the set is not settled: {held.holder} holds it; {held.verdict.why}")
    except FolderError as error:
        note(f"note: {error}")
    except OSError as error:
        path = error.filename or layout.root
        note(f"note: {path}: {error.strerror or error}; the set could not be settled")


def restore(folder: Folder) -> None:
    """Write lost states of attempts as the ledger has them. Raises OSError, FolderError."""
    folder.check_mine()
    sweep(folder.layout, folder.world)
    settling = Settling(folder)
    for run in range(1, folder.record.nexp + 1):
        for attempt in settling.attempts(run):
            _restore(folder, settling, run, attempt)


def _restore(folder: Folder, settling: Settling, run: int, attempt: int) -> None:
    """Write an attempt's end as the ledger has it, if its state is lost. Raises FolderError,
    OSError."""
    path = folder.layout.attempt_state(run, attempt)
    state = read(RunRecord, path, folder.files, strict=True)
    is_final = (
        isinstance(state, RunRecord)
        and (state.run, state.attempt) == (run, attempt)
        and state.state != "running"
    )
    ended = None if is_final else settling.on_record(run, attempt)
    if ended is not None:
        make_below(folder.layout.root, path.parent, folder.files)
        folder.write(ended, path)


def _restore_links(folder: Folder) -> None:
    folder.check_mine()
    make_below(folder.layout.root, folder.layout.results, folder.files)
    for run in range(1, folder.record.nexp + 1):
        if folder.files.exists(folder.layout.result(run)):
            folder.link(run)


def _remove_ledger_lock(folder: Folder) -> None:
    """Remove the ledger's lock if its writer is dead. Raises OSError."""
    path = folder.layout.root / ledger.LOCK
    if not folder.files.exists(path):
        return
    lease = Lease(path, folder.world.holder(), world=folder.world)
    with suppress(HeldError):
        lease.take(beat=False)
        lease.release()


def _close_jobs(folder: Folder, note: Callable[[str], object]) -> None:
    """Close the records of dead jobs; the last job has completed the set. Raises FolderError,
    OSError."""
    layout, evidence = folder.layout, SetEvidence(folder.layout.root)
    names = set(folder.files.names(layout.jobs)) if evidence.jobs else set()
    for job in evidence.jobs:
        closed = job
        if job is evidence.job and not job.final:
            note(f"note: all runs are done; job {job.job_id} is recorded as complete")
            ended_ms = job.ended_ms or last_seen_ms(folder, job)
            closed = replace(job, state="complete", reason="", ended_ms=ended_ms)
        elif not job.ended_ms:
            closed = as_failed(folder, job)
        if closed != job and f"{job.job_id}.json" in names:  # an id may name another folder
            folder.write(closed, layout.job(job.job_id))
