"""A set from entry to job: composed, created unless it exists, submitted."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.errors import (
    Fix,
    SchedulerBusy,
    SchedulerError,
    SchedulerUnknown,
    UsageError,
)
from orchestrator.evidence.sets import RunSet, check_log_dir
from orchestrator.model.prerequisites import refusals
from orchestrator.model.sites import group_problem, sets_folder
from orchestrator.onnode.kernel.world import THIS, World
from orchestrator.render import manifest_hash, render_bundle
from orchestrator.runset.allocation import Allocation
from orchestrator.runset.create import create, describe, discard, find_unsubmitted
from orchestrator.runset.doubts import doubts, refuse_unscorable
from orchestrator.runset.limit import beyond_partition
from orchestrator.runset.submit import submit
from orchestrator.scheduler import open_scheduler
from orchestrator.trust import replaceable

if TYPE_CHECKING:
    from orchestrator.evidence.sets import SubmissionRecord
    from orchestrator.model import Entry
    from orchestrator.onnode.kernel.records import SetRecord


class NewSet(NamedTuple):
    """A set before anything is written. `files`: its bundle, path -> content."""

    record: SetRecord
    files: dict[str, bytes]
    log_dir: Path


Insist = Callable[[UsageError], object]
"""Gets the reasons why a set cannot run, instead of an error."""


def compose(
    entry: Entry,
    nexp: int | None = None,
    world: World = THIS,
    *,
    label: str = "",
    insist: Insist | None = None,
    warn: Callable[[str], object] = lambda _: None,
) -> NewSet:
    """Return an unwritten set of `nexp` runs (default: as the rules require), called `label`.

    Raises UsageError for an unmet need of the workload, or a partition that is missing, too small
    or too short, unless `insist` takes these; DescriptorError for rules that cannot score it;
    RenderError. `warn` gets doubts, and why the job will wait.
    """
    count = nexp or entry.runs_required
    refuse_unscorable(entry)
    if problem := group_problem(entry.site):
        raise UsageError(
            problem,
            hint="correct `shared_group` in the site file, or leave it out",
            fix=Fix(options=("--override", "shared_group=null")),
        )
    for doubt in doubts(entry):
        warn(doubt.text)
    for refusal in chain(refusals(entry, os.environ), beyond_partition(entry, count, warn)):
        if insist is None:
            refusal.advise("--force submits it all the same")
            raise refusal
        insist(refusal)
    files = render_bundle(entry, nexp=count)
    record = describe(entry, nexp=count, bundle_sha256=manifest_hash(files), world=world)
    return NewSet(replace(record, label=label), files, sets_folder(entry.site))


def start(
    entry: Entry,
    nexp: int | None = None,
    *,
    options: tuple[str, ...] = (),
    label: str = "",
    on_set: Callable[[RunSet, bool], object] = lambda *_: None,
    insist: Insist | None = None,
    warn: Callable[[str], object] = lambda _: None,
    world: World = THIS,
) -> tuple[RunSet, SubmissionRecord]:
    """Submit a set of `nexp` runs below the site's log directory.

    An unsubmitted set of the same bundle is taken instead of a new set. `on_set` gets the set, and
    whether it existed, before the scheduler is asked. `options` are for sbatch. A refused new set
    is removed. Other scheduler errors name the set, which stays.
    """
    folder = Path(entry.site.log_dir or "")
    if folder.is_dir() and (why := replaceable(folder)):
        warn(
            f"{why} and replace your sets while they run; "
            f"its owner can fix it: chmod +t {shlex.quote(str(folder))}"
        )
    check_log_dir(sets_folder(entry.site))
    new = compose(entry, nexp, world, label=label, insist=insist, warn=warn)
    run_set = find_unsubmitted(new.record, new.log_dir)
    was_there = run_set is not None
    if run_set is None:
        group = entry.site.shared_group or ""
        run_set = RunSet(create(new.record, new.files, new.log_dir, group, world), new.record)
    on_set(run_set, was_there)
    scheduler = open_scheduler(run_set.record.scheduler)
    root = run_set.layout.root
    try:
        return run_set, submit(
            run_set, scheduler, allocation=Allocation(further=options), world=world
        )
    except (SchedulerBusy, SchedulerUnknown) as error:
        if str(root) not in error.hint:
            error.advise(f"the set stays: orchestrator resume {shlex.quote(str(root))}")
        raise
    except SchedulerError:
        if not was_there:
            discard(run_set, world)
        raise
