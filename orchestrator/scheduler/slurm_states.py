"""The meaning of Slurm's job states and reasons: a phase, and a text for people."""

from __future__ import annotations

from typing import Literal, NamedTuple

from orchestrator.onnode.kernel.jobs import ENDED_STATES
from orchestrator.scheduler import advice
from orchestrator.words import quoted

Phase = Literal["pending", "held", "suspended", "starting", "running", "ending", "ended"]
EndCause = Literal["", "cancelled", "time_limit", "lost"]


class Account(NamedTuple):
    """A job in plain terms: phase, reason of a wait or an end, cause of an end."""

    phase: Phase
    text: str = ""
    cause: EndCause = ""
    """The text continues "job 7 ..."; "lost" is every end but a cancel and a time limit."""


_HOLD_REASONS = ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "launch_failed_requeued_held")
_RELEASE = f"it starts after: {advice.release('{0}')} (or `orchestrator cancel`, then `resume`)"
_AGAIN = "continues at the first missing run"

_INTERRUPTED: dict[str, tuple[Phase, str]] = {
    "REQUEUED": ("pending", f"Slurm has put job {{0}} back into the queue; it {_AGAIN}"),
    "REQUEUE_FED": ("pending", f"job {{0}} goes to another cluster of the federation; it {_AGAIN}"),
    "REQUEUE_HOLD": (
        "held",
        f"Slurm has put job {{0}} back into the queue and holds it; {_RELEASE}",
    ),
    "SPECIAL_EXIT": ("held", f"job {{0}} is held after a special exit; {_RELEASE}"),
    "RESV_DEL_HOLD": ("held", f"the reservation of job {{0}} has ended; {_RELEASE}"),
    "SUSPENDED": (
        "suspended",
        f"Slurm has suspended job {{0}}; it continues by itself, or after: {advice.resume('{0}')}",
    ),
    "STOPPED": (
        "suspended",
        (
            "the processes of job {0} are stopped; they continue after: "
            f"{advice.continue_stopped('{0}')}"
        ),
    ),
}
"""States of a job that waits for something other than nodes, with the remedy."""

_ENDS: dict[str, tuple[EndCause, str]] = {
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
            "was killed for want of memory on its batch host "
            "(--mem=0 in the site's `sbatch` asks for all)"
        ),
    ),
    "REVOKED": ("lost", "was taken over by another cluster of the federation"),
}


_NO_REASONS = ("", "None", "NonZeroExitCode", "Cleaning")
"""They add nothing to an ended job's state."""


def has_ended(state: str) -> bool:
    """Return whether a job is over. An unknown state counts as alive."""
    return state in ENDED_STATES


def is_queued(state: str) -> bool:
    """Return whether Slurm may still start (or restart) the job, and nothing of it runs."""
    return state == "PENDING" or _INTERRUPTED.get(state, ("suspended",))[0] != "suspended"


def account(job_id: str, state: str, reason: str) -> Account:
    if state in _INTERRUPTED:
        phase, text = _INTERRUPTED[state]
        return Account(phase, text.format(quoted(job_id)) + (f" ({reason})" if reason else ""))
    if state == "PENDING":
        if reason in _HOLD_REASONS:
            return Account("held", f"{_with_meaning(reason)}; {_RELEASE.format(quoted(job_id))}")
        return Account("pending", _with_meaning(reason))
    if has_ended(state):
        cause, text = _ENDS.get(state, ("lost", state.lower()))  # failed, completed
        is_explained = state not in _ENDS and reason not in _NO_REASONS
        return Account("ended", f"{text}: {_with_meaning(reason)}" if is_explained else text, cause)
    if state == "RUNNING":
        return Account("running")
    return Account("ending" if state == "COMPLETING" else "starting", state)


def reason_after_start(reason: str) -> str:
    """Return the reason of a started job: to Slurm every exit code 0:9 is a failed launch."""
    return "" if reason == "JobLaunchFailure" else reason


def wait_reason(state: str, reason: str) -> str:
    """Return why it waits in Slurm's terms, after the state unless PENDING."""
    if state == "PENDING":
        return reason
    return f"{state}: {reason}" if reason else state


def _with_meaning(reason: str) -> str:
    # Most sets are settled, and do not need the table of reasons.
    from orchestrator.scheduler.slurm_reasons import with_meaning

    return with_meaning(reason)
