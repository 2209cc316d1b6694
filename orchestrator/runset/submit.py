"""Submit a set's job to the scheduler, once.

Safe to interrupt anywhere: lock the set, write the intent, ask the scheduler, write the outcome.
After an intent without an outcome, the next command first looks for the job by its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import (
    Fix,
    OrchestratorError,
    SchedulerBusy,
    SchedulerError,
    SchedulerUnknown,
    SetError,
)
from orchestrator.evidence.lease import held_by, submitter
from orchestrator.evidence.sets import RunSet, SetEvidence, SubmissionRecord, began_after
from orchestrator.evidence.state import NEVER, appears_within_s
from orchestrator.lock import Lock
from orchestrator.onnode.kernel.files import raise_if_away
from orchestrator.onnode.kernel.holder import Holder
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.program import Program
from orchestrator.onnode.kernel.records import JobRecord, write
from orchestrator.onnode.kernel.walk import SetWalk
from orchestrator.onnode.kernel.world import THIS, World
from orchestrator.onnode.policy.lease import unseen
from orchestrator.onnode.set import bundle, ledger
from orchestrator.onnode.set.lease import HeldError, Lease
from orchestrator.onnode.set.new import umask_for
from orchestrator.onnode.set.submissions import record as write_submission
from orchestrator.onnode.set.submissions import remove_unfinished
from orchestrator.runset.allocation import Allocation
from orchestrator.runset.bundle import lost, put_back, verified_bundle
from orchestrator.runset.complete import settle_complete_set
from orchestrator.runset.extend import check_extension, extend, with_extension
from orchestrator.runset.room import no_room
from orchestrator.scheduler.job import Job, JobRequest, Scheduler
from orchestrator.scheduler.kinds import kind_of
from orchestrator.words import count, quoted

CLEAN_ENV = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TMPDIR",
    "DOCKER_HOST",
    "XDG_RUNTIME_DIR",
)
"""The caller's variables for a job, besides the site's pass_env."""

AS_RENDERED = Allocation()

LOOK_AGAIN_S = (0.5, 1.0, 2.0, 4.0)
"""Pauses between searches for a job after an unanswered sbatch: Slurm may be making it."""

BUSY_AGAIN_S = (5.0, 15.0, 30.0, 60.0)
"""Pauses before a busy controller is asked again. (sbatch itself has tried for two minutes.)"""

ENDING_AGAIN_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Pauses between checks of a job that has closed its set: it still cleans its nodes."""

WITHDRAWN = "the controller lost the set before it asked the scheduler"


def controller_lock(path: Path, cluster: str = "", world: World = THIS) -> Lock:
    return Lock(Lease(path, world.holder(cluster=cluster), world=world), _another_controller)


def _another_controller(held: HeldError) -> SetError:
    wait = f"ask again in {held.verdict.wait_s:.0f} s" if held.verdict.wait_s else "wait for it"
    return SetError(
        f"another controller works on {held.path.parent.name}: {held.holder}; {held.verdict.why}",
        hint=f"{wait}; if that process has certainly ended: rm {quoted(held.path)}",
    )


def job_environment(caller: Mapping[str, str], run_set: RunSet) -> dict[str, str]:
    """Return the job's whole environment: some variables of the caller, the set's pass_env, and
    the job's own."""
    wanted = dict.fromkeys((*CLEAN_ENV, *run_set.record.pass_env))
    env = {name: caller[name] for name in wanted if name in caller}
    return {**env, "ORCH_SET_DIR": str(run_set.layout.root), "NEXP": str(run_set.record.nexp)}


def request_for(
    run_set: RunSet,
    caller: Mapping[str, str] | None = None,
    allocation: Allocation = AS_RENDERED,
    program: Program | None = None,
) -> JobRequest:
    """Return a set's job: job.sh under Slurm, run_with_docker.sh here. `program`: the verified
    bundle. Writes nothing."""
    layout = run_set.layout
    allocates = kind_of(run_set.record.scheduler).allocates
    name = "job.sh" if allocates else "run_with_docker.sh"
    text = program.files.get(name, b"") if program and program.archive else b""
    env = job_environment(os.environ if caller is None else caller, run_set)
    missing = len(missing_runs(run_set)) if layout.bundle.is_dir() else 0
    return JobRequest(
        script=layout.bundle / name,
        text=text.decode("utf-8", "surrogateescape"),
        job_name=run_set.record.job_name,
        workdir=layout.bundle,
        env={**env, **allocation.variables, **_kept(program)},
        output=str(layout.job_output("%j")),
        options=allocation.options(run_set.record, layout, missing) if allocates else (),
    )


def submit(
    run_set: RunSet,
    scheduler: Scheduler,
    *,
    allocation: Allocation = AS_RENDERED,
    edited: bool = False,
    nexp: int = 0,
    note: Callable[[str], object] = lambda _: None,
    world: World = THIS,
) -> SubmissionRecord:
    """Submit the set's job; return the valid submission.

    `allocation`: options beyond the set's bundle. `edited` accepts the bundle as it is. `nexp`
    extends the set (extend.py). `note` gets a line on deleted files put back. A job that has closed
    the set is waited for, half a minute at most. Raises SetError if another controller works on the
    set, a job of it is alive, or no run is missing; SchedulerError if refused; SchedulerUnknown if
    a job may exist.
    """
    refuse_copy(run_set)
    me = world.holder(cluster=scheduler.cluster())
    with (
        rights(run_set.layout.root, world),
        controller_lock(run_set.layout.lock, me.cluster, world) as lock,
    ):
        with suppress(OSError):  # storage that allows neither write reports it then
            remove_unfinished(run_set.layout, world)
        run_set = _restore(run_set, world)
        missing = put_back(run_set, note, world)
        check_extension(run_set, nexp)
        if nexp <= run_set.record.nexp and not missing_runs(run_set):
            if missing:
                note(f"note: {lost(run_set, missing)}")
            settle_complete_set(run_set, scheduler, note, world)
            raise _finished(run_set, scheduler, world)
        live = settle(run_set, scheduler, world)
        for pause_s in ENDING_AGAIN_S:
            if live is None or not _closed(run_set, live):
                break
            world.pause(pause_s)
            live = settle(run_set, scheduler, world)
        if live is not None:
            raise _already(run_set, live)
        program = verified_bundle(run_set, edited=edited, nexp=nexp, world=world)
        grows = nexp > run_set.record.nexp
        wanted = replace(run_set.record, nexp=nexp) if grows else run_set.record
        request = request_for(replace(run_set, record=wanted), None, allocation, program)
        lock.confirm()
        if grows:
            run_set = extend(run_set, nexp, world)
        try:
            record = SubmissionRecord(
                number=_next_number(run_set.layout, world),
                job_name=request.job_name,
                requested_ms=world.wall_ms(),
                state="intended",
                argv=scheduler.command(request),
                by=_signature(me),
                ledger=_ledger_head(run_set, world),
            )
            _record(run_set, record, world)
            return _ask(run_set, scheduler, request, record, lock, BUSY_AGAIN_S, world)
        except OrchestratorError as error:
            if grows:
                resume = f"orchestrator resume {quoted(run_set.layout.root)}"
                runs = count(nexp, "run")
                error.advise(f"the set has {runs} all the same, and does not shrink: {resume}")
            raise


def _ledger_head(run_set: RunSet, world: World) -> str:
    """Raises SetError."""
    root = run_set.layout.root
    try:
        return ledger.head(ledger.read(root, world.files)[0])
    except OSError as error:
        raise SetError(
            f"{root / ledger.NAME}: {error.strerror or error}", hint=f"ls -ld {quoted(root)}"
        ) from error


def _restore(run_set: RunSet, world: World) -> RunSet:
    """Restore a lost or empty set.json, and complete an interrupted extension. Raises SetError."""
    path = run_set.layout.set_file
    try:
        run_set = with_extension(run_set, world)
        state = world.files.state(path)
        if state is None or state.is_folder or not state.size:
            write(run_set.record, path, files=world.files)
        return run_set
    except OSError as error:
        raise SetError(
            f"{path}: {error.strerror or error}", hint=f"ls -ld {quoted(path.parent)}"
        ) from error


def _signature(me: Holder) -> dict[str, Any]:
    return {
        name: value for name, value in asdict(me).items() if name not in ("token", "job", "restart")
    }


def _kept(program: Program | None) -> dict[str, str]:
    """Return the hashes kept by the scheduler for the job: of its program, and of the bundle, which
    the loop compares first."""
    if program is None:
        return {}
    kept = {"ORCH_BUNDLE_SHA256": bundle.digest(bundle.hashes_of(program.files))}
    if program.archive:
        kept |= {"ORCH_PROGRAM": program.archive, "ORCH_PROGRAM_SHA256": program.sha256}
    return kept


def _ask(
    run_set: RunSet,
    scheduler: Scheduler,
    request: JobRequest,
    record: SubmissionRecord,
    lock: Lock,
    pauses: Sequence[float],
    world: World,
) -> SubmissionRecord:
    """Ask the scheduler; again after `pauses` while it is busy and the set is still locked."""
    _confirm(run_set, record, lock, world)
    try:
        job_id = scheduler.submit(request)
    except SchedulerUnknown as error:
        job = _look_for(run_set, scheduler, record, (0.0, *LOOK_AGAIN_S), world)
        if job is None:
            _record(run_set, replace(record, state="unknown", error=error.message), world)
            raise _unknown(run_set, error, error.message) from error
        job_id = job.id
    except SchedulerError as error:
        if pauses and isinstance(error, SchedulerBusy):
            record = _wait(run_set, record, error, pauses[0], lock, world)
            return _ask(run_set, scheduler, request, record, lock, pauses[1:], world)
        # The site's plug-in or wrapper can fail after the job was made.
        job = _look_for(run_set, scheduler, record, (0.0,), world)
        if job is None:
            _record(run_set, replace(record, state="refused", error=error.message), world)
            raise
        job_id = job.id
    try:
        outcome = replace(record, state="submitted", job_id=job_id, error="")
        return _record(run_set, outcome, world)
    except SetError as error:
        raise SetError(
            f"job {job_id} was submitted, but that could not be recorded: {error.message}",
            hint=f"{error.hint}; then: orchestrator status {quoted(run_set.layout.root)}",
            fix=error.fix,
        ) from error


def _wait(
    run_set: RunSet,
    record: SubmissionRecord,
    error: SchedulerError,
    pause_s: float,
    lock: Lock,
    world: World,
) -> SubmissionRecord:
    """Wait until the next request, and record its time: its job may appear so much later."""
    # Not all controllers at once.
    world.pause(pause_s * (0.8 + 0.4 * int(world.token(4), 16) / 2**32))
    _confirm(run_set, record, lock, world)
    later = replace(record, state="unknown", error=error.message, requested_ms=world.wall_ms())
    return _record(run_set, later, world)


def _confirm(run_set: RunSet, record: SubmissionRecord, lock: Lock, world: World) -> None:
    """Raise SetError, the submission withdrawn, if another process has taken the set."""
    try:
        lock.confirm()
    except SetError:
        _withdraw(run_set, record, world)
        raise


def settle(run_set: RunSet, scheduler: Scheduler, world: World = THIS) -> Job | None:
    """Record the outcome of earlier submissions; return the set's live job.

    Raises SchedulerUnknown without an outcome, or if a job may be alive unseen. Needs the set's
    lock.
    """
    jobs = known_jobs(run_set, scheduler, world)
    for record in _settle_by(jobs, run_set, world):
        left_s = appears_within_s(record, world)
        if left_s > 0:
            raise SchedulerUnknown(
                f"set {run_set.name}: submission {record.number} got no answer and there is no job "
                "of it yet",
                hint=f"it may still appear; ask again in {left_s:.0f} s:",
                fix=Fix(),
            )
        _record(run_set, replace(record, state="refused", error=NEVER), world)
    alive = [job for job in jobs.values() if job.alive]
    if not alive:
        refuse_unseen(run_set, jobs, world.holder(cluster=scheduler.cluster()), world)
    return alive[0] if alive else None


def _settle_by(
    jobs: Mapping[str, Job], run_set: RunSet, world: World
) -> Iterator[SubmissionRecord]:
    """Give submissions their jobs; yield those without one."""
    for record in submissions(run_set.layout):
        if record.settled:
            continue
        if job_id := _job_of(run_set, record, jobs):
            _record(run_set, replace(record, state="submitted", job_id=job_id), world)
        else:
            yield record


def refuse_copy(run_set: RunSet) -> None:
    """Raise SetError for a copy of a set: by name its jobs are the original's."""
    root = run_set.layout.root
    if there := SetEvidence(root).copy_of:
        raise SetError(
            f"{root} is a copy of {there}: its jobs are those of the other",
            hint=(
                "name the original, or submit a new set; score, report and package read the copy: "
                f"orchestrator score {quoted(root)}"
            ),
        )


def refuse_unseen(
    run_set: RunSet, jobs: Mapping[str, Job], viewer: Holder, world: World = THIS
) -> None:
    """Raise SchedulerUnknown if a job missing in `jobs` may be alive: it holds the set, or belongs
    to another cluster or user."""
    evidence = SetEvidence(run_set.layout.root)
    if held := held_by(run_set.layout.loop_lock, viewer, jobs, world):
        holder, verdict = held
        again = (
            f"ask again in {verdict.wait_s:.0f} s"
            if verdict.wait_s
            else "ask where it was submitted"
        )
        raise SchedulerUnknown(
            f"set {run_set.name}: {holder} may be at work on it: {verdict.why}",
            hint=f"{again}; if it has certainly ended: rm {quoted(run_set.layout.loop_lock)}",
        )
    asked = evidence.submission
    if (
        asked is None
        or asked.state != "submitted"
        or not asked.by
        or any(job.job_id == asked.job_id for job in evidence.jobs)
    ):
        return
    if asked.job_id not in jobs and (why := unseen(submitter(asked), viewer)):
        raise SchedulerUnknown(
            f"set {run_set.name}: job {asked.job_id} has not started, and is not shown here: {why}",
            hint="ask where it was submitted: orchestrator cancel, or resume, there",
        )


def submissions(layout: Layout) -> list[SubmissionRecord]:
    """Return the readable submissions, first to last."""
    return SetEvidence(layout.root).submissions


def _recorded_jobs(layout: Layout) -> list[JobRecord]:
    return SetEvidence(layout.root).jobs


def known_jobs(run_set: RunSet, scheduler: Scheduler, world: World = THIS) -> dict[str, Job]:
    """Return the set's jobs in the scheduler's memory, by id.

    Without a live one, the last jobs that the list lacks are asked for by id: only the scheduler's
    word that it does not know a job means that it is gone. Raises SchedulerUnknown, and SetError
    for jobs of another host.
    """
    name, others = run_set.record.job_name, other_jobs(run_set, world)
    jobs = scheduler.jobs(names=[name], ids=others)
    if any(job.alive for job in jobs.values()):
        return jobs
    evidence = SetEvidence(run_set.layout.root)
    last = [evidence.submission.job_id] if evidence.submission else []
    last += [job.job_id for job in evidence.jobs[-1:]]
    for job_id in dict.fromkeys(last):
        job = scheduler.job(job_id) if job_id and job_id not in jobs else None
        # Another cluster's job may have the id.
        if job and (job.name == name or job_id in others):
            jobs[job_id] = job
    return jobs


def other_jobs(run_set: RunSet, world: World = THIS) -> list[str]:
    """Return jobs to query by id besides the set's name. Raises SetError for jobs of another host.

    A plain `sbatch job.sh` has its own name. Local jobs are surer by id: a process about to become
    another program has no name for a moment.
    """
    local = kind_of(run_set.record.scheduler).runs_here
    here = world.host
    ours = {record.job_id for record in submissions(run_set.layout) if record.job_id}
    unfinished = [job for job in _recorded_jobs(run_set.layout) if not job.final]
    for job in unfinished:
        if local and job.host not in ("", here):
            raise SetError(
                f"job {job.job_id} of {run_set.name} runs on {job.host}, which cannot be seen from "
                f"{here}",
                hint=f"run this command on {job.host}",
            )
    wanted = {job.job_id for job in unfinished}
    return sorted(wanted | ours if local else wanted - ours)


def _job_of(run_set: RunSet, record: SubmissionRecord, jobs: Mapping[str, Job]) -> str:
    """Return the id of `record`'s job, by scheduler or the job's files, or ""."""
    known = {other.job_id for other in submissions(run_set.layout) if other.job_id}
    named = [job.id for job in jobs.values() if job.name == record.job_name and job.id not in known]
    if named:
        return named[0]
    for job in _recorded_jobs(run_set.layout):
        if job.job_id not in known and began_after(job, record):
            return job.job_id
    return ""


def _look_for(
    run_set: RunSet,
    scheduler: Scheduler,
    record: SubmissionRecord,
    pauses: Iterable[float],
    world: World,
) -> Job | None:
    for pause_s in pauses:
        world.pause(pause_s)
        try:
            jobs = scheduler.jobs(names=[record.job_name])
        except SchedulerError:
            continue  # still no answer; the next query may get it
        job_id = _job_of(run_set, record, jobs)
        if job_id:
            return jobs.get(job_id) or Job(job_id, record.job_name, "UNKNOWN")
    return None


def missing_runs(run_set: RunSet) -> list[int]:
    """Return the runs without a final result."""
    return SetEvidence(run_set.layout.root).missing(run_set.record.nexp)


def _finished(run_set: RunSet, scheduler: Scheduler, world: World) -> SetError:
    open_records = list(_settle_by({}, run_set, world))
    if open_records:  # of jobs that left no record
        with suppress(SchedulerError, SetError):
            settle(run_set, scheduler, world)
    return SetError(
        f"{run_set.name} is done: {count(run_set.record.nexp, 'run')}; nothing is left to run",
        hint=f"orchestrator score {quoted(run_set.layout.root)}",
    )


def _closed(run_set: RunSet, job: Job) -> bool:
    """Return whether a live job has written its last record."""
    record = SetEvidence(run_set.layout.root).job
    return record is not None and record.final and record.job_id == job.id


def _already(run_set: RunSet, job: Job) -> SetError:
    root = run_set.layout.root
    if _closed(run_set, job):
        return SetError(
            f"job {job.id} ({job.state}) of {run_set.name} has closed the set and is still ending",
            hint="wait for its end, a minute at most; then:",
            fix=Fix(),
        )
    return SetError(
        f"job {job.id} ({job.state}) of {run_set.name} is alive; a set has one job at a time",
        hint=f"orchestrator watch {quoted(root)}, or end it: orchestrator cancel {quoted(root)}",
    )


def _unknown(run_set: RunSet, error: SchedulerError, message: str) -> SchedulerUnknown:
    root = run_set.layout.root
    return SchedulerUnknown(
        f"{message}\n  It is unknown whether set {run_set.name} has a job now. Nothing will be "
        "submitted twice.",
        argv=error.argv,
        returncode=error.returncode,
        stdout=error.stdout,
        stderr=error.stderr,
        hint=f"orchestrator status {quoted(root)}; when the scheduler answers again and shows no "
        "job: "
        f"orchestrator resume {quoted(root)}",
    )


def _next_number(layout: Layout, world: World) -> int:
    """Return an unused number. Raises SetError: a failed listing must not return a used number."""
    try:
        walk = SetWalk(layout.root, world.files, raise_if_away)
        return max(walk.submissions(), default=0) + 1
    except OSError as error:
        folder = layout.submissions
        raise SetError(
            f"{quoted(folder)}: {error.strerror or error}; nothing was submitted",
            hint=f"ls -l {quoted(folder)}",
        ) from error


def _record(run_set: RunSet, record: SubmissionRecord, world: World) -> SubmissionRecord:
    """Write a submission, the ledger first if it is settled or cancelled."""
    path = run_set.layout.submission(record.number)
    try:
        return write_submission(run_set.layout, record, world=world)
    except HeldError as held:
        raise SetError(f"{held}", hint="try again in a minute") from held
    except FileExistsError as error:
        raise SetError(
            f"another controller works on {run_set.name}: it has just written {path}",
            hint=f"orchestrator status {quoted(run_set.layout.root)}",
        ) from error
    except OSError as error:
        what = f"{path} cannot be written"
        raise no_room(error, what, run_set.layout.root.parent) or SetError(
            f"{what}: {error.strerror or error}", hint=f"ls -ld {quoted(path.parent)}"
        ) from error


def _withdraw(run_set: RunSet, record: SubmissionRecord, world: World) -> None:
    """Record it as refused, unless it is settled."""
    numbered = {asked.number: asked for asked in submissions(run_set.layout)}
    with suppress(SetError):
        if not numbered.get(record.number, record).settled:
            _record(run_set, replace(record, state="refused", error=WITHDRAWN), world)


def mark_cancelled(run_set: RunSet, job_id: str, world: World = THIS) -> None:
    """Mark the submission: an unstarted job leaves no other trace."""
    for record in submissions(run_set.layout):
        if record.job_id != job_id:
            continue
        with rights(run_set.layout.root, world):
            _record(run_set, replace(record, cancelled_ms=world.wall_ms()), world)


@contextmanager
def rights(root: Path, world: World) -> Iterator[None]:
    """Write into a set with the modes of its other files, whatever the user's umask."""
    try:
        mode = root.stat().st_mode
    except OSError:
        mode = 0
    before = world.umask(0o022)
    world.umask(umask_for("a group" if mode & 0o2020 == 0o2020 else "", before))
    try:
        yield
    finally:
        world.umask(before)
