"""A new set: record and folder, which appears complete or not at all."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import Fix, RenderError, SetError
from orchestrator.evidence.sets import RunSet, SetEvidence, set_folders
from orchestrator.model.prerequisites import unmet
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.records import NO_GPU, REHEARSAL, SetRecord, write
from orchestrator.onnode.kernel.world import THIS, World
from orchestrator.onnode.set import ledger
from orchestrator.onnode.set.new import give, new_set, new_set_id, show, umask_for
from orchestrator.render import write_bundle
from orchestrator.runset.bundle import is_declared
from orchestrator.runset.find import foreign
from orchestrator.runset.room import no_room
from orchestrator.words import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.model import Entry

_SAME = ("created_by", "bundle_sha256", "nexp", "scheduler", "pass_env", "label")
"""The identity of an unsubmitted set; the bundle has the rest."""
BEING_MADE_MS = 500


def describe(
    entry: Entry,
    *,
    nexp: int,
    bundle_sha256: str,
    created_by: str = "controller",
    world: World = THIS,
) -> SetRecord:
    """Return the record of a new set; a rehearsal's name shows that."""
    set_id = new_set_id(entry.system, entry.workload, world)
    if created_by == REHEARSAL:
        set_id = f"{REHEARSAL}-{set_id}"
    return new_set(
        set_id,
        nexp,
        world=world,
        system=entry.system,
        workload=entry.workload,
        benchmark=entry.benchmark,
        round=entry.round,
        ruleset=entry.ruleset,
        created_by=created_by,
        scheduler=entry.site.scheduler,
        nodes=entry.nodes,
        gpus_per_node=entry.gpus_per_node,
        gpu_model=entry.accelerator if entry.gfx else NO_GPU,
        engine=entry.container.engine,
        image=entry.image,
        max_attempts=entry.site.limits.attempts,
        run_timeout_s=entry.run_timeout_s,
        target=entry.target,
        metric=entry.metric,
        target_is_upper_bound=entry.target_is_upper_bound,
        bundle_sha256=bundle_sha256,
        pass_env=needed_names(entry),
        unmet=[part.what for part in unmet(entry)],
    )


def needed_names(entry: Entry) -> list[str]:
    """Return variables of the submitter: the site's pass_env, the webhook's address, and data
    folders missing in the site file."""
    webhook = [entry.site.notify.webhook] if entry.site.notify.webhook else []
    return sorted(
        {
            *entry.pass_env,
            *webhook,
            *(mount.variable for mount in entry.mounts if mount.host is None),
        }
    )


def create(
    record: SetRecord,
    bundle: Mapping[str, bytes],
    log_dir: Path,
    group: str = "",
    world: World = THIS,
) -> Layout:
    """Create the set's folder below `log_dir`.

    `bundle`: relative path -> content; `group` may continue the set. Raises SetError; nothing is
    left then.
    """
    final = log_dir / record.set_id
    files = world.files
    temporary = log_dir / f".{record.set_id}.tmp.{world.pid}"
    umask = world.umask(0o022)
    try:
        world.umask(umask_for("", umask))
        files.make_folder(temporary)
        write_bundle(bundle, Layout(temporary).bundle)
        if group:
            give(temporary, group)
            show(Layout(temporary).bundle, group)
        world.umask(umask_for(group, umask))
        _make(temporary, record, final, world)
        if files.exists(final):
            raise FileExistsError(errno.EEXIST, "there is a set of this name", str(final))
        files.rename(temporary, final)
        files.sync_folder(log_dir)
    except OSError as error:
        raise unwritable(error, f"cannot create a set in {log_dir}", log_dir) from error
    except LookupError as error:
        raise SetError(
            f"cannot create a set for several people: {error}",
            hint="correct shared_group in the site file, or leave it out",
        ) from error
    except RenderError as error:
        if isinstance(error.__cause__, OSError):
            raise unwritable(
                error.__cause__, f"cannot create a set in {log_dir}", log_dir
            ) from error
        raise
    finally:
        world.umask(umask)
        files.remove_tree(temporary)
    return Layout(final)


def find_unsubmitted(record: SetRecord, log_dir: Path) -> RunSet | None:
    """Return this user's newest set with this `record` and bundle that never had a job.

    A set about to be submitted is left alone: its lock and submission exist in milliseconds.
    """
    try:
        roots = set_folders(log_dir)
    except SetError:  # writable, but not to be listed
        return None
    for root in roots:
        if not root.name.startswith(f"{record.system}-{record.workload}-"):
            continue
        evidence = SetEvidence(root)
        mine, layout = evidence.record, evidence.layout
        if mine is None or any(getattr(mine, name) != getattr(record, name) for name in _SAME):
            continue
        asked = evidence.submissions
        being_made = not asked and record.created_ms - mine.created_ms < BEING_MADE_MS
        if (
            _untried(evidence)
            and not being_made
            and not layout.lock.exists()
            and not foreign(layout)
            and is_declared(run_set := RunSet(layout, mine))
        ):
            return run_set
    return None


def discard(run_set: RunSet, world: World = THIS) -> None:
    """Remove a set whose submissions were all refused; on failure it stays.

    Its name is hidden first: nobody resumes half a set.
    """
    root, files = run_set.layout.root, world.files
    evidence = SetEvidence(root)
    if _untried(evidence) and evidence.submissions and not foreign(run_set.layout):
        hidden = root.with_name(f".{root.name}.tmp.{world.pid}")
        with suppress(OSError):
            files.rename(root, hidden)
            files.remove_tree(hidden)


def _untried(evidence: SetEvidence) -> bool:
    """True if no submission can ever make a job."""
    return (
        not evidence.jobs
        and not evidence.tried
        and all(submission.state == "refused" for submission in evidence.submissions)
    )


def _make(folder: Path, record: SetRecord, place: Path, world: World) -> None:
    layout = Layout(folder)
    files = world.files
    for directory in (layout.submissions, layout.jobs, layout.results):
        files.make_folder(directory)
    write(record, layout.set_file, files=files)
    state = files.state(folder)
    ledger.append(
        folder,
        ledger.declaration(record, place.absolute(), state.inode if state else 0),
        world=world,
    )


def unwritable(error: OSError, what: str, log_dir: Path) -> SetError:
    """Return an error with the remedy for its reason."""
    if full := no_room(error, what, log_dir):
        return full
    folder = quoted(log_dir)
    if error.errno in (errno.EACCES, errno.EPERM):
        return SetError(
            f"{what}: {error.strerror}",
            hint="ask its owner for access, or name another log_dir in the site file; who owns it:",
            fix=Fix(f"ls -ld {folder}"),
        )
    if error.errno == errno.EROFS:
        hint = f"it is mounted read-only here: findmnt --target {folder}"
        return SetError(f"{what}: {error.strerror}", hint=hint)
    hint = f"is the shared storage mounted? df -h {folder}"
    return SetError(f"{what}: {error.strerror or error}", hint=hint)
