"""Whether and why a job is ended, and so closes its set: from its signals and from what Slurm says of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..system import ENDED_STATES

TIME_LIMIT = ("time_limit", "the time limit of the job is near")
CANCELLED = ("cancelled", "ended by a signal (scancel or cancel)")
PREEMPTED = ("paused", "pre-empted by a job of higher priority")

_TOLD = re.compile(r"\b(?:JobState|Reason|PreemptTime)=\S+")
FORGOTTEN = "JobState=FORGOTTEN"
"""Our word for a job that Slurm does not know any more: it has ended some minutes ago (MinJobAge)."""


def telling(shown: str) -> str:
    """Return what of the words of `scontrol show job` tells why a job ends; "" where nothing does."""
    if "Invalid job id" in shown:
        return FORGOTTEN
    return " ".join(_TOLD.findall(shown))[:200]


def ending(signals: Sequence[str], told: str) -> tuple[str, str]:
    """Return the state of the job and its reason in words. `signals`: names in order; `told`: of `telling`, "" without an answer.

    A job that is pre-empted, or at its time limit, gets the signals of one that is cancelled. While it is pre-empted with a grace
    time its state is RUNNING, then COMPLETING: PreemptTime tells; of one at its limit the reason does.
    """
    about = _read(told)
    if list(signals) == ["SIGUSR1"] or about.get("JobState") == "TIMEOUT" or about.get("Reason") == "TimeLimit":
        return TIME_LIMIT
    return PREEMPTED if _preempted(about) else CANCELLED


def is_ended(told: str) -> bool:
    """Return whether Slurm is ending the job, by the words of `telling`: it writes that down before it tells any process."""
    about = _read(told)
    return _preempted(about) or about.get("JobState") in (*ENDED_STATES, "COMPLETING", "FORGOTTEN")


def _read(told: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in told.split())


def _preempted(about: Mapping[str, str]) -> bool:
    return about.get("JobState") == "PREEMPTED" or about.get("PreemptTime", "None") not in ("None", "N/A", "Unknown")
