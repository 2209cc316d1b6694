"""Whether and why a job is ended, and so closes its set: from its signals and from what Slurm says of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..kernel.system import ENDED_STATES, UNKNOWN_JOB

TIME_LIMIT = ("time_limit", "the time limit of the job is near")
CANCELLED = ("cancelled", "ended by a signal (scancel or cancel)")
PREEMPTED = ("paused", "pre-empted by a job of higher priority")

_FORGOTTEN = "FORGOTTEN"
"""Our state of a job that Slurm does not know any more: it ended some minutes ago (MinJobAge)."""
_FIELDS = re.compile(r"\b(?:JobState|Reason|PreemptTime)=\S+")


def job_fields(shown: str) -> str:
    """Return the fields of `scontrol show job` by which a job's end is explained; "" without any."""
    if UNKNOWN_JOB in shown:
        return f"JobState={_FORGOTTEN}"
    return " ".join(_FIELDS.findall(shown))[:200]


def ending(signals: Sequence[str], fields: str) -> tuple[str, str]:
    """Return the state of the job and its reason. `signals`: names in order; `fields`: of `job_fields`, "" without an answer.

    A job that is pre-empted, or at its time limit, gets the signals of one that is cancelled. In the grace time of a pre-emption
    its state is RUNNING, then COMPLETING, and PreemptTime is set; at the time limit Reason is.
    """
    about = _parsed(fields)
    if (
        list(signals) == ["SIGUSR1"]
        or about.get("JobState") == "TIMEOUT"
        or about.get("Reason") == "TimeLimit"
    ):
        return TIME_LIMIT
    return PREEMPTED if _preempted(about) else CANCELLED


def is_ended(fields: str) -> bool:
    """Return whether Slurm is ending the job: it records that before it signals any process."""
    about = _parsed(fields)
    return _preempted(about) or about.get("JobState") in (*ENDED_STATES, "COMPLETING", _FORGOTTEN)


def _parsed(fields: str) -> dict[str, str]:
    return dict(field.split("=", 1) for field in fields.split())


def _preempted(about: Mapping[str, str]) -> bool:
    return about.get("JobState") == "PREEMPTED" or about.get("PreemptTime", "None") not in (
        "None",
        "N/A",
        "Unknown",
    )
