"""The logs of an ended attempt without a reported result."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..kernel.log_ends import read_log_ends
from ..kernel.mllog_tail import has_start, last_status
from ..policy.trouble import telling_line
from .set_job import SetJob


@dataclass(frozen=True)
class LogFindings:
    """Fields as in AttemptFacts."""

    stops: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    started: bool = False


def read_logs(job: SetJob, run: int, number: int, ranks: tuple[str, ...]) -> LogFindings:
    """A run may have finished before its node or storage was lost. Raises OSError."""
    layout, files = job.layout, job.world.files
    logs = {node: layout.node_log(run, number, rank) for rank, node in enumerate(ranks)}
    stops = {node: last_status(log, files=files, strict=True) for node, log in logs.items()}
    if any(stops.values()):
        return LogFindings(stops)
    ends = {node: read_log_ends(log, files, strict=True) for node, log in logs.items()}
    texts = {node: log.text for node, log in ends.items() if log is not None}
    errors = {node: line for node, text in texts.items() if (line := telling_line(text))}
    return LogFindings(stops, errors, any(map(has_start, texts.values())))
