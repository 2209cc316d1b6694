"""The state of a set in one word, from what its files say and what the scheduler says."""

from __future__ import annotations

import os

from orchestrator.evidence.progress import read_end
from orchestrator.evidence.sets import SetEvidence, SubmissionRecord
from orchestrator.evidence.waits import words_of
from orchestrator.onnode.records import JobRecord, SetRecord
from orchestrator.scheduler import Job

STATES = {
    "new": "created, never submitted",
    "unknown": "the scheduler did not answer to the submission",
    "refused": "the scheduler refused the job",
    "pending": "in the queue",
    "starting": "containers are starting",
    "running": "runs are going on",
    "ending": "the job is being closed",
    "complete": "every run is final",
    "cancelled": "ended by cancel or scancel; resume goes on",
    "time_limit": "ended by the job's time limit; resume goes on",
    "paused": "the allocation could not go on; resume goes on",
    "failed": "nothing could start",
    "lost": "the job is gone without having closed the set; resume goes on",
    "damaged": "set.json cannot be read, or not be used",
}
"""Every state of a set, in words."""

LIVE = frozenset({"unknown", "pending", "starting", "running", "ending"})
"""States that change by themselves."""


def judge(files: SetEvidence, jobs: dict[str, Job] | None) -> tuple[str, str, Job | None]:
    """Return (state, reason, the scheduler's job) of a set with a readable set.json."""
    known, own, asked = _job(files, jobs), files.job, files.submission
    if files.awaited and asked is not None:
        state, reason = _judge_awaited(asked, known, answered=jobs is not None)
        return state, reason + (_last_words(files, asked.job_id) if state == "lost" else ""), known
    if own is not None and own.final:
        return own.state, own.reason, None
    if own is not None:
        return *_judge_working(own, known, jobs, files.record), known
    return ("new", "", None) if asked is None else ("refused", words_of(asked.error), None)


def _judge_awaited(asked: SubmissionRecord, known: Job | None, *, answered: bool) -> tuple[str, str]:
    if known is not None:
        return _judge_queued(known)
    if not asked.settled:
        return "unknown", asked.error or "the submission was interrupted"
    if not answered:
        return "pending", "the scheduler does not answer; the job has written nothing yet"
    if asked.cancelled_ms:
        return "cancelled", "cancelled before it started"
    return "lost", f"job {asked.job_id} is gone and has written no state"


def _last_words(files: SetEvidence, job_id: str) -> str:
    """Return the last line that the job printed, which is why it ended before it had a state."""
    lines = read_end(files.layout.job_output(job_id), 2048).decode("utf-8", "replace").split("\n")
    words = [line.strip() for line in lines if line.strip()]
    return f"; its last words: {words[-1]}" if words else f"; it printed nothing (no job_{job_id}.out)"


def _job(files: SetEvidence, jobs: dict[str, Job] | None) -> Job | None:
    if jobs is None or files.record is None:
        return None
    if files.job_id:
        return jobs.get(files.job_id)
    # A submission without an answer has no id, but its job would carry the set's name.
    return next((job for job in jobs.values() if job.name == files.record.job_name), None)


def _judge_working(
    own: JobRecord, known: Job | None, jobs: dict[str, Job] | None, record: SetRecord | None
) -> tuple[str, str]:
    if jobs is None:
        return own.state, "the scheduler does not answer; this is what the job's files say"
    if record is not None and record.scheduler == "local" and own.host not in ("", os.uname().nodename):
        return own.state, f"runs on {own.host}; this is what its files say"
    if known is None:
        return "lost", f"job {own.job_id} is gone without having closed the set"
    if not known.alive:
        return "lost", f"job {own.job_id} is {known.state} without having closed the set"
    if known.waiting:
        return "pending", words_of(queue_words(known))
    return ("ending", "") if known.state == "COMPLETING" else (own.state, own.reason)


def _judge_queued(known: Job) -> tuple[str, str]:
    if not known.alive:
        return (
            "cancelled" if known.state == "CANCELLED" else "lost",
            f"job {known.id} is {known.state} and has written no state",
        )
    if known.waiting:
        return "pending", words_of(queue_words(known))
    return "starting", "" if known.state == "RUNNING" else known.state


def queue_words(known: Job) -> str:
    """Return why a job waits in Slurm's words, with its state where that is not just PENDING."""
    if known.state == "PENDING":
        return known.reason
    return f"{known.state}: {known.reason}" if known.reason else known.state
