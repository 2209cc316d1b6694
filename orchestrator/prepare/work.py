"""The whole preparation: find the due steps, and run them in order."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.container.image import EngineError
from orchestrator.container.local import engine, find_image
from orchestrator.errors import InputError, OrchestratorError
from orchestrator.prepare.lock import DataLock
from orchestrator.prepare.secret import Secret
from orchestrator.prepare.state import StepState, now_ms, read_state, write_state
from orchestrator.prepare.step import container_name, missing_after, run_step

if TYPE_CHECKING:
    from docker import DockerClient

    from orchestrator.prepare.documents import StepPart
    from orchestrator.prepare.plan import Plan

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StepReport:
    """A step, why it is (not) due, and its last state after the run."""

    name: str
    what: str
    due: bool
    why: str
    state: StepState | None
    again: bool
    """True if an earlier try of these steps ran: its remains are ours to delete."""
    in_the_way: tuple[Path, ...]
    """Other people's files that would be deleted or mixed with the step's."""

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.name,
            "what": self.what,
            "due": self.due,
            "why": self.why,
            "state": self.state.to_json() if self.state else None,
            "in_the_way": [str(path) for path in self.in_the_way],
        }


def outlook(plan: Plan) -> list[StepReport]:
    """Return every step of the plan, with its state. Reads only."""
    reports = []
    for step in plan.steps:
        state = read_state(plan.state_folder, step.name)
        why = _why_due(plan, step, state)
        # Results of other commands are somebody's data: kept, and in the way.
        again = state is not None and (
            state.state != "done" or state.fingerprint == plan.fingerprint(step)
        )
        obstacles = _in_the_way(plan, step, again=again) if why else ()
        reports.append(
            StepReport(step.name, step.what, bool(why), why or "done", state, again, obstacles)
        )
    return reports


def _in_the_way(plan: Plan, step: StepPart, *, again: bool) -> tuple[Path, ...]:
    found = [] if again else [path for part in step.clean for path in _listed(plan.host_path(part))]
    for part in step.overwrites:
        makes = part.makes if again else []
        inside = _listed(plan.host_path(part))
        found += [
            path for path in inside if not any(fnmatch(path.name, pattern) for pattern in makes)
        ]
    return tuple(found)


def _listed(path: Path) -> list[Path]:
    """Return the sorted content of a folder. A file, or an unreadable folder, is its own
    content."""
    try:
        return sorted(path.iterdir())
    except FileNotFoundError:
        return []
    except OSError:
        return [path]


def _why_due(plan: Plan, step: StepPart, state: StepState | None) -> str:
    """Return why the step is due; "" if it is done."""
    if state is None:
        return "not done yet"
    if state.state == "running":
        return "it died or was interrupted"
    if state.state == "failed":
        return f"it failed: {state.reason}"
    if state.fingerprint != plan.fingerprint(step):
        return "it was done with other commands"
    # An optional step (such as deleting downloads) may remove an earlier step's results on purpose.
    gone = [] if _reclaimed(plan) else missing_after(plan, step)
    return f"what it leaves is gone: {', '.join(map(str, gone))}" if gone else ""


def _reclaimed(plan: Plan) -> bool:
    states = (read_state(plan.state_folder, step.name) for step in plan.part.steps if step.optional)
    return any(state is not None and state.state == "done" for state in states)


def prepare(
    plan: Plan,
    secrets: dict[str, Secret],
    *,
    address: str = "",
    tell: Tell,
    output: Callable[[bytes], None],
) -> list[StepReport]:
    """Run every due step in order, and stop at the first failure. Return all steps with their
    states.

    Raises EngineError, InputError (folders that are not writable, or hold files that a step would
    delete), SetError (another preparation of the same data is running).
    """

    def end_container() -> None:
        with suppress(OrchestratorError), engine(address, timeout_s=30) as other:
            other.api.kill(container_name(plan))

    with engine(address, timeout_s=300) as client:
        image = find_image(client, plan.image)
        if image is None:
            raise EngineError(
                f"the engine does not have {plan.image}",
                hint=f"orchestrator images pull --image {plan.image}",
            )
        _make_folders(plan)
        with DataLock(plan.lock_file, end_container) as lock:
            reports = outlook(plan)
            refuse_in_the_way(reports)
            _remove_empty(plan, reports)
            for report, step in zip(reports, plan.steps, strict=True):
                if not report.due:
                    tell(f"{step.name}: done, skipped")
                    continue
                lock.confirm()
                tell(
                    f"{step.name}: {step.what} ({report.why}); log: {plan.state_folder / step.name}.log"
                )
                state = _run(
                    client,
                    image.id,
                    plan,
                    step,
                    report,
                    secrets.get(step.secret or ""),
                    output,
                    lock,
                )
                tell(
                    f"{step.name}: {state.state} after {(state.ended_ms - state.started_ms) / 1000:.1f} s"
                    f"{'; ' + state.reason if state.reason else ''}"
                )
                if state.state != "done":
                    break
            return outlook(plan)


def refuse_in_the_way(reports: list[StepReport]) -> None:
    """Raise InputError if a step would delete, or mix with its own, files made by no step of
    ours."""
    paths = list(dict.fromkeys(path for report in reports for path in report.in_the_way))
    if not paths:
        return
    shown = "".join(f"\n  {path}" for path in paths[:10])
    more = f"\n  and {len(paths) - 10} more" if len(paths) > 10 else ""
    steps = ", ".join(report.name for report in reports if report.in_the_way)
    raise InputError(
        f"{steps}: the published commands would delete or overwrite what is there already:{shown}{more}",
        hint="move it to another folder, or name an empty one in the site's data section; "
        "is it the prepared data? `--check` compares",
    )


def _remove_empty(plan: Plan, reports: list[StepReport]) -> None:
    """Remove empty folders at the places of a step's results: a moved folder would land inside
    them."""
    for report, step in zip(reports, plan.steps, strict=True):
        for part in step.clean if report.due and not report.again else []:
            with suppress(OSError):
                plan.host_path(part).rmdir()


def _make_folders(plan: Plan) -> None:
    mounted = [Path(folder) for step in plan.steps for folder in plan.binds(step)]
    for folder in dict.fromkeys((*plan.folders.values(), *mounted, plan.state_folder)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: cannot be made: {error.strerror}") from error


def _run(
    client: DockerClient,
    image_id: str,
    plan: Plan,
    step: StepPart,
    report: StepReport,
    secret: Secret | None,
    output: Callable[[bytes], None],
    lock: DataLock,
) -> StepState:
    folder = plan.state_folder
    state = StepState(
        step.name,
        "running",
        plan.fingerprint(step),
        image_id,
        os.uname().nodename,
        os.getpid(),
        now_ms(),
    )
    write_state(folder, state)
    text, log = plan.text(step, again=report.again), folder / f"{step.name}.log"
    code = run_step(client, image_id, plan, step, text, secret, log, output)
    lock.confirm()
    gone = missing_after(plan, step)
    reason = (
        f"exit code {code}"
        if code
        else f"it ended well, but left no {', '.join(map(str, gone))}"
        if gone
        else ""
    )
    state = replace(
        state,
        state="failed" if reason else "done",
        ended_ms=now_ms(),
        exit_code=code,
        reason=reason,
    )
    write_state(folder, state)
    return state
