"""Doubts about a set from the site's values alone: it can run, but to no avail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.errors import Fix
from orchestrator.mllog.rounds import requires_key, ruleset_problem
from orchestrator.render.job_time import job_time
from orchestrator.scheduler.kinds import kind_of
from orchestrator.scheduler.slurm_times import minutes_of
from orchestrator.words import duration

if TYPE_CHECKING:
    from orchestrator.model import Entry

PROOF = "cache_clear"
"""The launcher's record of dropped caches; llama2 and llama31_8b of round 6.0 write it
themselves."""
_MINUTES_AND_SECONDS = re.compile(r"[0-9]+:[0-9]{2}")


class Doubt(NamedTuple):
    """`check`: the row of `doctor`."""

    check: str
    text: str
    fix: Fix
    """For `submit`."""


def refuse_unscorable(entry: Entry) -> None:
    """Raise DescriptorError for a ruleset that cannot score a set."""
    if problem := ruleset_problem(entry.ruleset):
        document = entry.documents.workload_document
        document.add(("rounds", entry.round, "ruleset"), problem)
        document.check()


def doubts(entry: Entry) -> Iterator[Doubt]:
    yield from _without_proof(entry)
    yield from _too_short(entry)


def _without_proof(entry: Entry) -> Iterator[Doubt]:
    if entry.site.clear_caches or not requires_key(entry.ruleset, PROOF):
        return
    text = (
        f"`clear_caches: false`: the runs lack the record `{PROOF}`, unless their program writes "
        f"it; by the rules of round {entry.ruleset} they are bad runs then, and the set has no "
        "valid score; dropping caches needs root, or the site's `sudo`"
    )
    yield Doubt("clear_caches", text, Fix(options=("--override", "clear_caches=true")))


def _too_short(entry: Entry) -> Iterator[Doubt]:
    site, needed = entry.site, job_time(entry)
    limit = minutes_of(site.time_limit) if site.time_limit else None
    if not kind_of(site.scheduler).allocates or limit is None or limit >= needed.each:
        return
    text = (
        f"`time_limit: {site.time_limit}` is {duration(60 * limit, 3)}, and one run of "
        f"{entry.workload} may take {duration(60 * needed.each, 3)} ({needed.why}): "
        "the job may end before its first run"
    )
    longer = f"{site.time_limit}:00"
    is_meant = _MINUTES_AND_SECONDS.fullmatch(site.time_limit or "")
    if not is_meant or needed.each > (minutes_of(longer) or 0):
        longer = str(needed.minutes(1))
    yield Doubt("time_limit", text, Fix(options=("--override", f"time_limit={longer}")))
