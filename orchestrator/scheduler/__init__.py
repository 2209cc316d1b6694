"""A scheduler as the controller uses it: four methods, with one query for any number of jobs.

    submit(JobRequest) -> job id           SchedulerError: refused. SchedulerUnknown: there may be
                                           a job now
    jobs(names=..., ids=...) -> {id: Job}  SchedulerUnknown: no answer; nothing follows from it
    cancel(job_id, grace_s) -> bool        True when the job is known to be over
    cluster() -> str                       the name of the cluster, as a lease records it;
                                           "" if it is unknown

The state of a job is the code that Slurm gives it, with the local scheduler too. Its meaning is
`Job.account`. No other package names Slurm's programs, variables or codes: `advice` has the
commands for people, `slurm_states` and `slurm_reasons` the codes, `slurm_step` and
`slurm_variables` the way to nodes of an allocation.
"""

from __future__ import annotations

from orchestrator.scheduler.job import Job, JobRequest, Scheduler

__all__ = ["Job", "JobRequest", "Scheduler", "open_scheduler"]


def open_scheduler(name: str) -> Scheduler:
    """Return the back end called `name`. Raises SchedulerError for an unknown name."""
    if name == "slurm":
        from orchestrator.scheduler.slurm import Slurm

        return Slurm()
    if name == "local":
        from orchestrator.scheduler.local import Local

        return Local()
    from orchestrator.errors import SchedulerError

    raise SchedulerError(
        f"there is no scheduler {name!r}", hint="use `scheduler: slurm` or `scheduler: local`"
    )
