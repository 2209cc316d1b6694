"""A job's time, from published runs, or from the descriptor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.mllog.olympic import median
from orchestrator.published import startup
from orchestrator.published.results import PublishedResult, find

if TYPE_CHECKING:
    from orchestrator.model import Entry

MARGIN = 1.3
"""Runs of the same system differ by up to 30 % (flux1 of round 6.0: 81 to 103 minutes)."""
STARTUP_MINUTES = 5.0
"""From run_stop to the next run_start, if no log of the benchmark shows it."""


class JobTime(NamedTuple):
    """Minutes per run, plus one run in case of a repetition."""

    each: int
    why: str
    at_once: int = 1
    """Runs side by side."""

    def minutes(self, nexp: int) -> int:
        """Return a job's minutes."""
        return (self.rounds(nexp) + 1) * self.each

    def rounds(self, nexp: int) -> int:
        """Return how many of `nexp` runs follow one another."""
        return -(-nexp // self.at_once)

    def fitting(self, minutes: int) -> int:
        """Return the most runs that fit into these minutes."""
        return max(0, minutes // self.each - 1) * self.at_once


class Need(NamedTuple):
    """A published run in minutes: from run_start to run_stop, then to the next run_start."""

    run: float
    between: float
    source: str

    @property
    def minutes(self) -> float:
        return self.run + self.between


def job_time(entry: Entry) -> JobTime:
    """Return 30 % more than published runs take, or the descriptor's minutes_per_run and 5."""
    need, at_once = published_need(entry), entry.site.side_by_side
    if need is None:
        each = entry.minutes_per_run + 5
        return JobTime(
            each, f"{entry.minutes_per_run} min of the descriptor and 5 between runs", at_once
        )
    each = math.ceil(MARGIN * need.minutes)
    why = f"{need.run:.1f} min of {need.source}, {need.between:.1f} between runs, and 30 %"
    return JobTime(each, why, at_once)


def published_need(entry: Entry) -> Need | None:
    """Return this system's published run, else the slowest on as many such GPUs."""
    if entry.ruleset == "own":
        return None
    known = find(benchmark=entry.benchmark, round=entry.round, system=entry.system)
    known = known or [
        result for result in find(benchmark=entry.benchmark) if _is_alike(result, entry)
    ]
    if not known:
        return None
    slowest = max(known, key=_run_minutes)
    source = f"{slowest.submitter} {slowest.name}, round {slowest.round}"
    return Need(_run_minutes(slowest), between_minutes(entry.benchmark, entry.round), source)


def between_minutes(benchmark: str, round: str) -> float:
    """Return the median from run_stop to run_start in published logs of the round, else of all
    rounds."""
    rows = [row for row in startup.load() if row.benchmark == benchmark and row.between_s]
    of_round = [row for row in rows if row.round == round]
    times = [row.between_s for row in of_round or rows if row.between_s]
    return median(times) / 60 if times else STARTUP_MINUTES


def _is_alike(result: PublishedResult, entry: Entry) -> bool:
    return (result.accelerator, result.gpus) == (entry.accelerator, entry.ranks)


def _run_minutes(result: PublishedResult) -> float:
    return result.mean or result.minutes / (result.factor or 1.0)
