"""The overhead of a run: from its script's start to run_start, and from run_stop to its end.

The script's times are the logging node's (node_<rank>.json), run_start and run_stop those of its
log: one clock. The first run in a new container is cold: it compiles for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.evidence.progress import WHOLE_BYTES, read_ends, tail_of
from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.training_log import training_log
from orchestrator.mllog.olympic import median


@dataclass(frozen=True, slots=True)
class StartUp:
    """One attempt, in seconds; None if neither log nor node has the time.

    `cold`: the first in its container. `cache`: cold or warm, for the node's kept compile caches
    ("": none).
    """

    run: int
    attempt: int
    node: str
    startup_s: float | None
    run_s: float | None
    shutdown_s: float | None
    cold: bool | None
    cache: str = ""


def read_startup(evidence: SetEvidence, run: int, attempt: int) -> StartUp | None:
    """Return the times of an attempt; None before its script has ended on the logging node."""
    log = training_log(evidence.layout, run, attempt)
    end = next(
        (
            record
            for rank, record in evidence.ends(run, attempt).items()
            if log.name == f"node_{rank}.log"
        ),
        None,
    )
    if end is None or not end.start_ms or not end.end_ms:
        return None
    tail = tail_of(read_ends(log, evidence.findings.inside, WHOLE_BYTES))
    cache = end.cache.get("state")
    return StartUp(
        run,
        attempt,
        end.node,
        _between(end.start_ms, tail.start_ms),
        _between(tail.start_ms, tail.stop_ms),
        _between(tail.stop_ms, end.end_ms),
        end.container_run == 1 if end.container_run else None,
        cache if cache in ("cold", "warm") else "",
    )


def _between(begin_ms: int, end_ms: int) -> float | None:
    return (end_ms - begin_ms) / 1000 if begin_ms and end_ms and end_ms >= begin_ms else None


def startups(evidence: SetEvidence) -> list[StartUp]:
    """Return every attempt that reached run_start."""
    times = (read_startup(evidence, run, attempt) for run, attempt in evidence.tried)
    return [startup for startup in times if startup is not None and startup.startup_s is not None]


def as_json(times: Sequence[StartUp]) -> dict[str, Any]:
    """Return the times of all attempts, each cold one, and median, smallest and largest of the
    others."""
    warm = sorted(
        startup.startup_s
        for startup in times
        if startup.startup_s is not None and startup.cold is False
    )
    ends = [startup.shutdown_s for startup in times if startup.shutdown_s is not None]
    return {
        "attempts": [asdict(startup) for startup in times],
        "cold_s": [startup.startup_s for startup in times if startup.cold],
        "warm_s": median(warm) if warm else None,
        "warm_range_s": [warm[0], warm[-1]] if warm else None,
        "shutdown_s": median(ends) if ends else None,
    }
