"""The state of a set in one word, from its files and the scheduler."""

from __future__ import annotations

import os

from orchestrator.evidence.sets import SetEvidence, SubmissionRecord
from orchestrator.onnode.kernel.records import JobRecord
from orchestrator.onnode.kernel.world import THIS, World
from orchestrator.scheduler import open_scheduler
from orchestrator.scheduler.advice import CANCEL, RELEASE, SCHEDULER
from orchestrator.scheduler.kinds import APPEARS_WITHIN_S, kind_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from orchestrator.scheduler.job import Job

STATES = {
    "new": "created, never submitted",
    "unknown": "whether the submission made a job is not known yet",
    "refused": "the scheduler refused the job, or it never appeared",
    "pending": "in the queue",
    "held": f"in the queue, and held; {RELEASE} lets it go",
    "suspended": f"{SCHEDULER} has suspended the job",
    "starting": "containers are starting",
    "running": "runs are active",
    "ending": "the job is being closed",
    "complete": "every run is final",
    "cancelled": f"ended by cancel or {CANCEL}; `resume` continues",
    "time_limit": "ended by the job's time limit; `resume` continues",
    "paused": "the allocation could not continue; `resume` continues",
    "failed": "nothing could start",
    "lost": "the job ended without closing the set; `resume` continues",
    "damaged": "set.json cannot be read or used",
}
"""Every state of a set, in words."""

LIVE = frozenset({"unknown", "pending", "held", "suspended", "starting", "running", "ending"})
"""States that still change."""

_SILENT = "no answer from the scheduler; showing the job's own files"
_INTERRUPTED = "the submission was interrupted"
NEVER = "no job of this name ever appeared"
QUEUED = frozenset({"pending", "held"})
"""States of a set whose job waits in the scheduler's queue."""
WAITING_PHASES = frozenset({"pending", "held", "suspended"})
"""Phases of a job that are states of its set, too."""


def appears_within_s(asked: SubmissionRecord, world: World = THIS) -> float:
    """Return how many more seconds a submission without an outcome may take to make a job; at most
    0 if it never did."""
    return APPEARS_WITHIN_S - (world.wall_ms() - asked.requested_ms) / 1000


def judge(
    files: SetEvidence, jobs: dict[str, Job] | None, *, asked: bool = True
) -> tuple[str, str, Job | None]:
    """Return (state, reason, the scheduler's job) of a set with a readable set.json.

    `jobs` is None without an answer: the scheduler is silent, or with `asked` False was not asked
    so far.
    """
    known, job, submission = _job(files, jobs), files.job, files.submission
    if not files.settled and files.copy_of:
        return "lost", f"this is a copy of {files.copy_of}, and its jobs work on that", None
    if not files.settled and files.record is not None and files.record.rehearsed:
        return "lost", "the rehearsal ended, and its job had not closed the set", None
    if files.awaited and submission is not None:
        if jobs is None:
            return *_judge_unanswered(submission, asked=asked), None
        state, reason = _judge_awaited(files, submission, known)
        last = _last_words(files, submission.job_id) if state == "lost" else ""
        return state, reason + last, known
    if job is not None and job.final and (job.state == "complete" or not files.has_every_run):
        return job.state, job.reason, None
    if job is not None and not job.final:
        if jobs is None:
            return job.state, _SILENT if asked else job.reason, None
        return *_judge_working(files, job, known, jobs), known
    if files.has_every_run:  # the last job was stopped as it ended, or its state is lost
        return "complete", "", None
    if submission is None:
        return "new", "", None
    return "refused", _in_words(submission.error), None


def _in_words(text: str) -> str:
    """Return the scheduler's text with its meaning, whose table most sets do not need."""
    from orchestrator.scheduler.reasons import with_meaning

    return with_meaning(text)


def _unseen(files: SetEvidence, asked: SubmissionRecord) -> str:
    """Return why a submission's job may exist but not be shown here, or ""."""
    from orchestrator.evidence.lease import submitter
    from orchestrator.onnode.policy.lease import unseen

    return unseen(submitter(asked), THIS.holder(cluster=_cluster(files))) if asked.by else ""


def _judge_unanswered(submission: SubmissionRecord, *, asked: bool) -> tuple[str, str]:
    if submission.settled:
        silent = "no answer from the scheduler; the job has written nothing yet"
        return "pending", silent if asked else ""
    text = submission.error or _INTERRUPTED
    return "unknown", f"{text}; no answer from the scheduler now" if asked else text


def _judge_awaited(
    files: SetEvidence, asked: SubmissionRecord, known: Job | None
) -> tuple[str, str]:
    if known is not None:
        return _judge_queued(known)
    if not asked.settled:
        return _judge_unsettled(files, asked)
    if asked.cancelled_ms:
        return "cancelled", "cancelled before it started"
    if why := _unseen(files, asked):
        return "pending", f"job {asked.job_id} has not started, and is not shown here: {why}"
    return "lost", f"job {asked.job_id} ended before it started the set"


def _judge_unsettled(files: SetEvidence, asked: SubmissionRecord) -> tuple[str, str]:
    """Describe a submission without outcome and job, as `resume` would settle it."""
    from orchestrator.evidence.lease import held_by

    text = asked.error or _INTERRUPTED
    if why := _unseen(files, asked):
        return "unknown", f"{text}; a job of it is not shown here: {why}"
    if held := held_by(files.layout.lock, THIS.holder(), {}):
        silent = asked.error or "no answer so far"
        return "unknown", f"{silent}; {held[0]} is submitting it: {held[1].why}"
    if (left_s := appears_within_s(asked)) > 0:
        return (
            "unknown",
            f"{text}; there is no job of it yet, one may appear within {left_s:.0f} s",
        )
    return "refused", f"{text}, and {NEVER}; resume submits it again"


def _last_words(files: SetEvidence, job_id: str) -> str:
    """Return the last line of the job's output, which explains its end before it had a state."""
    from orchestrator.evidence.own_causes import last_line  # rarely needed

    line = last_line(files.layout.job_output(job_id), files.findings.inside)
    return f"; the job's last line: {line}" if line else "; the job printed nothing"


def _job(files: SetEvidence, jobs: dict[str, Job] | None) -> Job | None:
    if jobs is None or files.record is None:
        return None
    if files.job_id:
        return jobs.get(files.job_id)
    # A submission without an answer has no id, but its job has the set's name.
    return next((job for job in jobs.values() if job.name == files.record.job_name), None)


def _judge_working(
    files: SetEvidence, job: JobRecord, known: Job | None, jobs: dict[str, Job]
) -> tuple[str, str]:
    record = files.record
    if (
        record is not None
        and kind_of(record.scheduler).runs_here
        and job.host not in ("", os.uname().nodename)
    ):
        return job.state, f"runs on {job.host}; this state is from its files"
    if known is None or not known.alive:
        if held := _held(files, jobs):
            return (
                job.state,
                f"job {job.job_id} is not shown here: {held}; this state is from its files",
            )
        account = known.as_started.account if known else None
        text = account.text if account else "ended"
        state = account.cause if account else "lost"
        return state, f"job {job.job_id} {text} without closing the set"
    if known.account.phase in WAITING_PHASES:
        return _judge_queued(known)
    return ("ending", "") if known.account.phase == "ending" else (job.state, job.reason)


def _held(files: SetEvidence, jobs: dict[str, Job]) -> str:
    """Return why a job that is not shown here may still be running, or ""."""
    from orchestrator.evidence.lease import held_by

    held = held_by(files.layout.loop_lock, THIS.holder(cluster=_cluster(files)), jobs)
    if held is None:
        return ""
    holder, verdict = held
    is_another = files.job is not None and holder.job not in ("", files.job.job_id)
    return "" if is_another else verdict.why


def _cluster(files: SetEvidence) -> str:
    if files.record is None or not kind_of(files.record.scheduler).allocates:
        return ""
    return open_scheduler(files.record.scheduler).cluster()


def _judge_queued(known: Job) -> tuple[str, str]:
    phase, text, cause = known.account
    if phase in WAITING_PHASES:
        return phase, text
    if phase == "ended":
        return cause, f"job {known.id} {text}; the set had not started"
    return "starting", text
