"""End the jobs of a set."""

from __future__ import annotations

from orchestrator.errors import SchedulerUnknown
from orchestrator.evidence.lease import held_by
from orchestrator.evidence.sets import RunSet, SetEvidence
from orchestrator.evidence.state import appears_within_s
from orchestrator.onnode.kernel.world import THIS, World
from orchestrator.runset.submit import known_jobs, mark_cancelled, refuse_copy, refuse_unseen
from orchestrator.scheduler.job import Scheduler


def cancel(
    run_set: RunSet, scheduler: Scheduler, grace_s: float, world: World = THIS
) -> dict[str, bool]:
    """End every live job of the set; return {job id: whether it has ended}.

    Takes no lock: another controller may hang. Raises SchedulerError,
    SchedulerUnknown, and SetError for a copy of a set.
    """
    refuse_copy(run_set)
    known = known_jobs(run_set, scheduler, world)
    evidence = SetEvidence(run_set.layout.root)
    asked = evidence.submissions
    gone: dict[str, bool] = {}
    for job in known.values():
        if job.alive:
            gone[job.id] = scheduler.cancel(job.id, grace_s)
            mark_cancelled(run_set, job.id, world)
    if gone:
        return gone
    viewer = world.holder(cluster=scheduler.cluster())
    if evidence.awaited and not asked[-1].settled:
        if held := held_by(run_set.layout.lock, viewer, {}, world):
            raise SchedulerUnknown(
                f"set {run_set.name}: a job of it is being submitted by {held[0]}: {held[1].why}",
                hint="end that process, or ask again when it has ended",
            )
        if appears_within_s(asked[-1], world) > 0:
            raise SchedulerUnknown(
                f"set {run_set.name}: its submission got no answer and there is no job of it now",
                hint="one may still appear; ask again in a minute",
            )
    refuse_unseen(run_set, known, viewer, world)
    if scheduler.runs_here:
        return _left_overs(scheduler, [record.job_id for record in asked if record.job_id])
    return gone


def _left_overs(scheduler: Scheduler, job_ids: list[str]) -> dict[str, bool]:
    """End the processes of dead local jobs. (Slurm's daemons do that themselves.)"""
    from orchestrator.scheduler.local import members

    return {job_id: scheduler.cancel(job_id, 0) for job_id in job_ids if members(job_id)}
