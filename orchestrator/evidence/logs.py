"""Find and follow the logs of a set."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.evidence.files import Findings
from orchestrator.evidence.sets import RunSet, SetEvidence, going
from orchestrator.evidence.training_log import training_log
from orchestrator.evidence.watch import Watch
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.node_names import fold
from orchestrator.onnode.kernel.records import RunRecord, read
from orchestrator.onnode.kernel.walk import FilesInside, problem
from orchestrator.scheduler.job import Scheduler
from orchestrator.words import quoted

CHUNK = 1024 * 1024
_OF_NODE = re.compile(r"runs/(\d+)/attempt_(\d+)/node_(\d+)\.log")
PAUSE_S = 0.5


def newest_runs(evidence: SetEvidence, nexp: int) -> list[int]:
    """Return the last job's current or last runs; without its record the last run with an attempt,
    or 0."""
    runs = [run for run, _ in going(evidence.job)] if evidence.job is not None else []
    active = sorted({min(run, nexp) for run in runs if run and evidence.attempts_of(run)})
    return active or [max((run for run, _ in evidence.tried if run <= nexp), default=0)]


def run_logs(run_set: RunSet, run: int | None, attempt: int | None, node: str) -> list[Path]:
    """Return one node's log of an attempt, without a run those of all active runs. `node` "": the
    node that logs for all. Raises UsageError with the choices."""
    evidence = SetEvidence(run_set.layout.root)
    runs = newest_runs(evidence, run_set.record.nexp) if run is None else [run]
    return [_run_log(run_set, evidence, number, attempt, node) for number in runs]


def _run_log(
    run_set: RunSet, evidence: SetEvidence, chosen: int, attempt: int | None, node: str
) -> Path:
    layout = run_set.layout
    if chosen > run_set.record.nexp:
        raise UsageError(f"{run_set.name} has runs 1 to {run_set.record.nexp}, not {chosen}")
    there = evidence.attempts_of(chosen) if chosen else []
    if not there:
        what = f"run {chosen}" if chosen else "no run"
        raise UsageError(
            f"{what} of {run_set.name} has started yet"
            if not chosen
            else f"{what} has not started yet",
            hint=f"orchestrator logs {quoted(layout.root)} --job shows the job's output",
        )
    if attempt is not None and attempt not in there:
        raise UsageError(f"run {chosen} has attempts {', '.join(map(str, there))}, not {attempt}")
    number = there[-1] if attempt is None else attempt
    return (
        layout.node_log(chosen, number, rank_of(layout, chosen, number, node))
        if node
        else training_log(layout, chosen, number)
    )


def rank_of(layout: Layout, run: int, attempt: int, node: str) -> int:
    """Return the rank of `node`, a rank or a name. Raises UsageError with the choices."""
    names = _nodes(layout, run, attempt)
    if node in names:
        return names.index(node)
    if node.isdecimal() and (int(node) < len(names) or not names):
        return int(node)
    raise UsageError(f"run {run} has no node {node!r}; its nodes by rank: {', '.join(names)}")


def _nodes(layout: Layout, run: int, attempt: int) -> list[str]:
    """Return an attempt's nodes by rank."""
    record = read(RunRecord, layout.attempt_state(run, attempt), FilesInside(layout.root))
    return record.nodes if isinstance(record, RunRecord) else []


def empty_lines(run_set: RunSet, path: Path) -> list[str]:
    """Return lines: the log is empty, its attempt's nodes with lines, and a command for one of
    them."""
    place = _OF_NODE.fullmatch(str(path.relative_to(run_set.layout.root)))
    if place is None:
        return [f"the log is empty: {path}"]
    run, attempt, rank = map(int, place.groups())
    names = _nodes(run_set.layout, run, attempt)
    named = [*names, *(f"rank {number}" for number in range(len(names), rank + 1))]
    text = f"the log of {named[rank]} for run {run} attempt {attempt} is empty: {path}"
    full = [
        name
        for number, name in enumerate(names)
        if _size(run_set.layout.node_log(run, attempt, number))
    ]
    if not full:
        return [text, "no node of this attempt has lines in its log"]
    command = f"  orchestrator logs {quoted(run_set.layout.root)} --run {quoted(run)}"
    command += f" --attempt {quoted(attempt)} --node {quoted(full[0])}"
    return [text, f"nodes with lines: {fold(full)}", command]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def job_log(layout: Layout, findings: Findings) -> Path:
    """Return the output of the newest job that printed something. `findings` gets what hides
    others. Raises UsageError."""
    names = findings.names(layout.root)
    outputs = [
        layout.root / name for name in names if name.startswith("job_") and name.endswith(".out")
    ]
    if not outputs and findings:
        raise UsageError(f"no output of a job can be read: {findings[0]}")
    if not outputs:
        raise UsageError(
            f"no job of {layout.root.name} has printed anything yet",
            hint=f"orchestrator status {quoted(layout.root)} shows whether it is still in the "
            "queue",
        )
    return max(outputs, key=_changed)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # a broken link
        return 0.0


def follow(
    run_set: RunSet,
    scheduler: Scheduler,
    *,
    run: int | None,
    attempt: int | None,
    node: str,
    job: bool,
    findings: Findings,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[Path, bytes]]:
    """Yield (log, new bytes) until the requested run is final, or without one until the set
    ends."""
    watch = Watch(run_set, scheduler, PAUSE_S)
    paths: list[Path] = []
    offsets: dict[Path, int] = {}
    while True:
        ended = not watch.look().live or (run is not None and _final(run_set.layout, run, attempt))
        wanted = _wanted(run_set, run, attempt, node, findings if job else None)
        for path in dict.fromkeys([*paths, *wanted]):  # the last output before the next run's log
            for part in _rest(path, findings, offsets.setdefault(path, 0)):
                offsets[path] += len(part[1])
                yield part
        paths = wanted
        if ended:
            return
        pause(PAUSE_S)


def _wanted(
    run_set: RunSet, run: int | None, attempt: int | None, node: str, of_job: Findings | None
) -> list[Path]:
    try:
        if of_job is not None:
            return [job_log(run_set.layout, of_job)]
        return run_logs(run_set, run, attempt, node)
    except UsageError:
        if run is not None and run > run_set.record.nexp:
            raise
        return []  # nothing has started so far


def _final(layout: Layout, run: int, attempt: int | None) -> bool:
    path = layout.run_state(run) if attempt is None else layout.attempt_state(run, attempt)
    record = read(RunRecord, path, FilesInside(layout.root))
    if not isinstance(record, RunRecord):
        return False
    return record.done or (attempt is not None and record.state == "failed")


def _rest(path: Path, findings: Findings, offset: int) -> Iterator[tuple[Path, bytes]]:
    try:
        yield from ((path, chunk) for chunk in content(path, findings.inside, offset))
    except FileNotFoundError:
        return
    except OSError as error:
        findings.add(path, problem(error))


def content(path: Path, files: FilesInside, offset: int = 0) -> Iterator[bytes]:
    """Yield a log from `offset` on, in pieces. Raises OSError."""
    with files.open(path) as file:
        file.seek(offset)
        while chunk := file.read(CHUNK):
            yield chunk
