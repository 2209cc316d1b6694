"""Unwanted sets in the hidden trash of the log directory. `mv` brings them back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from orchestrator.errors import Fix, OrchestratorError, SchedulerUnknown, SetError
from orchestrator.evidence.sets import RunSet, SetEvidence
from orchestrator.lock import Lock
from orchestrator.onnode.kernel.world import THIS, World, stamp
from orchestrator.runset.find import TRASH, foreign
from orchestrator.runset.room import no_room
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


def remove(
    run_sets: Sequence[RunSet], *, force: bool = False, world: World = THIS
) -> list[Removed]:
    """Move sets to their log directories' trash, if all can go. Raises SetError, also for a live
    job; SchedulerError."""
    for run_set in run_sets:
        check_removable(run_set, force=force)
    removed = list[Removed]()
    with ExitStack() as locks:
        try:
            held = [locks.enter_context(_without_job(run_set, world)) for run_set in run_sets]
            for run_set, lock in zip(run_sets, held, strict=True):
                removed.append(_move(run_set, lock, world))
        except OrchestratorError as error:
            if removed:
                back = " && ".join(moved.way_back for moved in removed)
                verb = "was" if len(removed) == 1 else "were"
                names = ", ".join(moved.set_id for moved in removed)
                error.advise(f"{names} {verb} moved before; to get back:", fix=Fix(back))
            elif isinstance(error, SchedulerUnknown) or len(run_sets) > 1:
                again = "" if error.hint else "ask again in a minute; "
                error.advise(f"{again}nothing was moved")
            raise
    return removed


@contextmanager
def _without_job(run_set: RunSet, world: World) -> Iterator[Lock]:
    """Hold the set's lock while no job of it is alive."""
    evidence = SetEvidence(run_set.layout.root)
    # A copy's jobs are the original's; a rehearsal or an unsubmitted set has no job.
    has_job = evidence.submission or evidence.jobs
    jobless = run_set.record.rehearsed or not has_job or evidence.copy_of
    scheduler = None if jobless else open_scheduler(run_set.record.scheduler)
    cluster = scheduler.cluster() if scheduler else ""
    with controller_lock(run_set.layout.lock, cluster, world) as lock:
        if scheduler and (job := settle(run_set, scheduler, world)) is not None:
            raise SetError(
                f"job {job.id} of set {run_set.name} is alive",
                hint=f"orchestrator cancel {quoted(run_set.layout.root)}",
            )
        yield lock


def _move(run_set: RunSet, lock: Lock, world: World) -> Removed:
    root, files = run_set.layout.root, world.files
    try:
        trash = _make_trash(root.parent, world)
        target = trash / root.name
        if files.exists(target):
            target = trash / f"{root.name}.{stamp(world.wall_ms(), '%Y%m%d-%H%M%S', utc=True)}"
        lock.confirm()
        files.rename(root, target)
    except OSError as error:
        raise no_room(error, f"cannot move {root}", root.parent) or SetError(
            f"cannot move {root}: {error.strerror or error}",
            hint=f"ls -ld {quoted(root.parent)}",
        ) from error
    with suppress(OSError):  # the lock has moved, too; without its holder it gets old
        files.remove(target / run_set.layout.lock.name)
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
