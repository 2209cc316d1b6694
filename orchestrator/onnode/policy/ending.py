"""Whether and why a job is ended, and so closes its set: from its signals and from what Slurm says of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..system import ENDED_STATES

TIME_LIMIT = ("time_limit", "the time limit of the job is near")
CANCELLED = ("cancelled", "ended by a signal (scancel or cancel)")
PREEMPTED = ("paused", "pre-empted by a job of higher priority")

_TOLD = re.compile(r"\b(?:JobState|PreemptTime)=\S+")


def telling(shown: str) -> str:
    """Return what of the words of `scontrol show job` tells why a job ends; "" where nothing does."""
    return " ".join(_TOLD.findall(shown))[:200]


def ending(signals: Sequence[str], told: str) -> tuple[str, str]:
    """Return the state of the job and its reason in words. `signals`: names in order; `told`: of `telling`, "" without an answer.

    A job that is pre-empted gets the signals of one that is cancelled. While it has its grace time its state is still RUNNING, then
    COMPLETING: PreemptTime tells.
    """
    if list(signals) == ["SIGUSR1"]:
        return TIME_LIMIT
    state, preempted = _read(told)
    return PREEMPTED if preempted or state == "PREEMPTED" else CANCELLED


def is_ended(told: str) -> bool:
    """Return whether Slurm is ending the job, by the words of `telling`: it writes that down before it tells any process."""
    state, preempted = _read(told)
    return preempted or state == "COMPLETING" or state in ENDED_STATES


def _read(told: str) -> tuple[str, bool]:
    """Return the job's state, and whether another job takes its nodes."""
    about = dict(word.split("=", 1) for word in told.split())
    return about.get("JobState", ""), about.get("PreemptTime", "None") not in ("None", "N/A", "Unknown")
