"""Properties of every set, for the simulated campaign and the fault campaign (tests/faults)."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.onnode.kernel.events import Event

FINAL = frozenset({"success", "failed"})


def record_violations(root: Path, runs: int, *, complete: bool = True) -> Iterator[str]:
    """Yield violations: attempts final, one attempt counts per run, its log is the result.
    `complete`: every run needs a result.
    """
    attempts = list(attempts_of(root))
    for run in range(1, runs + 1):
        numbers = [attempt for number, attempt, _ in attempts if number == run]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"run {run}: attempts {numbers}"
        yield from _run_violations(
            root, run, [(k, place) for number, k, place in attempts if number == run], complete
        )
    yield from seed_violations(root, attempts)
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
        if state is None:
            yield f"run {run} attempt {attempt}: no readable state"
        elif state.get("state") not in FINAL:
            yield f"run {run} attempt {attempt}: {state.get('state')}"
        elif _counts(state):
            counted.append(attempt)
    if len(counted) > 1 or (complete and not counted):
        yield f"run {run}: attempts that count: {counted}"
    result = root / f"runs/{run}/result_{run}.txt"
    if not counted:
        if result.exists():
            yield f"result_{run}.txt without an attempt that counts"
        return
    state = read_json(root / f"runs/{run}/state.json") or {}
    if state.get("attempt") != counted[0]:
        yield f"run {run}: its state is of attempt {state.get('attempt')}, not {counted[0]}"
    yield from result_violations(root, run, counted[0], result)


def result_violations(root: Path, run: int, attempt: int, result: Path) -> Iterator[str]:
    linked = root / f"results/result_{run}.txt"
    try:
        text = result.read_bytes()
        if linked.resolve() != result.resolve():
            yield f"results/result_{run}.txt leads to {os.readlink(linked)}"
    except OSError as error:
        yield f"result of run {run}: {error.strerror}"
        return
    place = result.parent / f"attempt_{attempt}"
    logs = [path.read_bytes() for path in place.glob("node_*.log")]
    state = read_json(place / "state.json") or {}
    if "without closing this attempt" in state.get("reason", ""):
        head = sum(path.stat().st_size for path in place.glob("cache_clear.log"))
        logs = [log[: len(text) - head] for log in logs]  # a frozen node adds its last lines
    if not any(log and text.endswith(log) for log in logs):
        yield f"result_{run}.txt is no log of its attempt"


def seed_violations(root: Path, attempts: list[tuple[int, int, Path]]) -> Iterator[str]:
    """Yield seeds used twice, or not derived from the set's."""
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
        if any(int(text) != seed for text in logged):
            yield f"run {run} attempt {attempt}: its log has seed {logged}"
    if len(set(seeds)) != len(seeds):
        yield f"a seed twice: {seeds}"


def _counts(state: dict[str, Any]) -> bool:
    return state.get("state") == "success" or state.get("outcome") == "not_converged"


def thrown_away(root: Path) -> Iterator[str]:
    """Yield uncounted attempts whose log reached the target before they were closed."""
    for run, attempt, place in attempts_of(root):
        path = place / "state.json"
        if (state := read_json(path)) is None:  # lost
            continue
        closed_ns = path.stat().st_mtime_ns
        if "without closing this attempt" in state.get("reason", ""):
            closed_ns = min(closed_ns, end_on_record_ns(root, run, attempt))
        logs = [log for log in place.glob("node_*.log") if log.stat().st_mtime_ns <= closed_ns]
        if state.get("state") == "failed" and any(map(_succeeded, logs)):
            outcome = f"{state.get('outcome')}: {state.get('reason')}"
            yield f"run {run} attempt {attempt} reached its target and is {outcome}"


def end_on_record_ns(root: Path, run: int, attempt: int) -> float:
    """Return when an attempt's end came on record, by the clock of the storage; infinite if never.

    Its state is written later if the job that recorded it is killed.
    """
    from orchestrator.onnode.set import ledger

    entries = ledger.read(root)[0]
    ends = [entry for entry in entries if ledger.subject(entry) == ("end", run, attempt)]
    if not ends:
        return float("inf")
    before_last_ms = entries[-1].time_ms - ends[0].time_ms
    return (root / ledger.NAME).stat().st_mtime_ns - 1e6 * before_last_ms


def _succeeded(log: Path) -> bool:
    return re.search(rb'"key": "run_stop".*"status": "success"', log.read_bytes()) is not None


def open_records(root: Path) -> Iterator[str]:
    """Yield submissions without outcome and jobs without end."""
    for path in sorted((*root.glob("submissions/*.json"), *root.glob("jobs/*.json"))):
        record = read_json(path) or {}
        if record.get("state") in ("intended", "unknown", "starting", "running"):
            yield f"{path.relative_to(root)} says {record['state']} in a complete set"


def _events(path: Path) -> tuple[Event, ...]:
    about = path.stat()
    return _read_events(path, about.st_ino, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=8)
def _read_events(path: Path, *_state: int) -> tuple[Event, ...]:
    """Read once for all invariants."""
    from orchestrator.evidence.events import read_events

    return tuple(read_events(path))


def blamed_nodes(root: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(root.glob("events-*.tsv")):
        for event in _events(path):
            if event.source == "loop" and event.word in ("blamed", "aside", "silent"):
                yield event.node, f"{event.word}: {event.part(1)}"


HOLDS = 6
"""In each hold a node fails, or the step does not start."""
SPEAKS_MS = 400


def hold_violations(root: Path, excused: Callable[[str, int], bool]) -> Iterator[str]:
    """Yield nodes left out without a record, nodes given up too early, and endless holds.

    `excused`: whether a node was silent long enough at a time (ms), whatever it sends next.
    """
    for path in sorted(root.glob("events-*.tsv")):
        holds = 0
        excluded, failed, passed_over = set[str](), set[str](), set[str]()
        silent = dict[str, int]()
        for event in _events(path):
            if event.source == "node" and event.ms - silent.pop(event.node, 0) < SPEAKS_MS:
                message = f"`{event.word}` {event.detail}"
                yield f"{path.name}: {event.node} was given up, and sent {message} right after"
            elif event.source != "loop":
                continue
            elif event.word == "begin":
                holds, excluded = 0, set()
            elif event.word == "hold":
                holds += 1
                failed, passed_over, silent = set(), set(), {}
                if holds > HOLDS:
                    yield f"{path.name}: nodes were held {holds} times without an attempt"
            elif event.word == "placed":
                passed_over = set(failed)
            elif event.word == "attempt":
                holds = 0
                if left := sorted(passed_over - excluded):
                    problem = "failed before the ranks were given, and are not excluded"
                    yield f"{path.name}: {left} {problem}"
            elif event.word == "fail":
                failed.add(event.node)
            elif event.word in ("aside", "blamed"):
                excluded.add(event.node)
            elif (
                event.word == "silent"
                and event.node not in failed  # else an outcome repeats it
                and not excused(event.node, event.ms)
            ):
                silent[event.node] = event.ms


def reasons(root: Path, outcome: str = "") -> Iterator[tuple[str, str]]:
    """Yield (`run 1 attempt 2`, reason) of attempts."""
    for run, attempt, place in attempts_of(root):
        state = read_json(place / "state.json") or {}
        if not outcome or state.get("outcome") == outcome:
            yield f"run {run} attempt {attempt}", str(state.get("reason"))


def bytes_of_nodes(root: Path) -> int:
    """Return the most bytes from a node between two attempts, as the loop counts."""
    from orchestrator.onnode.loop.step import WORD_BYTES

    most = 0
    for path in root.glob("events-*.tsv"):
        sent = Counter[str]()
        for event in _events(path):
            if event.source == "node":
                sent[event.node] += len(event.detail) + WORD_BYTES
                most = max(most, sent[event.node])
            elif event.word in ("attempt", "hold"):
                sent.clear()
    return most


def not_complete(root: Path) -> Iterator[str]:
    """Yield a displayed state other than `complete`."""
    from orchestrator.evidence.sets import SetEvidence
    from orchestrator.evidence.state import judge

    state, reason, _ = judge(SetEvidence(root), {})
    if state != "complete":
        yield f"all runs are done, and the set is shown as {state}: {reason}"


def last_end_ms(root: Path) -> int:
    states = (read_json(path) or {} for path in root.glob("runs/*/attempt_*/state.json"))
    return max((int(state.get("end_ms", 0)) for state in states), default=0)


def leftover_files(root: Path) -> Iterator[str]:
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
    """Yield decisions that differ when made again."""
    from orchestrator.evidence.replay import replay

    for path in sorted(root.glob("events-*.tsv")):
        again = replay(_events(path))
        for difference in again.differences:
            yield f"{path.name}: {difference}"
        if again.reworded:
            yield f"{path.name}: {again.reworded} decisions in other words"


def ledger_violations(root: Path) -> Iterator[str]:
    """Yield the problems of `audit --only ledger`."""
    from orchestrator.evidence.ledger import verify

    for problem in verify(root).problems:
        yield f"ledger: {problem}"


def image_violations(root: Path) -> Iterator[str]:
    """Yield the images of runs that count if they differ and no change is on record."""
    from orchestrator.onnode.set import ledger

    states = (read_json(path) or {} for path in sorted(root.glob("runs/*/state.json")))
    images = {state.get("image_digest"): state.get("run") for state in states if _counts(state)}
    images.pop("", None)
    changes = [entry for entry in ledger.read(root)[0] if entry.kind == "change"]
    if len(images) > 1 and not changes:
        yield f"one set of images {images}"


def score_violations(root: Path) -> Iterator[str]:
    """Yield a score other than the mean without best and worst; a missed target is worst."""
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


def attempts_of(root: Path) -> Iterator[tuple[int, int, Path]]:
    attempts = (
        (int(path.parent.name), int(path.name.split("_")[1]), path)
        for path in root.glob("runs/*/attempt_*")
    )
    yield from sorted(attempts)


def read_json(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
