"""Check a job's time against its partition before a set is made, with the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import SchedulerError, UsageError
from orchestrator.render.job_time import job_time
from orchestrator.scheduler.slurm_nodes import limit_may_differ, minutes_of, partition_limits
from orchestrator.words import count, duration

if TYPE_CHECKING:
    from orchestrator.model import Entry, Site


def refuse_too_long(entry: Entry, nexp: int) -> None:
    """Raise UsageError if no partition of the site allows the time of the job of `nexp` runs.

    Nothing is refused without an answer of Slurm, or if the partition is not decisive: a QOS can
    allow more than its partition, and the site's further sbatch options win over ours.
    """
    site = entry.site
    if site.scheduler != "slurm" or site.qos or limit_may_differ(site.sbatch):
        return
    time_asked = job_time(entry)
    asked = minutes_of(site.time_limit) if site.time_limit else time_asked.minutes(nexp)
    try:
        limits = partition_limits(site.partition)
    except SchedulerError:
        return
    known = [limit for limit in limits.values() if limit is not None]
    if asked is None or not known or len(known) < len(limits) or asked <= max(known):
        return
    longest = max(known)
    names = " and ".join(limits)
    time = duration(60 * asked, 3)
    if site.time_limit:
        need = f"the site's time_limit asks for {time}"
    else:
        times = time_asked.rounds(nexp) + 1
        need = f"{count(nexp, 'run')} of {entry.workload} need {time} ({times} x {time_asked.each} min)"
    raise UsageError(
        f"partition {names} allows a job {duration(60 * longest, 3)} at most, and {need}",
        hint=_way_out(entry, site, nexp, longest),
    )


def _way_out(entry: Entry, site: Site, nexp: int, longest: int) -> str:
    fit = job_time(entry).fitting(longest)
    line = f'`time_limit: "{longest}"` in the site file'
    elsewhere = "name a partition that allows more (`partition` in the site file)"
    if site.time_limit:
        return f"{line}, or {elsewhere}"
    if not fit:
        return f"not even one run is sure to fit; {elsewhere}, or try with {line}"
    return (
        f"{line}: the job does the runs that fit (surely {fit} of {nexp}), then `orchestrator "
        "resume` does the others; "
        f"or {elsewhere}"
    )
