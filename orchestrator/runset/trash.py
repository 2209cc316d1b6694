"""Unwanted sets in the hidden trash of the log directory. `mv` brings them back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from orchestrator.errors import SchedulerUnknown, SetError, is_full
from orchestrator.evidence.sets import RunSet, SetEvidence
from orchestrator.onnode.kernel.world import THIS, World, stamp
from orchestrator.runset.find import TRASH, foreign
from orchestrator.runset.submit import controller_lock, settle
from orchestrator.scheduler import open_scheduler
from orchestrator.trust import others
from orchestrator.words import quoted


class Removed(NamedTuple):
    set_id: str
    place: Path
    trash: Path

    @property
    def way_back(self) -> str:
        return f"mv {quoted(self.trash)} {quoted(self.place)}"


def check_removable(run_set: RunSet, *, force: bool = False) -> None:
    """Raise SetError for another user's set, or a complete set with results without `force`."""
    root = run_set.layout.root
    if why := foreign(run_set.layout):
        raise SetError(
            f"another user can change set {run_set.name}: {why}",
            hint=f"ls -ld {quoted(root)}",
        )
    if not force and _has_results(SetEvidence(root), run_set.record.nexp):
        raise SetError(
            f"set {run_set.name} is complete: its results would be gone from every list",
            hint=f"if you mean it: orchestrator rm --force {quoted(root)}",
        )


def _has_results(evidence: SetEvidence, nexp: int) -> bool:
    """Return whether the set is complete with a done run."""
    is_closed = evidence.job is not None and evidence.job.state == "complete"
    if not (is_closed or evidence.has_every_run):
        return False
    runs = (evidence.run(run) for run in range(1, nexp + 1))
    return any(run is not None and run.done for run in runs)


def remove(run_set: RunSet, *, force: bool = False, world: World = THIS) -> Removed:
    """Move a set to its log directory's trash. Raises SetError, also for a live job;
    SchedulerError."""
    check_removable(run_set, force=force)
    root, files = run_set.layout.root, world.files
    evidence = SetEvidence(root)
    # A copy's jobs are the original's; a rehearsal or an unsubmitted set has no job.
    has_job = evidence.submission or evidence.jobs
    jobless = run_set.record.rehearsed or not has_job or evidence.copy_of
    scheduler = None if jobless else open_scheduler(run_set.record.scheduler)
    cluster = scheduler.cluster() if scheduler else ""
    try:
        with controller_lock(run_set.layout.lock, cluster, world) as lock:
            if scheduler and (job := settle(run_set, scheduler, world)) is not None:
                raise SetError(
                    f"job {job.id} of set {run_set.name} is alive",
                    hint=f"orchestrator cancel {quoted(root)}",
                )
            trash = _make_trash(root.parent, world)
            target = trash / root.name
            if files.exists(target):
                target = trash / f"{root.name}.{stamp(world.wall_ms(), '%Y%m%d-%H%M%S', utc=True)}"
            lock.confirm()
            files.rename(root, target)
            # The lock has moved, too, and its holder must not keep the set from coming back.
            files.remove(target / run_set.layout.lock.name)
    except SchedulerUnknown as error:
        again = "" if error.hint else "ask again in a minute; "
        error.advise(f"{again}nothing was moved")
        raise
    except OSError as error:
        reason = "no room" if is_full(error) else error.strerror or error
        raise SetError(
            f"cannot move {root}: {reason}", hint=f"ls -ld {quoted(root.parent)}"
        ) from error
    return Removed(run_set.name, root, target)


def _make_trash(log_dir: Path, world: World) -> Path:
    for name in (TRASH, f"{TRASH}-{os.getuid()}"):
        trash = log_dir / name
        world.files.make_folder(trash, exist_ok=True)
        if not others(trash, parents=False, group=True):
            return trash
    raise SetError(
        f"{trash} can be changed by other users, so nothing is moved there",
        hint=f"ls -ld {quoted(trash)}",
    )
