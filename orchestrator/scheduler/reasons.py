"""Causes of waits, refusals and ends of jobs, for readers of sets."""

from __future__ import annotations

import re

from orchestrator.causes.cause import Cause
from orchestrator.causes.lines import cause_in
from orchestrator.scheduler import slurm_reasons
from orchestrator.scheduler.slurm_step import STEP_REMARKS

_JOB_ENDS = frozenset({"time_limit", "cancelled", "preempted"})
TIME_LIMIT = next(cause for cause in slurm_reasons.REASONS if cause.name == "time_limit")

with_meaning = slurm_reasons.with_meaning
refused_step = slurm_reasons.refused_step


def cause_of(text: str) -> Cause | None:
    """Return the cause of a scheduler's state, reason or refusal."""
    return cause_in(text, slurm_reasons.REASONS)


def ends_job(cause: Cause) -> bool:
    """Return whether a cause is how the scheduler ended a job, not why."""
    return cause.name in _JOB_ENDS


def is_remark(line: str) -> bool:
    """Return whether a line of a scheduler's program reports no error."""
    return re.match(STEP_REMARKS, line) is not None
