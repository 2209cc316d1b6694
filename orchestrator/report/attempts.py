"""Attempts and nodes of a set folder: who ran what for how long, with which exit code, and which node was late."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from orchestrator.onnode.policy.slow import notable
from orchestrator.report.model import Attempt, NodeCell
from orchestrator.runset.records import Finding, RunRecord, read


def read_attempts(root: Path, problems: list[str]) -> tuple[Attempt, ...]:
    """Every attempt of every run, by run and attempt. What cannot be read is added to `problems`."""
    found = []
    for run in _numbers(root / "runs", ""):
        folder = root / "runs" / str(run)
        current = _record(folder / "state.json", problems)
        for number in _numbers(folder, "attempt_"):
            record = _record(folder / f"attempt_{number}" / "state.json", problems)
            if record is not None:
                counts = current is not None and current.done and current.attempt == number
                found.append(_attempt(record, folder / f"attempt_{number}", run, number, counts))
    return tuple(found)


def _record(path: Path, problems: list[str]) -> RunRecord | None:
    found = read(RunRecord, path)
    if isinstance(found, Finding):
        problems.append(str(found))
        return None
    return found


def _numbers(folder: Path, prefix: str) -> list[int]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    texts = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 10)


def _attempt(record: RunRecord, folder: Path, run: int, number: int, counts: bool) -> Attempt:
    return Attempt(
        run,
        number,
        record.state,
        record.outcome,
        record.reason,
        record.seed,
        record.job_id,
        record.image_digest,
        record.start_ms,
        record.end_ms,
        counts,
        _cells(record, folder),
    )


def _cells(record: RunRecord, folder: Path) -> tuple[NodeCell, ...]:
    """One cell per node, in rank order; a node without a file has the exit code that the loop noted."""
    told = {rank: _node(folder / f"node_{rank}.json") for rank in range(len(record.nodes))}
    starts = [entry["start_ms"] for entry in told.values() if entry]
    ends = [entry["end_ms"] for entry in told.values() if entry]
    begin, middle = (min(starts), _median(ends)) if starts else (0, 0)
    return tuple(_cell(record, rank, str(name), told[rank], begin, middle) for rank, name in enumerate(record.nodes))


def _cell(
    record: RunRecord, rank: int, name: str, told: dict[str, int] | None, begin: float, middle: float
) -> NodeCell:
    if told is None:
        code = record.exit_codes.get(name)
        return NodeCell(name, rank, code if isinstance(code, int) else None, None, 0.0, 0.0, False)
    seconds = (told["end_ms"] - told["start_ms"]) / 1000
    late_start, late_end = (told["start_ms"] - begin) / 1000, (told["end_ms"] - middle) / 1000
    slow = notable(max(late_start, late_end), (middle - begin) / 1000)
    return NodeCell(name, rank, told["exit"], seconds, late_start, late_end, slow)


def _node(path: Path) -> dict[str, int] | None:
    try:
        data: Any = json.loads(path.read_bytes()[:65536])
        return {name: int(data[name]) for name in ("exit", "start_ms", "end_ms")}
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _median(values: list[int]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    return float(ordered[middle]) if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def slow_nodes(attempts: tuple[Attempt, ...]) -> list[tuple[str, int, float]]:
    """(node, attempts in which it was late, mean lateness in seconds then), the worst first."""
    late: dict[str, list[float]] = {}
    for attempt in attempts:
        for cell in attempt.nodes:
            if cell.slow:
                late.setdefault(cell.node, []).append(max(cell.late_start_s, cell.late_end_s))
    found = [(node, len(values), sum(values) / len(values)) for node, values in late.items()]
    return sorted(found, key=lambda item: (-item[1], -item[2], item[0]))
