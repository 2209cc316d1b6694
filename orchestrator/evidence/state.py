"""The state of a set in one word, from its files and the scheduler."""

from __future__ import annotations

import os

from orchestrator.evidence.progress import read_end
from orchestrator.evidence.sets import SetEvidence, SubmissionRecord
from orchestrator.onnode.kernel.records import JobRecord
from orchestrator.onnode.kernel.world import THIS, World

TYPE_CHECKING = False
if TYPE_CHECKING:
    from orchestrator.scheduler import Job

STATES = {
    "new": "created, never submitted",
    "unknown": "whether the submission made a job is not known yet",
    "refused": "the scheduler refused the job, or it never appeared",
    "pending": "in the queue",
    "held": "in the queue, and held; scontrol release lets it go",
    "suspended": "Slurm has suspended the job",
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

LIVE = frozenset({"unknown", "pending", "held", "suspended", "starting", "running", "ending"})
"""States that still change."""

GRACE_S = 120
"""After this time without a trace of the job, an answering scheduler's "no such job" counts.
slurmctld takes a request within MessageTimeout (10 s by default, 100 s at most) or drops it."""

NEVER = "no job of this name ever appeared"
QUEUED = frozenset({"pending", "held"})
"""States of a set whose job waits in the scheduler's queue, which has the reason."""

_HELD = ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "launch_failed_requeued_held")
_RELEASE = "it starts after: scontrol release {0} (or `orchestrator cancel`, then `resume`)"
_AGAIN = "goes on at the first missing run"
_ODD = {
    "REQUEUED": ("pending", f"Slurm has put job {{0}} back into the queue; it {_AGAIN}"),
    "REQUEUE_FED": ("pending", f"job {{0}} goes to another cluster of the federation; it {_AGAIN}"),
    "REQUEUE_HOLD": (
        "held",
        f"Slurm has put job {{0}} back into the queue and holds it; {_RELEASE}",
    ),
    "SPECIAL_EXIT": ("held", f"job {{0}} is held after a special exit; {_RELEASE}"),
    "RESV_DEL_HOLD": ("held", f"the reservation of job {{0}} is gone; {_RELEASE}"),
    "SUSPENDED": (
        "suspended",
        "Slurm has suspended job {0}; it goes on by itself, or after: scontrol resume {0}",
    ),
    "STOPPED": (
        "suspended",
        "the processes of job {0} are stopped; they go on after: scancel --signal=CONT {0}",
    ),
}
"""States of a job that waits for something other than nodes: the set's state, in words, and the
way out."""
_END = {
    "CANCELLED": ("cancelled", "was cancelled"),
    "TIMEOUT": ("time_limit", "was ended by its time limit"),
    "DEADLINE": ("lost", "was ended by its deadline (--deadline: leave it out, or move it)"),
    "PREEMPTED": ("lost", "was pre-empted by a job of higher priority"),
    "NODE_FAIL": ("lost", "lost its batch host (resume with --exclude NODE keeps off it)"),
    "BOOT_FAIL": (
        "lost",
        "got nodes that did not boot (resume with --exclude NODE keeps off them)",
    ),
    "OUT_OF_MEMORY": (
        "lost",
        (
            "was killed for want of memory on its batch host (--mem=0 in the site's `sbatch` asks for "
            "all)"
        ),
    ),
    "REVOKED": ("lost", "was taken over by another cluster of the federation"),
}
"""Ends of a job by Slurm, without closing its set: the set's state, in words, and what to do
before `resume`."""


def appears_within_s(asked: SubmissionRecord, world: World = THIS) -> float:
    """Return for how many more seconds a submission without an outcome may make a job; at most 0
    if it never did."""
    return GRACE_S - (world.wall_ms() - asked.requested_ms) / 1000


def judge(files: SetEvidence, jobs: dict[str, Job] | None) -> tuple[str, str, Job | None]:
    """Return (state, reason, the scheduler's job) of a set with a readable set.json."""
    known, own, asked = _job(files, jobs), files.job, files.submission
    if not files.settled and files.copy_of:
        return "lost", f"this is a copy of {files.copy_of}, and its jobs work on that", None
    if not files.settled and files.record is not None and files.record.rehearsed:
        return "lost", "the rehearsal ended, and its job had not closed the set", None
    if files.awaited and asked is not None:
        state, reason = _judge_awaited(files, asked, known, answered=jobs is not None)
        return state, reason + (_last_words(files, asked.job_id) if state == "lost" else ""), known
    if own is not None and own.final:
        return own.state, own.reason, None
    if own is not None:
        return *_judge_working(files, own, known, jobs), known
    return ("new", "", None) if asked is None else ("refused", _in_words(asked.error), None)


def _in_words(text: str) -> str:
    """Return Slurm's text with its meaning. The table of its reasons is loaded only if needed:
    most sets are settled."""
    from orchestrator.evidence.waits import words_of

    return words_of(text)


def _unseen(files: SetEvidence, asked: SubmissionRecord) -> str:
    """Return why the job of a submission may exist but not be shown here; "" if it would be
    shown."""
    from orchestrator.evidence.lease import submitter
    from orchestrator.onnode.policy.lease import unseen

    return unseen(submitter(asked), THIS.holder(cluster=_cluster(files))) if asked.by else ""


def _judge_awaited(
    files: SetEvidence, asked: SubmissionRecord, known: Job | None, *, answered: bool
) -> tuple[str, str]:
    if known is not None:
        return _judge_queued(known)
    if not asked.settled:
        return _judge_unsettled(files, asked, answered=answered)
    if not answered:
        return "pending", "the scheduler does not answer; the job has written nothing yet"
    if asked.cancelled_ms:
        return "cancelled", "cancelled before it started"
    if why := _unseen(files, asked):
        return "pending", f"job {asked.job_id} has not begun, and is not shown here: {why}"
    return "lost", f"job {asked.job_id} is gone and has written no state"


def _judge_unsettled(
    files: SetEvidence, asked: SubmissionRecord, *, answered: bool
) -> tuple[str, str]:
    """Describe a submission without an outcome and a job, as `resume` would find it: it settles
    it, `status` does not."""
    words = asked.error or "the submission was interrupted"
    if not answered:
        return "unknown", f"{words}; the scheduler does not answer now"
    if why := _unseen(files, asked):
        return "unknown", f"{words}; a job of it is not shown here: {why}"
    if (left_s := appears_within_s(asked)) > 0:
        return (
            "unknown",
            f"{words}; there is no job of it yet, one may appear within {left_s:.0f} s",
        )
    return "refused", f"{words}, and {NEVER}; resume submits it again"


def _last_words(files: SetEvidence, job_id: str) -> str:
    """Return the last line of the job's output, which explains its end before it had a state."""
    lines = read_end(files.layout.job_output(job_id), 2048).decode("utf-8", "replace").split("\n")
    words = [line.strip() for line in lines if line.strip()]
    return (
        f"; its last words: {words[-1]}" if words else f"; it printed nothing (no job_{job_id}.out)"
    )


def _job(files: SetEvidence, jobs: dict[str, Job] | None) -> Job | None:
    if jobs is None or files.record is None:
        return None
    if files.job_id:
        return jobs.get(files.job_id)
    # A submission without an answer has no id, but its job would carry the set's name.
    return next((job for job in jobs.values() if job.name == files.record.job_name), None)


def _judge_working(
    files: SetEvidence, own: JobRecord, known: Job | None, jobs: dict[str, Job] | None
) -> tuple[str, str]:
    record = files.record
    if jobs is None:
        return own.state, "the scheduler does not answer; this is what the job's files say"
    if (
        record is not None
        and record.scheduler == "local"
        and own.host not in ("", os.uname().nodename)
    ):
        return own.state, f"runs on {own.host}; this is what its files say"
    if known is None or not known.alive:
        if held := _held(files, jobs):
            return (
                own.state,
                f"job {own.job_id} is not shown here: {held}; this is what its files say",
            )
        state, words = (
            ("lost", "is gone")
            if known is None
            else _END.get(known.state, ("lost", f"is {known.state}"))
        )
        return state, f"job {own.job_id} {words} without having closed the set"
    if known.waiting or known.state in _ODD:
        return _judge_queued(known)
    return ("ending", "") if known.state == "COMPLETING" else (own.state, own.reason)


def _held(files: SetEvidence, jobs: dict[str, Job]) -> str:
    """Return why a job that is not shown here may still be running; "" if it has ended."""
    from orchestrator.evidence.lease import held_by

    viewer = THIS.holder(cluster=_cluster(files))
    found = held_by(files.layout, viewer, jobs)
    if found is None or found[1].gone or (files.job and found[0].job not in ("", files.job.job_id)):
        return ""
    return found[1].why


def _cluster(files: SetEvidence) -> str:
    if files.record is None or files.record.scheduler != "slurm":
        return ""
    from orchestrator.scheduler.slurm import cluster_name

    return cluster_name()


def _judge_queued(known: Job) -> tuple[str, str]:
    if known.state == "PENDING" and known.reason in _HELD:
        return "held", f"{_in_words(queue_words(known))}; {_RELEASE.format(known.id)}"
    if known.state in _ODD:
        state, words = _ODD[known.state]
        return state, words.format(known.id) + (f" ({known.reason})" if known.reason else "")
    if not known.alive:
        state, words = _END.get(known.state, ("lost", f"is {known.state}"))
        return state, f"job {known.id} {words} and has written no state"
    if known.waiting:
        return "pending", _in_words(queue_words(known))
    return "starting", "" if known.state == "RUNNING" else known.state


def queue_words(known: Job) -> str:
    """Return why a job waits in Slurm's words, with its state unless that is just PENDING."""
    if known.state == "PENDING":
        return known.reason
    return f"{known.state}: {known.reason}" if known.reason else known.state
