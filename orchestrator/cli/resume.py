"""Submit the missing runs of a set: the same bundle again, from its first unfinished run on.

--nexp N gives the set more runs, up to N in all: they are declared in its ledger, and a score needs
all N. A set does not shrink.

Refused while a job of the set is alive, and if all runs are done. Earlier attempts stay recorded.
--spares, --side-by-side, --exclude, --time, --sbatch, --dependency and --begin apply to this job
alone: they are passed on the scheduler's command line, and the set's bundle stays unchanged.

A wrong --env or --override is in the bundle: submit a new set, or edit its bundle/config_*.sh and
resume with --edited. `score` names an edit between runs. A deleted file is put back as it was
declared, which also undoes an edit.

example:
  orchestrator resume                                # the newest set
  orchestrator resume MI325X_08x08x32-flux1-20261121 --spares 1 --exclude node7
  orchestrator resume MI325X_08x08x32-flux1-20261121 --nexp 10
  orchestrator resume --time 24:00:00                # a longer job than the last
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import (
    add_allocation,
    add_flag,
    add_job,
    add_number,
    add_option,
    add_others,
    add_set_and_json,
    add_wait,
    time_limit,
)
from orchestrator.cli.command import Command
from orchestrator.cli.finding import (
    excluded,
    job_options,
    own_set,
    refuse_without_scheduler,
    scheduler_of,
)
from orchestrator.cli.output import note, print_json
from orchestrator.errors import ExitCode
from orchestrator.scheduler.kinds import kind_of
from orchestrator.words import count

if TYPE_CHECKING:
    from orchestrator.evidence.sets import RunSet


def add_arguments(parser: ArgumentParser) -> None:
    add_set_and_json(parser)
    add_wait(parser)
    add_number(
        parser,
        "--nexp",
        "N",
        "extend the set to N runs, all of which its score needs (default: as it was declared)",
    )
    add_allocation(parser)
    add_option(
        parser,
        "--time",
        "TIME",
        "this job's time limit, as for sbatch (default: that of the set's first job)",
        type=time_limit,
    )
    add_job(parser)
    add_others(parser)
    add_flag(
        parser,
        "--edited",
        "the set's bundle was edited since it was declared, and is meant as it is now",
    )
    add_flag(
        parser,
        "--allow-changes",
        "run although the image, or the content of its containers, is not that of the runs that "
        "count; the ledger records it",
    )


def run(args: Namespace) -> int:
    from orchestrator.runset.allocation import Allocation
    from orchestrator.runset.extend import check_number
    from orchestrator.runset.submit import missing_runs, submit

    run_set = own_set(args)
    scheduler = run_set.record.scheduler
    options = (*args.sbatch, *job_options(args, scheduler))
    allocation = Allocation(
        args.spares,
        tuple(excluded(args)),
        args.side_by_side,
        options,
        args.allow_changes,
        args.time or "",
    )
    for_slurm = {
        "--exclude": allocation.exclude,
        "--sbatch": args.sbatch,
        "--time": args.time,
    }
    for option in (option for option, value in for_slurm.items() if value):
        refuse_without_scheduler(scheduler, option)
    check_number(run_set, args.nexp or 0)
    nexp = args.nexp or run_set.record.nexp
    missing = missing_runs(replace(run_set, record=replace(run_set.record, nexp=nexp)))
    if kind_of(scheduler).allocates:
        allocation.refuse_too_few(run_set.record, run_set.layout, len(missing))
    submission = submit(
        run_set,
        scheduler_of(run_set),
        allocation=allocation,
        edited=args.edited,
        nexp=args.nexp or 0,
        note=note,
    )
    _note_excluded(run_set, allocation.exclude)
    if args.json:
        print_json(
            "resume",
            {
                "set": str(run_set.layout.root),
                "job_id": submission.job_id,
                "submission": submission.number,
                "missing_runs": missing,
            },
        )
    else:
        print(
            f"set  {run_set.layout.root}\njob  {submission.job_id}\n"
            f"{len(missing)} of {count(nexp, 'run')} left: "
            f"{'run' if len(missing) == 1 else 'runs'} {', '.join(map(str, missing))}",
            flush=True,
        )
    if not args.wait:
        return ExitCode.OK
    from orchestrator.cli.watch import wait

    return wait(run_set, args.site)


def _note_excluded(run_set: RunSet, exclude: tuple[str, ...]) -> None:
    """Name nodes that earlier jobs excluded or blamed: this job may get them again."""
    from orchestrator.evidence.events import read_job_notes
    from orchestrator.evidence.sets import SetEvidence

    notes = read_job_notes(SetEvidence(run_set.layout.root))
    last = {aside.node: ("blamed", aside) for aside in notes.blamed}
    last |= {aside.node: ("excluded", aside) for aside in notes.aside}
    for node, (word, aside) in last.items():
        if node in exclude:
            continue
        avoid = (
            f"; --exclude {node} keeps a job off it"
            if kind_of(run_set.record.scheduler).allocates
            else ""
        )
        job = f"an earlier job ({aside.when})"
        note(f"note: {node} was {word} in {job}: {aside.reason}{avoid}")


COMMAND = Command(
    "resume",
    __doc__,
    add_arguments,
    run,
)
