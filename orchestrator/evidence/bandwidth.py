"""The results of the bandwidth test, preflight/deep-<job>.tsv: bus bandwidth of groups of nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.evidence.files import is_node_name
from orchestrator.evidence.sets import SetEvidence

COLUMNS = ("round", "nodes", "way", "bytes", "seconds", "busbw_gbps", "wrong", "note")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One all-reduce over `nodes`; `gbps` is GB/s, 0.0 for a failure with its reason in `note`."""

    job: str
    round: str
    nodes: tuple[str, ...]
    way: str
    gbps: float
    note: str = ""


def measurements(evidence: SetEvidence) -> list[Measurement]:
    return [
        measurement
        for job, text in evidence.job_tables("deep-")
        for measurement in parse(text, job)
    ]


def parse(text: str, job: str = "") -> list[Measurement]:
    """Return the rows of a table with COLUMNS, without header and torn lines."""
    table = []
    for line in text.splitlines():
        cells = line.split("\t")
        if len(cells) >= len(COLUMNS) - 1 and (gbps := _number(cells[5])) is not None:
            nodes = tuple(name for name in cells[1].split(",") if is_node_name(name))
            table.append(
                Measurement(
                    job, cells[0], nodes, cells[2], gbps, cells[7] if len(cells) > 7 else ""
                )
            )
    return table


def best_of_each(measured: Iterable[Measurement]) -> dict[str, Measurement]:
    """Return each node's best measurement among those with the fewest nodes.

    A group is as fast as its slowest member, so a good group clears all of its nodes.
    """
    best: dict[str, Measurement] = {}
    for measurement in measured:
        for node in measurement.nodes:
            if node not in best or (len(measurement.nodes), -measurement.gbps) < (
                len(best[node].nodes),
                -best[node].gbps,
            ):
                best[node] = measurement
    return best


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
