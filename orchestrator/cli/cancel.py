"""End a set's job. The loop is asked to close the set (containers removed, host settings reverted,
states final); after --grace seconds the rest is killed. Waits until the job has ended. `resume`
continues the set later.

example:
  orchestrator cancel                                # the newest set
  orchestrator cancel MI325X_08x08x32-flux1-20261121 --grace 120
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_option, add_others, add_set_and_json, seconds
from orchestrator.cli.command import Command
from orchestrator.cli.finding import own_set, scheduler_of
from orchestrator.cli.output import print_json
from orchestrator.errors import ExitCode, SchedulerError, SetError
from orchestrator.words import count, quoted

if TYPE_CHECKING:
    from orchestrator.evidence.picture import SetPicture

GRACE_S = 60.0


def add_arguments(parser: ArgumentParser) -> None:
    add_set_and_json(parser)
    add_others(parser, "its owner may still need the job")
    add_option(
        parser,
        "--grace",
        "S",
        f"seconds the job gets to close the set, then it is ended by force (default: {GRACE_S:g})",
        type=seconds,
        default=GRACE_S,
    )


def run(args: Namespace) -> int:
    from orchestrator.cli.closing import unreleased_line
    from orchestrator.evidence.events import unreleased
    from orchestrator.evidence.picture import as_json, look
    from orchestrator.evidence.sets import SetEvidence
    from orchestrator.runset.cancel import cancel
    from orchestrator.scheduler.advice import show_job

    run_set = own_set(args, "its owner may still need the job; to end it all the same:")
    scheduler = scheduler_of(run_set)
    jobs = cancel(run_set, scheduler, args.grace)
    if not jobs:
        raise SetError(
            f"set {run_set.name} has no job to cancel",
            hint=f"orchestrator status {quoted(run_set.layout.root)}",
        )
    [picture] = look([run_set.layout.root], [scheduler])
    stuck = [job_id for job_id, gone in jobs.items() if not gone]
    if stuck:
        raise SchedulerError(
            f"job {', '.join(stuck)} is still there",
            hint=f"an operator can end it: {show_job(stuck[0])} shows the nodes",
        )
    evidence = SetEvidence(run_set.layout.root)
    held = {job_id: nodes for job_id in jobs if (nodes := unreleased(evidence, job_id))}
    if args.json:
        print_json("cancel", {"jobs": jobs, "unreleased": held, **as_json(picture)})
    else:
        lines = [unreleased_line(picture, job_id, nodes) for job_id, nodes in held.items()]
        print(_summary(picture, list(jobs), lines, args.site))
    return ExitCode.OK


def _summary(
    picture: SetPicture, jobs: list[str], not_released: list[str], site: str | None
) -> str:
    from orchestrator.cli.closing import with_short_name

    nexp = picture.record.nexp if picture.record else 0
    after = f"{picture.done} of {count(nexp, 'run')}"
    lines = [f"cancelled job {', '.join(jobs)} after {after}"]
    left = [str(run.run) for run in picture.runs if run.state == "interrupted" and not run.outcome]
    if left:
        lines.append(
            f"run {', '.join(left)} had no time to write its final state; resume closes it"
        )
    lines += not_released
    resume = with_short_name(f"orchestrator resume {quoted(picture.root)}", picture.root, site)
    lines.append(f"to continue: {resume}")
    return "\n".join(lines)


COMMAND = Command(
    "cancel",
    __doc__,
    add_arguments,
    run,
)
