"""What holds of a set whatever became of it on the way."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from machine import knobs, settings_owners, settings_watchdog
from replayed import differences
from set_invariants import attempts_of, result_violations, seed_violations
from trial import Trial

from orchestrator.onnode.agent.engine import LATEST_S
from orchestrator.onnode.agent.leftovers import holder

FINAL = {"success", "failed"}


def violations(trial: Trial, knobs_before: dict[str, bytes]) -> list[str]:
    """Everything that should not be so, in words; [] of a set that survived."""
    return [
        *trial.said,
        *_records(trial),
        *seed_violations(trial.set, attempts_of(trial.set)),
        *_commands(trial),
        *_left(trial, knobs_before),
    ]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _records(trial: Trial) -> Iterator[str]:
    """Every run accounted for, every attempt on record and final, one good one per run, and what is published is its log."""
    good: dict[int, list[int]] = {}
    numbers: dict[int, list[int]] = {}
    for run, attempt, place in attempts_of(trial.set):
        numbers.setdefault(run, []).append(attempt)
        state = _read(place / "state.json")
        if state is None or state.get("state") not in FINAL:
            yield f"run {run} attempt {attempt}: {'no readable state' if state is None else state.get('state')}"
        elif state["state"] == "success":
            good.setdefault(run, []).append(attempt)
    for run in range(1, trial.runs + 1):
        if numbers.get(run, []) != list(range(1, len(numbers.get(run, [])) + 1)):
            yield f"run {run}: attempts {numbers.get(run)}"
        if len(good.get(run, [])) != 1:
            yield f"run {run}: good attempts {good.get(run, [])}"
            continue
        state = _read(trial.set / f"runs/{run}/state.json")
        if state is None or (state.get("state"), state.get("attempt")) != ("success", good[run][0]):
            yield f"run {run}: its state is {state and (state.get('state'), state.get('attempt'))}"
        result = trial.set / f"runs/{run}/result_{run}.txt"
        yield from result_violations(trial.set, run, good[run][0], result)


def _commands(trial: Trial) -> Iterator[str]:
    """Every reader gets along with what is there, and the score is that of the logs."""
    before = len(trial.said)
    for words, codes in (
        (("status", str(trial.set)), (0,)),
        (("nodes", str(trial.set)), (0,)),
        (("explain", str(trial.set)), (0,)),
        (("ledger", "verify", str(trial.set)), (0, 1) if trial.damaged else (0,)),
        (("score", str(trial.set), "--json"), (0,)),
        (("report", str(trial.set), "-o", str(trial.root / "report.html")), (0,)),
    ):
        answer = trial.command(*words, codes=codes)
        if words[0] == "score" and answer.returncode == 0:
            times = sorted(_minutes(path) for path in trial.set.glob("runs/*/result_*.txt"))
            told = json.loads(answer.stdout)["olympic_mean_minutes"]
            if abs(sum(times[1:-1]) / len(times[1:-1]) - told) > 1e-9:
                yield f"score {told} of {times}"
    yield from trial.said[before:]
    del trial.said[before:]
    if not trial.damaged:
        yield from differences(trial.set)


def _minutes(log: Path) -> float:
    found = dict(
        re.findall(
            r'"time_ms": (\d+), "event_type": "INTERVAL_(?:START|END)", "key": "(run_st\w+)"',
            log.read_text(),
        )
    )
    times = {key: int(time_ms) for time_ms, key in found.items()}
    return (times["run_stop"] - times["run_start"]) / 60_000


def _left(trial: Trial, knobs_before: dict[str, bytes]) -> Iterator[str]:
    """No container, process or file of ours; settings as before."""

    # Another set of the same machine may hold its settings as well, and needs whoever puts them back.
    def left() -> list[int]:
        return [
            pid
            for pid in trial.processes()
            if not (settings_owners() and pid == settings_watchdog())
        ]

    # After a container that was never seen to run, its remover tries for so long.
    limit_s = 30 + sum(LATEST_S)
    trial.wait(lambda: not left() and not trial.containers() and not trial.owners(), limit_s)
    for pid in left():
        with suppress(OSError):  # it ended meanwhile
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")[:120]
            yield f"process {pid} is left: {words.decode(errors='replace')}"
    if containers := trial.containers():
        yield f"containers are left: {containers}"
    if trial.flavour.tuned:
        trial.wait(lambda: not trial.owners() and settings_owners() != [], 60)
        if trial.owners() or settings_owners() == []:
            yield f"settings are not put back; owners: {trial.owners()}"
        elif settings_owners() is None and knobs_before and knobs() != knobs_before:
            yield "the machine's settings are not as before"
    for path in (*trial.set.rglob(".*tmp*"), *trial.set.glob("*.lock"), *trial.set.glob(".*.lock")):
        yield f"left in the set: {path.relative_to(trial.set)}"
    mark = trial.job()
    for path in (*Path("/tmp").glob("orch-*"), *(trial.root / "channels").glob("*")):
        ours = path.parent.name == "channels" or (mark and f"-{mark}-" in path.name)
        if ours and not _is_for_the_next(trial, path):
            yield f"left: {path}"


def _is_for_the_next(trial: Trial, folder: Path) -> bool:
    """Whether the next agent on this host will remove a folder: its own was killed, and none came after that.

    A successor that finds all runs done starts no agents.
    """
    words, lives = holder(str(folder))
    spoke = dict[str, int]()
    for path in trial.set.glob("events-*.tsv"):
        found = re.search(r"^(\d+)\tnode\t", path.read_text(errors="replace"), re.MULTILINE)
        if found:
            spoke[path.stem.removeprefix("events-")] = int(found[1])
    last = max(spoke, key=spoke.__getitem__, default="")
    is_left = (bool(words) and not lives) or not any(folder.iterdir())
    return is_left and f"-{last}-" in folder.name
