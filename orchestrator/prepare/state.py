"""State of each step, as JSON in the data folder, and the due steps.

Only the lock's holder writes: without a lock, a `running` step has died.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.errors import InputError, SetError, is_full
from orchestrator.onnode.kernel import records
from orchestrator.onnode.kernel.regular import parse, read_bytes
from orchestrator.prepare.sizes import has_content
from orchestrator.words import quoted

if TYPE_CHECKING:
    from orchestrator.prepare.documents import StepPart
    from orchestrator.prepare.plan import Plan


@dataclass(frozen=True, slots=True)
class StepState:
    """Times are Unix ms; while running `ended_ms` is 0, `exit_code` -1."""

    step: str
    state: Literal["running", "done", "failed"]
    fingerprint: str
    image: str
    host: str
    pid: int
    started_ms: int
    ended_ms: int = 0
    exit_code: int = -1
    reason: str = ""
    schema: int = 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class StepReport:
    step: StepPart
    due: bool
    why: str
    state: StepState | None
    again: bool
    """The same commands ran before: their remains may be deleted."""
    in_the_way: tuple[Path, ...]
    """Files of others that the step would delete."""

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.step.name,
            "what": self.step.what,
            "due": self.due,
            "why": self.why,
            "state": self.state.to_json() if self.state else None,
            "in_the_way": [str(path) for path in self.in_the_way],
        }


def read_state(folder: Path, step: str) -> StepState | None:
    try:
        return StepState(**parse(read_bytes(folder / f"{step}.json")))
    except (OSError, ValueError, TypeError):
        return None


def write_state(folder: Path, state: StepState) -> None:
    """Raises InputError if the folder is not writable, SetError if full."""
    path = folder / f"{state.step}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        records.replace(path, json.dumps(state.to_json(), indent=2).encode() + b"\n")
    except OSError as error:
        raise (SetError if is_full(error) else InputError)(
            f"{path}: cannot be written: {error.strerror or error}",
            hint=f"ls -ld {quoted(folder.parent)}",
        ) from error


def outlook(plan: Plan) -> list[StepReport]:
    return [_report(plan, step) for step in plan.steps]


def _report(plan: Plan, step: StepPart) -> StepReport:
    state = read_state(plan.state_folder, step.name)
    reason = _reason_due(plan, step, state)
    # Results of other commands are somebody's data: kept, and in the way.
    same_commands = state is not None and state.fingerprint == plan.fingerprint(step)
    again = state is not None and (state.state != "done" or same_commands)
    obstacles = _in_the_way(plan, step, again=again) if reason else ()
    return StepReport(step, bool(reason), reason or "done", state, again, obstacles)


def _reason_due(plan: Plan, step: StepPart, state: StepState | None) -> str:
    if state is None:
        is_there = step.accepts and not missing_after(plan, step)
        return "" if is_there else "not done yet"
    if state.state == "running":
        return "it died or was interrupted"
    if state.state == "failed":
        return f"it failed: {state.reason}"
    if state.fingerprint != plan.fingerprint(step):
        return "it was done with other commands"
    # Optional steps, such as deleting downloads, remove other steps' results.
    missing = [] if _optional_step_done(plan) else missing_after(plan, step)
    return f"its results are missing: {', '.join(map(str, missing))}" if missing else ""


def missing_after(plan: Plan, step: StepPart) -> list[Path]:
    return [path for path in map(plan.host_path, step.leaves) if not has_content(path)]


def _optional_step_done(plan: Plan) -> bool:
    states = (read_state(plan.state_folder, step.name) for step in plan.part.steps if step.optional)
    return any(state is not None and state.state == "done" for state in states)


def _in_the_way(plan: Plan, step: StepPart, *, again: bool) -> tuple[Path, ...]:
    paths: list[Path] = []
    if not again:
        for remains in step.clean:
            paths += _content(plan.host_path(remains))
    for folder in step.overwrites:
        allowed = folder.makes if again else []
        for path in _content(plan.host_path(folder)):
            if not any(fnmatch(path.name, pattern) for pattern in allowed):
                paths.append(path)
    return tuple(paths)


def _content(path: Path) -> list[Path]:
    """Return sorted content; a file or unreadable folder counts as its own."""
    try:
        return sorted(path.iterdir())
    except FileNotFoundError:
        return []
    except OSError:
        return [path]
