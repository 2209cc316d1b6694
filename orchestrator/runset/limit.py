"""Check a job's time and nodes against its partition before a set is made, with the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import SchedulerError, UsageError
from orchestrator.nodes.names import expand_all, fold
from orchestrator.render.job_time import job_time
from orchestrator.scheduler.slurm_nodes import (
    limit_may_differ,
    minutes_of,
    node_states,
    partition_limits,
)
from orchestrator.words import count, duration

if TYPE_CHECKING:
    from collections.abc import Callable

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


def refuse_too_few(entry: Entry) -> None:
    """Raise UsageError if the site's partition has fewer nodes than the job asks for, without the
    excluded ones. Nothing is refused without an answer of Slurm."""
    site = entry.site
    if site.scheduler != "slurm" or limit_may_differ(site.sbatch):
        return
    try:
        states = node_states(site.partition)
    except SchedulerError:
        return
    asked = entry.nodes * site.side_by_side + site.spares
    without = set(expand_all(site.exclude))
    left = [name for name in states if name not in without]
    if len(left) >= asked:
        return
    parts = [f"{count(entry.nodes * site.side_by_side, 'node')} for the runs"]
    parts += [count(site.spares, "spare")] if site.spares else []
    outside = [name for name in states if name in without]
    excluded = f" without the excluded {fold(outside)}" if outside else ""
    fewer = [option for option, given in _FEWER if given(site)]
    raise UsageError(
        f"the job asks for {count(asked, 'node')} ({', '.join(parts)}), and the partition has "
        f"{len(left)}{excluded}",
        hint=f"{', '.join([*fewer, 'another `partition`'])}, or a system with fewer nodes",
    )


_FEWER: tuple[tuple[str, Callable[[Site], object]], ...] = (
    ("exclude fewer nodes", lambda site: site.exclude),
    ("ask for fewer spares (--spares K)", lambda site: site.spares),
    ("ask for fewer runs at once (--side-by-side K)", lambda site: site.side_by_side > 1),
)
"""The ways to ask for fewer nodes, each with the sites that have it."""


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
