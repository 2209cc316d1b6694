"""Storage that is full, read-only or away for a while: the loop waits for it, says so, and goes on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from ..kernel.files import AWAY
from ..kernel.flow import Flow
from ..kernel.records import RunRecord
from ..set.folder import FolderError
from .context import SetContext

LOOK_S = 5.0
_PASSES = AWAY | {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOENT}
"""What a file system says that is full, over quota, read-only or not there now. All else does not go away by waiting."""


def begin(job: SetContext, state: RunRecord) -> None:
    """Begin an attempt; one that found no room for its states has not begun. Raises FolderError, OSError."""
    try:
        job.folder.begin(state)
    except OSError as error:
        if error.errno in _PASSES:
            job.world.files.remove_tree(job.layout.attempt(state.run, state.attempt))
        raise


def closing(job: SetContext, state: RunRecord, rank: int | None) -> Callable[[], None]:
    """Return what closes an attempt, to be called until it works: a try may publish the result and find no room for the states."""
    tried = False

    def close() -> None:
        nonlocal tried
        # By an earlier try: if there had been a result before, the first one would have refused.
        published = tried and job.world.files.exists(job.layout.result(state.run))
        tried = True
        job.folder.close(state, None if published else rank)
        if rank is not None:
            job.folder.link(state.run)

    return close


def write_last(job: SetContext, state: str, reason: str) -> Flow:
    """Write the last state of a job. Of a complete set it is waited for: no next job does it."""
    now = job.world.now
    deadline = now() + job.settings.storage_wait_s
    while (
        not job.write(state, reason)
        and state == "complete"
        and not job.reactor.signals
        and now() < deadline
    ):
        yield min(now() + LOOK_S, deadline)


def patiently(job: SetContext, action: Callable[[], object]) -> Flow:
    """Do `action`, as often as it takes until the set's storage can be written. Raises what it raised when that takes too long."""
    world, told = job.world, ""
    started = world.now()
    deadline = started + job.settings.storage_wait_s
    while True:
        try:
            world.files.try_out(job.layout.root / f".probe.{world.host}.{world.pid}")
            action()
        except FolderError:
            if world.files.is_folder(job.layout.root):
                raise
            problem = OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(job.layout.root))
        except OSError as error:
            problem = error
        else:
            if told:
                job.log(f"{told}: gone after {world.now() - started:.0f} s")
                job.status.clear_reason()
                job.write()
            return
        if problem.errno not in _PASSES or job.is_ending() or world.now() >= deadline:
            raise problem
        if not told:
            told = f"waiting for storage: {problem.filename or job.layout.root}: {problem.strerror}"
            job.warn(told)
            job.write(reason=told)  # as far as there is room for it
        yield min(world.now() + LOOK_S, deadline)
