"""Waiting for storage: full, read-only or unreachable."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from ..kernel.files import AWAY
from ..kernel.records import RunRecord
from ..kernel.waiting import Flow
from ..set.folder import FolderError
from .set_job import SetJob

WAITS = "waiting for storage"
RETRY_S = 5.0
_PASSES = AWAY | {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOENT}
"""Full, over quota, read-only, not mounted: may pass."""


def closer(job: SetJob, state: RunRecord, rank: int | None) -> Callable[[], None]:
    """Return a function to retry: it may publish the result, then find no room for states."""
    tried = False

    def close() -> None:
        nonlocal tried
        # By an earlier call: with an older result the first call fails.
        published = tried and job.world.files.exists(job.layout.result(state.run))
        tried = True
        job.folder.close(state, None if published else rank)
        if rank is not None:
            job.folder.link(state.run)

    return close


def write_last(job: SetJob, state: str, reason: str) -> Flow:
    """Write a job's last state. A complete set awaits the storage: no job will follow."""
    now = job.world.now
    deadline = now() + job.settings.storage_wait_s
    while True:
        is_last = bool(job.reactor.signals) or now() >= deadline  # it may stand still meanwhile
        if job.write(state, reason) or state != "complete" or is_last:
            return
        yield min(now() + RETRY_S, deadline)


def wait(job: SetJob) -> Flow:
    """Raises OSError after `storage_wait_s`."""
    yield from retry(job, lambda: None)


def retry(job: SetJob, action: Callable[[], object]) -> Flow:
    """Retry while the set's storage fails, up to `storage_wait_s`. Value: of the action. Raises
    its error, OSError for a missing folder of the set."""
    world, waits_for = job.world, ""
    started = world.now()
    deadline = started + job.settings.storage_wait_s
    while True:
        is_last = world.now() >= deadline  # before the call, which may hang until after it
        try:
            world.files.try_out(job.layout.root / f".probe.{world.host}.{world.pid}")
            value = action()
        except FolderError:
            if world.files.is_folder(job.layout.root):
                raise
            problem = OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(job.layout.root))
        except OSError as error:
            problem = error
        else:
            if waits_for:
                job.log(f"{waits_for}: gone after {world.now() - started:.0f} s")
                job.status.clear_reason()
                job.write()
            return value
        if problem.errno not in _PASSES or job.ending.has_come() or is_last:
            raise problem
        if not waits_for:
            path = problem.filename or job.layout.root
            waits_for = f"{WAITS}: {path}: {problem.strerror}"
            job.warn(waits_for)
            job.write(reason=waits_for)  # if there is room
        yield min(world.now() + RETRY_S, deadline)
