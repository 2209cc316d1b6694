"""What became of each node of a set: what it ran and how fast, its preflight, its bandwidth, whether it was set aside."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from orchestrator.onnode.policy.slow import Pace, signs
from orchestrator.onnode.policy.verdict import NodeVerdict, Row, parse_table
from orchestrator.runset.bandwidth import best_of_each, measurements, read_table, tables
from orchestrator.runset.files import read_files
from orchestrator.runset.progress import minutes
from orchestrator.runset.records import RunRecord, SetAside, numbered, read


@dataclass(frozen=True, slots=True)
class Part:
    """One node's part of one attempt. `relative` is its time over the middle time of the other nodes'; None alone."""

    run: int
    attempt: int
    rank: int
    outcome: str
    exit: int | None
    seconds: float | None
    relative: float | None

    @property
    def good(self) -> bool:
        return self.outcome in ("success", "not_converged")

    @property
    def failed(self) -> bool:
        return self.outcome == "infrastructure"


@dataclass(slots=True)
class NodeHistory:
    """One node. `minutes_with` is the mean time to train of the good runs that it took part in; `_without` of the others."""

    node: str
    parts: list[Part] = field(default_factory=list)
    spare: bool = False
    """It waited, or `waits` still, to take the place of another one."""
    waits: bool = False
    minutes_with: float | None = None
    minutes_without: float | None = None
    gbps: float | None = None
    way: str = ""
    """How `gbps` was measured: torch, rccl-tests or tcp."""
    preflight: NodeVerdict | None = None
    set_aside: list[SetAside] = field(default_factory=list)

    @property
    def ranks(self) -> list[int]:
        return sorted({part.rank for part in self.parts})

    @property
    def good(self) -> int:
        return sum(part.good for part in self.parts)

    @property
    def failed(self) -> int:
        return sum(part.failed for part in self.parts)

    @property
    def exits(self) -> list[int]:
        """Exit codes of its own other than 0, in order; 143 is that of a node that was ended because another one failed."""
        return [part.exit for part in self.parts if part.exit is not None and part.exit not in (0, -1, 143)]

    @property
    def mean_s(self) -> float | None:
        times = [part.seconds for part in self.parts if part.good and part.seconds is not None]
        return mean(times) if times else None

    @property
    def last(self) -> Part | None:
        return next((part for part in reversed(self.parts) if part.seconds is not None), None)

    @property
    def relative(self) -> float | None:
        """Mean of its time over the others' in good attempts."""
        found = [part.relative for part in self.parts if part.good and part.relative is not None]
        return mean(found) if found else None

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "ranks": self.ranks,
            "spare": self.spare,
            "waits": self.waits,
            "good": self.good,
            "failed": self.failed,
            "mean_s": self.mean_s,
            "last_s": self.last.seconds if self.last else None,
            "relative": self.relative,
            "minutes_with": self.minutes_with,
            "minutes_without": self.minutes_without,
            "exit_codes": self.exits,
            "bandwidth_gbps": self.gbps,
            "preflight": self.preflight.to_json() if self.preflight else None,
            "set_aside": [asdict(one) for one in self.set_aside],
            "attempts": [asdict(part) for part in self.parts],
        }


def read_history(root: Path) -> list[NodeHistory]:
    """Every node that a job of the set had, those with ranks first. What cannot be read is left out."""
    found: dict[str, NodeHistory] = {}

    def of(name: str) -> NodeHistory:
        return found.setdefault(name, NodeHistory(name))

    files = read_files(root)
    for job in files.jobs:
        for name in job.nodes:
            of(name)
    taking_part: dict[int, set[str]] = {}
    for record, folder in _attempts(root):
        _add_parts(record, folder, of)
        if record.outcome == "success":
            taking_part[record.run] = set(record.nodes)
    _add_minutes(root, taking_part, found.values())
    for job in files.jobs:
        for name in job.spares:
            of(name).spare, of(name).waits = True, not job.final
        for one in job.aside:
            of(one.node).set_aside.append(one)
    for name, verdict in verdicts(root).items():
        of(name).preflight = verdict
    for name, measured in best_of_each(measurements(root)).items():
        of(name).gbps, of(name).way = measured.gbps, measured.way
    return list(found.values())


def _attempts(root: Path) -> Iterable[tuple[RunRecord, Path]]:
    for run in numbered(root / "runs", ""):
        folder = root / "runs" / str(run)
        numbers = sorted(
            int(name[8:]) for name in _names(folder) if name.startswith("attempt_") and name[8:].isdecimal()
        )
        for number in numbers:
            record = read(RunRecord, folder / f"attempt_{number}" / "state.json")
            if isinstance(record, RunRecord):
                yield record, folder / f"attempt_{number}"


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _add_parts(record: RunRecord, folder: Path, of: Any) -> None:
    told = [_told(folder / f"node_{rank}.json") for rank in range(len(record.nodes))]
    times = [one[1] for one in told if one]
    for rank, name in enumerate(record.nodes):
        if not isinstance(name, str):
            continue
        one = told[rank]
        code = record.exit_codes.get(name)
        exit_code = one[0] if one else code if isinstance(code, int) else None
        of(name).parts.append(
            Part(
                record.run,
                record.attempt,
                rank,
                record.outcome or record.state,
                exit_code,
                one[1] if one else None,
                _relative(times, one[1]) if one else None,
            )
        )


def _relative(times: Sequence[float], own: float) -> float | None:
    others = list(times)
    others.remove(own)
    middle = median(others) if others else 0.0
    return own / middle if middle > 0 else None


def _told(path: Path) -> tuple[int, float] | None:
    """(exit code, seconds) of a node's own file."""
    try:
        data = json.loads(path.read_bytes()[:65536])
        return int(data["exit"]), (int(data["end_ms"]) - int(data["start_ms"])) / 1000
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _add_minutes(root: Path, taking_part: dict[int, set[str]], nodes: Iterable[NodeHistory]) -> None:
    times = {
        run: value
        for run in taking_part
        if (value := minutes(root / "runs" / str(run) / f"result_{run}.txt")) is not None
    }
    for one in nodes:
        own = [value for run, value in times.items() if one.node in taking_part[run]]
        others = [value for run, value in times.items() if one.node not in taking_part[run]]
        one.minutes_with = mean(own) if own else None
        one.minutes_without = mean(others) if others else None


def verdicts(root: Path) -> dict[str, NodeVerdict]:
    """Each node's newest preflight of the set's jobs."""
    found: dict[str, list[Row]] = {}
    for job, path in tables(root, ""):
        if job.startswith("deep-"):
            continue
        rows: dict[str, list[Row]] = {}
        for row in parse_table(read_table(path)):
            rows.setdefault(row.node, []).append(row)
        found |= rows
    return {name: NodeVerdict(name, tuple(rows)) for name, rows in found.items()}


def suspicions(history: Sequence[NodeHistory]) -> list[str]:
    """Sentences about nodes that look slow, each with what points at it."""
    return signs([_pace(one) for one in history])


def _pace(one: NodeHistory) -> Pace:
    deep = [row for row in one.preflight.rows if row.check == "deep"] if one.preflight else []
    return Pace(
        one.node,
        gbps=one.gbps,
        way=one.way,
        judged=bool(deep),
        deep=next((row.text for row in deep if row.verdict in ("fail", "warn")), ""),
        seconds=one.mean_s,
        relative=one.relative,
        minutes_with=one.minutes_with,
        minutes_without=one.minutes_without,
    )
