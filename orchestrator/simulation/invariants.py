"""Properties of every set that was ever worked on, whatever happened to it.

The fault campaign on the one-machine cluster (tests/faults) and the simulated one check the same ones.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.onnode.kernel.events import Event

FINAL = frozenset({"success", "failed"})


def record_violations(root: Path, runs: int, *, complete: bool = True) -> Iterator[str]:
    """Yield violations in the records of a set: every attempt final, one that counts per run, its log as the result.

    `complete`: every run must have a result.
    """
    attempts = list(_attempts(root))
    for run in range(1, runs + 1):
        numbers = [attempt for number, attempt, _ in attempts if number == run]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"run {run}: attempts {numbers}"
        yield from _run_violations(
            root, run, [(k, place) for number, k, place in attempts if number == run], complete
        )
    yield from _seed_violations(root, attempts)
    linked = sorted((root / "results").glob("result_*.txt"))
    for path in linked:
        if not path.exists():
            yield f"results/{path.name} leads nowhere"


def _run_violations(
    root: Path, run: int, attempts: list[tuple[int, Path]], complete: bool
) -> Iterator[str]:
    counted = []
    for attempt, place in attempts:
        state = read_json(place / "state.json")
        if state is None or state.get("state") not in FINAL:
            yield f"run {run} attempt {attempt}: {'no readable state' if state is None else state.get('state')}"
        elif state["state"] == "success" or state.get("outcome") == "not_converged":
            counted.append(attempt)
    if len(counted) > 1 or (complete and not counted):
        yield f"run {run}: attempts that count: {counted}"
    result = root / f"runs/{run}/result_{run}.txt"
    if not counted:
        if result.exists():
            yield f"result_{run}.txt without an attempt that counts"
        return
    own = read_json(root / f"runs/{run}/state.json") or {}
    if own.get("attempt") != counted[0]:
        yield f"run {run}: its state is of attempt {own.get('attempt')}, not {counted[0]}"
    yield from _result_violations(root, run, counted[0], result)


def _result_violations(root: Path, run: int, attempt: int, result: Path) -> Iterator[str]:
    linked = root / f"results/result_{run}.txt"
    try:
        text = result.read_bytes()
        if linked.resolve() != result.resolve():
            yield f"results/result_{run}.txt leads to {os.readlink(linked)}"
    except OSError as error:
        yield f"result of run {run}: {error.strerror}"
        return
    logs = (path.read_bytes() for path in result.parent.glob(f"attempt_{attempt}/node_*.log"))
    if not any(log and text.endswith(log) for log in logs):
        yield f"result_{run}.txt is no log of its attempt"


def _seed_violations(root: Path, attempts: list[tuple[int, int, Path]]) -> Iterator[str]:
    """Yield seeds that are not derived from the set's, or are used twice."""
    first, seeds = (read_json(root / "set.json") or {}).get("root_seed"), []
    if not isinstance(first, int):
        yield "set.json has no root seed"
        return
    for run, attempt, place in attempts:
        seed = (read_json(place / "state.json") or {}).get("seed")
        seeds.append(seed)
        if seed != first + 1000 * (run - 1) + attempt:
            yield f"run {run} attempt {attempt}: seed {seed} of root {first}"
        log = b"".join(path.read_bytes() for path in place.glob("node_*.log"))
        logged = re.findall(rb'"key": "seed", "value": (\d+)', log)
        if any(int(found) != seed for found in logged):
            yield f"run {run} attempt {attempt}: its log has seed {logged}"
    if len(set(seeds)) != len(seeds):
        yield f"a seed twice: {seeds}"


def thrown_away(root: Path) -> Iterator[str]:
    """Yield attempts whose log says that they reached their target, and that count for nothing.

    A node that stood still may have gone on with its log after the attempt was closed: that is too late.
    """
    for run, attempt, place in _attempts(root):
        path = place / "state.json"
        state = read_json(path) or {}
        logs = [
            log
            for log in place.glob("node_*.log")
            if log.stat().st_mtime_ns <= path.stat().st_mtime_ns
        ]
        if state.get("state") == "failed" and any(map(_succeeded, logs)):
            yield f"run {run} attempt {attempt} reached its target and is {state.get('outcome')}: {state.get('reason')}"


def _succeeded(log: Path) -> bool:
    return re.search(rb'"key": "run_stop".*"status": "success"', log.read_bytes()) is not None


def open_records(root: Path) -> Iterator[str]:
    """Yield submissions without an outcome and jobs without an end, in a set whose last job closed it."""
    for path in sorted((*root.glob("submissions/*.json"), *root.glob("jobs/*.json"))):
        record = read_json(path) or {}
        if record.get("state") in ("intended", "unknown", "starting", "running"):
            yield f"{path.relative_to(root)} says {record['state']} in a complete set"


def _events(path: Path) -> tuple[Event, ...]:
    about = path.stat()
    return _read_events(path, about.st_ino, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=8)
def _read_events(path: Path, *_state: int) -> tuple[Event, ...]:
    """Return the events of a file: each invariant looks through them, and they are read once."""
    from orchestrator.evidence.events import read_events

    return tuple(read_events(path))


def blamed_nodes(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each node that a job blamed or set aside, with the reason."""

    for path in sorted(root.glob("events-*.tsv")):
        for event in _events(path):
            if event.source == "loop" and event.word in ("blamed", "aside", "silent"):
                yield event.node, f"{event.word}: {event.part(1)}"


HOLDS = 6
"""So often nodes are held without an attempt, at most: each time one of them fails, or the step did not come about."""
SPEAKS_MS = 400


def hold_violations(root: Path) -> Iterator[str]:
    """Yield nodes that are left out without a record, or are given up before their last message, and holds without an end."""
    for path in sorted(root.glob("events-*.tsv")):
        holds, out, failed, passed_over, silent = (
            0,
            set[str](),
            set[str](),
            set[str](),
            dict[str, int](),
        )
        for event in _events(path):
            if event.source == "node" and event.ms - silent.pop(event.node, 0) < SPEAKS_MS:
                yield f"{path.name}: {event.node} was given up, and sent `{event.word}` {event.detail} right after"
            elif event.source != "loop":
                continue
            elif event.word == "begin":
                holds, out = 0, set()
            elif event.word == "hold":
                holds, failed, passed_over, silent = holds + 1, set(), set(), {}
                if holds > HOLDS:
                    yield f"{path.name}: nodes were held {holds} times without an attempt"
            elif event.word == "placed":
                passed_over = set(failed)
            elif event.word == "attempt":
                holds = 0
                if left := sorted(passed_over - out):
                    yield f"{path.name}: {left} failed before the ranks were given, and are not excluded"
            elif event.word == "fail":
                failed.add(event.node)
            elif event.word in ("aside", "blamed"):
                out.add(event.node)
            elif event.word == "silent":
                silent[event.node] = event.ms


def reasons(root: Path, outcome: str = "") -> Iterator[tuple[str, str]]:
    """Yield (`run 1 attempt 2`, its reason) of each attempt, or of those with an `outcome`."""
    for run, attempt, place in _attempts(root):
        state = read_json(place / "state.json") or {}
        if not outcome or state.get("outcome") == outcome:
            yield f"run {run} attempt {attempt}", str(state.get("reason"))


def bytes_of_nodes(root: Path) -> int:
    """Return the most bytes that a node has sent between two attempts of one hold, as the loop counts them."""
    from orchestrator.onnode.loop.step import WORD_BYTES

    most = 0
    for path in root.glob("events-*.tsv"):
        said = Counter[str]()
        for event in _events(path):
            if event.source == "node":
                said[event.node] += len(event.detail) + WORD_BYTES
                most = max(most, said[event.node])
            elif event.word in ("attempt", "hold"):
                said.clear()
    return most


def not_complete(root: Path) -> Iterator[str]:
    """Yield the state that readers are shown of a set, if it is not `complete`."""
    from orchestrator.evidence.sets import SetEvidence
    from orchestrator.evidence.state import judge

    state, reason, _ = judge(SetEvidence(root), {})
    if state != "complete":
        yield f"all runs are done, and the set is shown as {state}: {reason}"


def last_end_ms(root: Path) -> int:
    """Return when the last attempt of a set ended (Unix milliseconds), 0 without one."""
    states = (read_json(path) or {} for path in root.glob("runs/*/attempt_*/state.json"))
    return max((int(state.get("end_ms", 0)) for state in states), default=0)


def leftover_files(root: Path) -> Iterator[str]:
    """Yield temporary files and locks that are still in a set."""
    for path in sorted(
        (
            *root.rglob(".*tmp*"),
            *root.glob("*.lock"),
            *root.glob(".*.lock*"),
            *root.glob(".clock.*"),
        )
    ):
        yield f"left in the set: {path.relative_to(root)}"


def replay_violations(root: Path) -> Iterator[str]:
    """Yield decisions of the set's jobs that come out otherwise when they are made again."""
    from orchestrator.evidence.replay import replay

    for path in sorted(root.glob("events-*.tsv")):
        for difference in replay(_events(path)).differences:
            yield f"{path.name}: {difference}"


def ledger_violations(root: Path) -> Iterator[str]:
    """Yield problems that `ledger verify` finds."""
    from orchestrator.evidence.ledger import verify

    for problem in verify(root).problems:
        yield f"ledger: {problem}"


def score_violations(root: Path) -> Iterator[str]:
    """Yield a score that is not the mean of the times without the best and the worst: a run that missed its target is the worst."""
    from orchestrator.mllog.score import score_dir

    results = list(root.glob("runs/*/result_*.txt"))
    times = sorted(filter(None, map(_minutes, results)))
    kept = times[1:] if len(times) < len(results) else times[1:-1]
    score = score_dir(str(root)).olympic_mean
    if len(times) > 2 and score is not None and abs(sum(kept) / len(kept) - score) > 1e-9:
        yield f"score {score} of {times}"


def _minutes(log: Path) -> float | None:
    pattern = rb'"time_ms": (\d+), "event_type": "INTERVAL_(?:START|END)", "key": "(run_st\w+)"'
    times = {key: int(time_ms) for time_ms, key in re.findall(pattern, log.read_bytes())}
    if b"run_start" not in times or b"run_stop" not in times or b'"aborted"' in log.read_bytes():
        return None
    return (times[b"run_stop"] - times[b"run_start"]) / 60_000


def _attempts(root: Path) -> Iterator[tuple[int, int, Path]]:
    found = (
        (int(path.parent.name), int(path.name.split("_")[1]), path)
        for path in root.glob("runs/*/attempt_*")
    )
    yield from sorted(found)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file; None if there is none."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
