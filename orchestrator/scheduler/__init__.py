"""A scheduler for the controller, with one query for any number of jobs.

    submit(JobRequest) -> job id           SchedulerError: refused. SchedulerUnknown: a job may
                                           exist now
    jobs(names=..., ids=...) -> {id: Job}  SchedulerUnknown: no answer; nothing follows from it
    cancel(job_id, grace_s) -> bool        True when the job is known to be over
    cluster() -> str                       the cluster's name in a lease; "" if unknown

A job's state is Slurm's code, with the local scheduler too; `Job.account` has its meaning. Slurm's
programs, variables and codes are named in the modules `slurm_*` here, in `advice` (commands for
people), in `onnode/kernel/jobs.py` and `onnode/loop/slurm.py`, alone.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `status` needs a state's words and none of the jobs
if TYPE_CHECKING:
    from orchestrator.scheduler.job import Scheduler


def open_scheduler(name: str) -> Scheduler:
    """Return a back end. Raises SchedulerError for an unknown name."""
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
