"""A set's submissions, written by the controller, or for a killed controller by a job."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..kernel import records
from ..kernel.files import is_temporary, raise_if_away
from ..kernel.layout import Layout
from ..kernel.records import SubmissionRecord
from ..kernel.walk import SetWalk
from ..kernel.world import THIS, World
from ..policy.lease import STALE_S
from . import ledger
from .lease import HeldError, Lease
from .lease import remove_unfinished as remove_unfinished_leases


def record(
    layout: Layout, submission: SubmissionRecord, job: str = "", world: World = THIS
) -> SubmissionRecord:
    """Write a submission, its outcome or cancellation first in the ledger; return it. `job`: the
    writer's. Raises OSError, HeldError; FileExistsError if the number of a new one is taken."""
    path = layout.submission(submission.number)
    world.files.make_folder(path.parent, exist_ok=True)
    if submission.settled:
        submission = _on_ledger(layout, submission, job, world)
    records.write(submission, path, files=world.files, new=submission.state == "intended")
    return submission


def _on_ledger(
    layout: Layout, submission: SubmissionRecord, job: str, world: World
) -> SubmissionRecord:
    """Record a submission's outcome once; return it as recorded, with the ledger's head.

    If it is recorded already, its writer was killed before it wrote the file.
    """
    new: ledger.NewRecord = ("cancel", {"number": submission.number, "job_id": submission.job_id})
    if not submission.cancelled_ms:
        for entry in ledger.read(layout.root, world.files)[0]:
            if (entry.kind, entry.data.get("number")) == ("submit", submission.number):
                state, job_id = (str(entry.data.get(name)) for name in ("state", "job_id"))
                known = replace(submission, state=state, job_id=job_id, error="")
                submission = known if known.settled and job_id != submission.job_id else submission
        new = (
            "submit",
            {"number": submission.number, "state": submission.state, "job_id": submission.job_id},
        )
    cluster = str(submission.by.get("cluster", ""))
    head = ledger.append(layout.root, new, job=job, cluster=cluster, once=True, world=world)
    return replace(submission, ledger=head)


def remove_unfinished(layout: Layout, world: World = THIS) -> None:
    """Remove a killed controller's unfinished files, with the lock held. Raises OSError."""
    files = world.files
    remove_unfinished_leases(layout.lock, world, only_own=True)
    if not (paths := _unfinished(layout, world)) or (lock := files.state(layout.lock)) is None:
        return
    for path in paths:
        begun = files.state(path)
        # `cancel` writes without the lock. Files of the future predate a clock that was set back.
        if begun is not None and abs(lock.mtime - begun.mtime) > STALE_S:
            files.remove(path)


def _unfinished(layout: Layout, world: World) -> list[Path]:
    """Raises OSError."""
    paths = list[Path]()
    for folder in (layout.submissions, layout.program):
        with suppress(FileNotFoundError):  # started by hand
            paths += [folder / name for name in world.files.names(folder) if is_temporary(name)]
    return paths


def settle_own(layout: Layout, job_id: str, cluster: str, world: World = THIS) -> None:
    """Make the newest submission this job's, and remove killed commands' lock and files, unless a
    controller may be running. Raises OSError."""
    nothing_open = _open_one(layout, job_id, world) is None
    if nothing_open and not _unfinished(layout, world) and not world.files.exists(layout.lock):
        return
    lease = Lease(layout.lock, world.holder(cluster=cluster), world=world)
    try:
        lease.take(beat=False)
        try:
            remove_unfinished(layout, world)
            if (asked := _open_one(layout, job_id, world)) is not None:
                record(layout, replace(asked, state="submitted", job_id=job_id), job_id, world)
        finally:
            lease.release()
    except HeldError:
        return


def _open_one(layout: Layout, job_id: str, world: World) -> SubmissionRecord | None:
    """Return the newest submission without an outcome, unless a submission has the job."""
    files = world.files
    numbers = SetWalk(layout.root, files, raise_if_away).submissions()
    readings = [
        records.read(SubmissionRecord, layout.submission(k), files, strict=True) for k in numbers
    ]
    asked = [submission for submission in readings if isinstance(submission, SubmissionRecord)]
    if not asked or asked[-1].settled or any(submission.job_id == job_id for submission in asked):
        return None
    return asked[-1]
