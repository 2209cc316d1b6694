"""Compare a new set's job with its partition: existence, nodes, time, and the way out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from orchestrator.errors import Fix, SchedulerError, UsageError, did_you_mean
from orchestrator.nodes.names import expand_all, fold
from orchestrator.render.job_time import job_time
from orchestrator.scheduler import advice
from orchestrator.scheduler.kinds import kind_of
from orchestrator.scheduler.slurm_nodes import (
    Demand,
    NodeState,
    limit_may_differ,
    node_states,
    partition_limits,
)
from orchestrator.scheduler.slurm_times import minutes_of
from orchestrator.words import count, duration, quoted

if TYPE_CHECKING:
    from orchestrator.model import Entry, Site
    from orchestrator.scheduler.slurm_site import Partition


def beyond_partition(
    entry: Entry, nexp: int, warn: Callable[[str], object]
) -> Iterator[UsageError]:
    """Yield why the site's partition cannot take the job. `warn` gets why it will wait for nodes.

    Yields nothing without an answer of Slurm, or if the site's sbatch options choose the partition.
    """
    limits = _limits(entry.site)
    if limits is None:
        return
    if problem := _no_partition(entry, limits):
        yield problem
        return
    if problem := too_long(entry, nexp, limits):
        yield problem
    try:
        states = node_states(entry.site.partition)
    except SchedulerError:
        return
    if problem := _too_few(entry, states):
        yield problem
    elif waiting := _waits_for(entry, states):
        warn(waiting)


def refuse_too_long(entry: Entry, nexp: int) -> None:
    """Raise UsageError if no partition of the site allows the job's time."""
    limits = _limits(entry.site)
    if limits is not None and (problem := too_long(entry, nexp, limits)):
        raise problem


def _limits(site: Site) -> Mapping[str, int | None] | None:
    """Return the partitions' limits; None if unknown or not decisive."""
    if not kind_of(site.scheduler).allocates or limit_may_differ(site.sbatch):
        return None
    try:
        return partition_limits(site.partition)
    except SchedulerError:
        return None


def _no_partition(entry: Entry, limits: Mapping[str, object]) -> UsageError | None:
    wanted = entry.site.partition.split(",") if entry.site.partition else []
    missing = [name for name in wanted if name not in limits]
    known = _partitions() if missing else []
    if not known:
        return None
    names = [partition.name for partition in known]
    meant = did_you_mean(missing[0], names)
    usual = next((partition.name for partition in known if partition.is_default), names[0])
    near = next((name for name in names if f'"{name}"' in meant), usual)
    return UsageError(
        f"there is no partition {missing[0]}{meant}; the cluster has {', '.join(names)}",
        hint="correct `partition` in the site file",
        fix=Fix(options=("--override", f"partition={near}")),
    )


def _partitions() -> list[Partition]:
    """Return [] without an answer."""
    from orchestrator.scheduler.slurm_site import partitions

    try:
        return partitions()
    except SchedulerError:
        return []


# ---- time ----


def too_long(entry: Entry, nexp: int, limits: Mapping[str, int | None]) -> UsageError | None:
    """Return an error if no partition of `limits` (minutes) allows the job's time; a QOS can."""
    site = entry.site
    if site.qos:
        return None
    time_asked, asked = job_time(entry), asked_minutes(entry, nexp)
    known = [limit for limit in limits.values() if limit is not None]
    if asked is None or not known or len(known) < len(limits) or asked <= max(known):
        return None
    longest = max(known)
    names = " and ".join(limits)
    time = duration(60 * asked, 3)
    if site.time_limit:
        need = f"the site's time_limit asks for {time}"
    else:
        each = f"{time_asked.rounds(nexp) + 1} x {time_asked.each} min, one run in reserve"
        verb = "needs" if nexp == 1 else "need"
        need = f"{count(nexp, 'run')} of {entry.workload} {verb} {time} ({each})"
    longer = _larger_partition(asked_nodes(entry), asked)
    value = f"partition={longer}" if longer else f"time_limit={longest}"
    return UsageError(
        f"partition {names} allows a job {duration(60 * longest, 3)} at most, and {need}",
        hint=_way_out(entry, site, nexp, longest),
        fix=Fix(options=("--override", value)),
    )


def _way_out(entry: Entry, site: Site, nexp: int, longest: int) -> str:
    fit = job_time(entry).fitting(longest)
    line = f'`time_limit: "{longest}"` in the site file'
    elsewhere = "name a partition that allows more (`partition` in the site file)"
    if site.time_limit:
        return f"{line}, or {elsewhere}"
    if not fit:
        return f"even one run may need more; {elsewhere}, or try with {line}"
    return (
        f"{line}: the job does the runs that fit (surely {fit} of {nexp}), then `orchestrator "
        f"resume` does the others; or {elsewhere}"
    )


def _larger_partition(nodes: int, minutes: int | None = None) -> str:
    """Return the first partition with at least `nodes`, for jobs of `minutes`, or ""."""
    for partition in _partitions():
        try:
            limit = minutes_of(partition.limit)
        except ValueError:
            continue
        fits = limit is None or minutes is None or minutes <= limit
        if partition.is_up and partition.nodes >= nodes and fits:
            return partition.name
    return ""


# ---- nodes ----


def asked_minutes(entry: Entry, nexp: int) -> int | None:
    """Return the job's time limit; None: unlimited."""
    limit = entry.site.time_limit
    return minutes_of(limit) if limit else job_time(entry).minutes(nexp)


def asked_nodes(entry: Entry) -> int:
    return _demand(entry).nodes


def _demand(entry: Entry) -> Demand:
    site = entry.site
    for_runs = entry.nodes * site.side_by_side
    return Demand(for_runs, site.spares, frozenset(expand_all(site.exclude)))


def _too_few(entry: Entry, states: Mapping[str, NodeState]) -> UsageError | None:
    """Return an error if the partition is too small."""
    demand = _demand(entry)
    shortage = demand.shortage(states)
    if not shortage:
        return None
    ways, fix = _fewer_nodes(entry, len(states), len(demand.left(states)))
    return UsageError(
        shortage,
        hint=f"{', '.join([*ways, 'another `partition`'])}, or a system with fewer nodes",
        fix=fix,
    )


def _fewer_nodes(entry: Entry, all_nodes: int, left: int) -> tuple[list[str], Fix]:
    """Return ways to ask for fewer nodes, and the first that suffices."""
    site, asked = entry.site, asked_nodes(entry)
    ways, fixes = [], []
    if site.exclude:
        ways.append("exclude fewer nodes")
        if all_nodes >= asked:
            fixes.append(Fix(options=("--override", "exclude=[]"), without="--exclude"))
    if site.spares:
        ways.append("ask for fewer spares (--spares K)")
        if (spares := left - (asked - site.spares)) >= 0:
            fixes.append(Fix(options=("--spares", str(spares))))
    if site.side_by_side > 1:
        ways.append("ask for fewer runs at once (--side-by-side K)")
        if at_once := (left - site.spares) // entry.nodes:
            fixes.append(Fix(options=("--side-by-side", str(max(1, at_once)))))
    if larger := _larger_partition(asked):
        fixes.append(Fix(options=("--override", f"partition={larger}")))
    smaller = Fix(f"orchestrator systems --workload {quoted(entry.workload)}")
    return ways, [*fixes, smaller][0]


def _waits_for(entry: Entry, states: Mapping[str, NodeState]) -> str:
    """Return why the job waits for nodes, with the command to check them, or ""."""
    demand = _demand(entry)
    left = demand.left(states)
    away = [name for name in left if states[name].unavailable]
    if len(left) - len(away) >= demand.nodes or not away:
        return ""
    shown = "; ".join(f"{name} is {states[name].description}" for name in away[:3])
    more = f"; and {len(away) - 3} more" if len(away) > 3 else ""
    return (
        f"the job will wait: it needs {count(demand.nodes, 'node')}, and "
        f"{len(left) - len(away)} can be used now ({shown}{more}); who drained or "
        f"repairs them returns them:\n  {advice.look_at_nodes(fold(away))}"
    )
