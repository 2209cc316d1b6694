"""The whole preparation: which steps are to be done, and doing them in order."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from orchestrator.container.image import EngineError
from orchestrator.container.local import engine, find_image
from orchestrator.errors import InputError, SetError
from orchestrator.prepare.secret import Secret
from orchestrator.prepare.state import StepState, beating, now_ms, read_state, runs_elsewhere, write_state
from orchestrator.prepare.step import missing_after, run_step

if TYPE_CHECKING:
    from docker import DockerClient

    from orchestrator.prepare.documents import StepPart
    from orchestrator.prepare.plan import Plan

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StepReport:
    """A step and why it is (not) to be run; after the run with its last state."""

    name: str
    what: str
    due: bool
    why: str
    state: StepState | None

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.name,
            "what": self.what,
            "due": self.due,
            "why": self.why,
            "state": self.state.to_json() if self.state else None,
        }


def outlook(plan: Plan) -> list[StepReport]:
    """Return every step of the plan, with what its state says. Reads only."""
    reports = []
    for step in plan.steps:
        state = read_state(plan.state_folder, step.name)
        why = _why_due(plan, step, state)
        reports.append(StepReport(step.name, step.what, bool(why), why or "done", state))
    return reports


def _why_due(plan: Plan, step: StepPart, state: StepState | None) -> str:
    """Why the step is to be run; "" when it is done."""
    if state is None:
        return "not done yet"
    if state.state == "running":
        return "it died or was interrupted"
    if state.state == "failed":
        return f"it failed: {state.reason}"
    if state.fingerprint != plan.fingerprint(step):
        return "it was done with other commands"
    # An optional step (such as deleting downloads) takes away on purpose what an earlier one left.
    gone = [] if _reclaimed(plan) else missing_after(plan, step)
    return f"what it leaves is gone: {', '.join(map(str, gone))}" if gone else ""


def _reclaimed(plan: Plan) -> bool:
    states = (read_state(plan.state_folder, step.name) for step in plan.part.steps if step.optional)
    return any(state is not None and state.state == "done" for state in states)


def prepare(
    plan: Plan, secrets: dict[str, Secret], *, address: str = "", tell: Tell, output: Callable[[bytes], None]
) -> list[StepReport]:
    """Run every step that is due, in order, and stop at the first that fails. Returns all steps with their states.

    Raises EngineError, InputError (folders that cannot be written), SetError (somebody else is at work).
    """
    with engine(address, timeout_s=300) as client:
        image = find_image(client, plan.image)
        if image is None:
            raise EngineError(
                f"the engine does not have {plan.image}", hint=f"orchestrator images pull --image {plan.image}"
            )
        _make_folders(plan)
        for report, step in zip(outlook(plan), plan.steps, strict=True):
            if not report.due:
                tell(f"{step.name}: done, skipped")
                continue
            _refuse_second(plan, report)
            tell(f"{step.name}: {step.what} ({report.why}); log: {plan.state_folder / step.name}.log")
            state = _run(client, image.id, plan, step, report, secrets.get(step.secret or ""), output)
            tell(
                f"{step.name}: {state.state} after {(state.ended_ms - state.started_ms) / 1000:.1f} s"
                f"{'; ' + state.reason if state.reason else ''}"
            )
            if state.state != "done":
                break
    return outlook(plan)


def _make_folders(plan: Plan) -> None:
    for folder in (*plan.folders.values(), plan.state_folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: cannot be made: {error.strerror}") from error


def _refuse_second(plan: Plan, report: StepReport) -> None:
    if report.state is not None and runs_elsewhere(plan.state_folder, report.state):
        raise SetError(
            f"{report.name} of {plan.workload} runs on {report.state.host} (process {report.state.pid})",
            hint="wait for it; a step that died there is taken over after two minutes",
        )


def _run(
    client: DockerClient,
    image_id: str,
    plan: Plan,
    step: StepPart,
    report: StepReport,
    secret: Secret | None,
    output: Callable[[bytes], None],
) -> StepState:
    folder = plan.state_folder
    state = StepState(
        step.name, "running", plan.fingerprint(step), image_id, os.uname().nodename, os.getpid(), now_ms()
    )
    write_state(folder, state)
    again = report.state is not None
    with beating(folder, step.name):
        code = run_step(
            client, image_id, plan, step, plan.text(step, again=again), secret, folder / f"{step.name}.log", output
        )
    gone = missing_after(plan, step)
    reason = f"exit code {code}" if code else f"it ended well, but left no {', '.join(map(str, gone))}" if gone else ""
    state = replace(state, state="failed" if reason else "done", ended_ms=now_ms(), exit_code=code, reason=reason)
    write_state(folder, state)
    return state
