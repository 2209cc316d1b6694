"""Settle a complete set in place of the next job, which does not come any more."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.errors import SchedulerError
from orchestrator.evidence.sets import RunSet
from orchestrator.onnode.kernel.world import THIS, World
from orchestrator.onnode.set import ledger
from orchestrator.onnode.set.folder import Folder, FolderError
from orchestrator.onnode.set.lease import HeldError, Lease
from orchestrator.onnode.set.settle import settle
from orchestrator.scheduler.job import Scheduler


def settle_complete_set(
    run_set: RunSet,
    scheduler: Scheduler,
    cluster: str = "",
    note: Callable[[str], object] = lambda _: None,
    world: World = THIS,
) -> None:
    """Settle the remains of killed jobs and commands in a set without missing runs.

    A live job keeps its set. `note` gets a line if the storage refuses. Needs the
    controller's lock.
    """

    def sees(job_id: str) -> bool | None:
        try:
            jobs = scheduler.jobs(ids=[job_id])
        except SchedulerError:
            return None
        return job_id in jobs and jobs[job_id].alive

    layout = run_set.layout
    lease = Lease(layout.loop_lock, world.holder(cluster=cluster), sees=sees, world=world)
    folder = Folder(layout, run_set.record, job_id="", world=world, lease=lease)
    try:
        if ledger.declared(ledger.read(layout.root, world.files)[0]) is None:
            return  # of an older version: jobs declare their sets, commands do not
        lease.take()
        try:
            settle(folder)
        finally:
            lease.release()
    except HeldError:
        return
    except (OSError, FolderError) as error:
        note(f"note: {layout.root} could not be settled: {error}")
