"""The deep step's measurements, preflight/deep-<job>.tsv: bus bandwidth of groups of nodes, and what that says of one."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.runset.records import JobRecord, read

COLUMNS = ("round", "nodes", "way", "bytes", "seconds", "busbw_gbps", "wrong", "note")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One all-reduce over `nodes`; `gbps` is GB/s, 0.0 where it failed, and then `note` says why."""

    job: str
    round: str
    nodes: tuple[str, ...]
    way: str
    gbps: float
    note: str = ""


def measurements(root: Path) -> list[Measurement]:
    """All measurements of a set, by job; what cannot be read is left out."""
    found = []
    for job, path in tables(root, "deep-"):
        found += parse(read_table(path), job)
    return found


def parse(text: str, job: str = "") -> list[Measurement]:
    """The measurements in a table with COLUMNS; its header and torn lines are left out."""
    found = []
    for line in text.splitlines():
        cells = line.split("\t")
        if len(cells) >= len(COLUMNS) - 1 and (gbps := _number(cells[5])) is not None:
            nodes = tuple(name for name in cells[1].split(",") if name)
            found.append(Measurement(job, cells[0], nodes, cells[2], gbps, cells[7] if len(cells) > 7 else ""))
    return found


def per_node(found: Iterable[Measurement]) -> dict[str, float]:
    """GB/s that a node is capable of, of `best_of_each`."""
    return {node: one.gbps for node, one in best_of_each(found).items()}


def best_of_each(found: Iterable[Measurement]) -> dict[str, Measurement]:
    """A node's best measurement among those with the fewest nodes.

    A group is as fast as its slowest member, so one good group clears all of its nodes, and a slow node has none.
    """
    best: dict[str, Measurement] = {}
    for one in found:
        for node in one.nodes:
            if node not in best or (len(one.nodes), -one.gbps) < (len(best[node].nodes), -best[node].gbps):
                best[node] = one
    return best


def tables(root: Path, prefix: str) -> list[tuple[str, Path]]:
    """(job, file) of the files preflight/<prefix><job>.tsv, in the order in which the jobs began."""
    try:
        names = [name for name in os.listdir(root / "preflight") if name.startswith(prefix) and name.endswith(".tsv")]
    except OSError:
        return []
    jobs = [(name.removeprefix(prefix).removesuffix(".tsv"), root / "preflight" / name) for name in names]
    return sorted(jobs, key=lambda item: (_started(root, item[0]), item[0]))


def _started(root: Path, job: str) -> int:
    record = read(JobRecord, root / "jobs" / f"{job}.json")
    return record.started_ms if isinstance(record, JobRecord) else 0


def read_table(path: Path) -> str:
    """A small table as text; "" when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(4 << 20).decode("utf-8", "replace")
    except OSError:
        return ""


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
