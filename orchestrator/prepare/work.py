"""Run due steps in order, under the lock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.container.image import EngineError
from orchestrator.container.local import engine, find_image
from orchestrator.errors import InputError, OrchestratorError, SetError
from orchestrator.lock import Lock
from orchestrator.onnode.kernel.world import THIS
from orchestrator.onnode.policy.lease import STALE_S
from orchestrator.onnode.set.lease import BEAT_S, HeldError, Lease
from orchestrator.prepare.secret import Secret
from orchestrator.prepare.state import StepReport, StepState, missing_after, outlook, write_state
from orchestrator.prepare.step import StepRunner, container_name
from orchestrator.words import quoted

if TYPE_CHECKING:
    from orchestrator.prepare.plan import Plan

SHOWN_PATHS = 10


def data_lock(path: Path, lost: Callable[[], None], *, beat_s: float = BEAT_S) -> Lock:
    """Lock the data for one preparation, on any machine.

    `lost` is called, in another thread, when another process has taken the lock: this machine was
    cut off too long.
    """
    lease = Lease(path, THIS.holder(), lost=lost, beat_s=beat_s)
    return Lock(lease, _another_preparation, InputError)


def _another_preparation(held: HeldError) -> SetError:
    return SetError(
        f"the same data are being prepared by {held.holder}; {held.verdict.why}",
        hint=f"wait for it; a dead process is replaced {STALE_S:.0f} s after its last sign of life",
    )


def prepare(
    plan: Plan,
    secrets: dict[str, Secret],
    *,
    address: str = "",
    progress: Callable[[str], None],
    output: Callable[[bytes], None],
) -> list[StepReport]:
    """Run due steps until one fails; return all steps.

    `output` receives their output. Raises EngineError, InputError for folders that are unwritable
    or hold files of others, SetError if another process has the lock.
    """

    def end_container() -> None:
        with suppress(OrchestratorError), engine(address, timeout_s=30) as client:
            client.api.kill(container_name(plan))

    with engine(address, timeout_s=300) as client:
        image = find_image(client, plan.image)
        if image is None:
            raise EngineError(
                f"the engine does not have {plan.image}",
                hint=f"orchestrator images pull --image {quoted(plan.image)}"
                if plan.build is None
                else "no registry has it: orchestrator images build SYSTEM "
                f"{quoted(plan.workload)} "
                f"--tree DIR, with {plan.build.source}",
            )
        runner = StepRunner(client, image.id, plan, output)
        _make_folders(plan)
        with data_lock(plan.lock_file, end_container) as lock:
            reports = outlook(plan)
            refuse_in_the_way(reports)
            _remove_empty(plan, reports)
            for report in reports:
                name = report.step.name
                if not report.due:
                    progress(f"{name}: done, skipped")
                    continue
                lock.confirm()
                log = plan.log_file(report.step)
                progress(f"{name}: {report.step.what} ({report.why}); log: {log}")
                secret = secrets.get(report.step.secret or "")
                state = _run(runner, plan, report, secret, lock)
                seconds = (state.ended_ms - state.started_ms) / 1000
                reason = f"; {state.reason}" if state.reason else ""
                progress(f"{name}: {state.state} after {seconds:.1f} s{reason}")
                if state.state != "done":
                    break
            return outlook(plan)


def refuse_in_the_way(reports: list[StepReport]) -> None:
    """Raise InputError if a step would delete files of others."""
    paths = list(dict.fromkeys(path for report in reports for path in report.in_the_way))
    if not paths:
        return
    shown = "".join(f"\n  {path}" for path in paths[:SHOWN_PATHS])
    hidden = len(paths) - SHOWN_PATHS
    more = f"\n  and {hidden} more" if hidden > 0 else ""
    steps = ", ".join(report.step.name for report in reports if report.in_the_way)
    raise InputError(
        f"{steps}: the published commands would delete or overwrite existing files:{shown}{more}",
        hint="move them to another folder, or name an empty folder in the site's data section; "
        "are they the prepared data? `--check` compares",
    )


def _remove_empty(plan: Plan, reports: list[StepReport]) -> None:
    """A moved folder would end up inside an empty folder."""
    for report in reports:
        if report.due and not report.again:
            for part in report.step.clean:
                with suppress(OSError):
                    plan.host_path(part).rmdir()


def _make_folders(plan: Plan) -> None:
    mounted = [Path(folder) for step in plan.steps for folder, _ in plan.binds(step)]
    for folder in dict.fromkeys((*plan.folders.values(), *mounted, plan.state_folder)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: cannot be made: {error.strerror}") from error


def _run(
    runner: StepRunner, plan: Plan, report: StepReport, secret: Secret | None, lock: Lock
) -> StepState:
    step = report.step
    state = StepState(
        step.name,
        "running",
        fingerprint=plan.fingerprint(step),
        image=runner.image_id,
        host=THIS.host,
        pid=THIS.pid,
        started_ms=THIS.wall_ms(),
    )
    write_state(plan.state_folder, state)
    code = runner.run(step, plan.text(step, again=report.again), secret)
    lock.confirm()
    missing = missing_after(plan, step)
    reason = ""
    if code:
        reason = f"exit code {code}"
    elif missing:
        reason = f"it ended well, but left no {', '.join(map(str, missing))}"
    state = replace(
        state,
        state="failed" if reason else "done",
        ended_ms=THIS.wall_ms(),
        exit_code=code,
        reason=reason,
    )
    write_state(plan.state_folder, state)
    return state
