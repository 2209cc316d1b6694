"""Create a set below the site's log directory and submit its job; print the set's folder and the
job id.

The set's folder holds the bundle that runs. It is printed before the scheduler is asked. An
unsubmitted set of the same bundle is taken instead of a new one. Nothing is left behind if the
bundle cannot be written, or if the partition does not allow the time that the runs need (Slurm is
asked; without an answer sbatch decides). Without an answer from the scheduler to the submission,
the set is `unknown`, the exit code is 4, and nothing is ever submitted twice.

example:
  orchestrator submit MI325X_08x08x32 flux1 --site site.yaml --nexp 10
  orchestrator submit MI325X_08x08x32 flux1 --spares 2 --exclude @bad-nodes.txt
  orchestrator submit MI355X_1x8x1 llama31_8b --side-by-side 10 --spares 1     # on eleven nodes
  orchestrator submit MI325X_08x08x32 flux1 --begin now+2hours --dependency afterany:4711
  orchestrator submit MI325X_08x08x32 flux1 --name 'new bios' --wait
  orchestrator submit MI325X_08x08x32 flux1 --dry-run        # the request, without submitting it
  orchestrator submit MI325X_08x08x32 flux1 --test-only      # when and where it could start
"""

from __future__ import annotations

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.cli.arguments import add_flag, add_request, add_wait
from orchestrator.cli.command import Command
from orchestrator.cli.finding import job_options, load_asked, refuse_without_scheduler, scheduler_of
from orchestrator.cli.output import note, print_json, warn
from orchestrator.errors import ExitCode, OrchestratorError
from orchestrator.scheduler.kinds import kind_of
from orchestrator.words import cell, count, duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.errors import UsageError
    from orchestrator.evidence.sets import RunSet, SubmissionRecord
    from orchestrator.model import Entry
    from orchestrator.runset.start import Insist
    from orchestrator.scheduler.job import JobRequest

    Warn = Callable[[str], object]
    """Prints a warning, or keeps it for later."""


def add_arguments(parser: ArgumentParser) -> None:
    add_request(parser)
    add_wait(parser)
    asked = parser.add_mutually_exclusive_group()
    add_flag(
        asked,
        "--dry-run",
        "write nothing, submit nothing; print the resources of the job, and the submit command",
    )
    add_flag(asked, "--test-only", "submit nothing; ask Slurm when and where the job could start")


def run(args: Namespace) -> int:
    if args.dry_run or args.test_only:
        return _test(args) if args.test_only else _show(args)
    run_set, submission = submit_new(args)
    if args.json:
        print_json(
            "submit",
            {
                "set": str(run_set.layout.root),
                "set_id": run_set.name,
                "job_id": submission.job_id,
                "job_name": run_set.record.job_name,
                "nexp": run_set.record.nexp,
            },
        )
    else:
        print(f"job  {submission.job_id}", flush=True)
    if not args.wait:
        return ExitCode.OK
    from orchestrator.cli.watch import wait

    return wait(run_set, args.site)


def submit_new(args: Namespace) -> tuple[RunSet, SubmissionRecord]:
    """Submit the set of the arguments of add_entry() and add_job()."""
    entry = _load(args, warn)
    options = job_options(args, entry.site.scheduler)
    insist = _insist(args, warn) if args.force else None
    return submit_entry(
        entry,
        args.nexp,
        options=options,
        label=args.label or "",
        as_json=args.json,
        insist=insist,
        typed=args.typed,
    )


def _load(args: Namespace, warn: Warn) -> Entry:
    from orchestrator.model.prerequisites import DATA

    return load_asked(args, warn, known=[DATA])  # missing data are refused, with the reason


def _insist(args: Namespace, warn: Warn) -> Insist:
    # The command that fixes a problem needs no --force against it.
    typed = [word for word in args.typed if word != "--force"]

    def show(problem: UsageError) -> None:
        fix = problem.fix.line(typed) if problem.fix else f"hint: {problem.hint}"
        warn(f"{problem.message}\n  {fix}")

    return show


def _warn_of_image(entry: Entry, warn: Warn, typed: Sequence[str]) -> None:
    from orchestrator.cli.missing_image import missing_image
    from orchestrator.inspection.kept import command_for, kept_for

    if missing := missing_image(entry):
        warn(f"{missing.text}\n  {missing.fix.line(typed)}")
    kept = kept_for(entry)
    if kept is not None and kept.errors:
        warn(f"the image does not fit: {cell(kept.problem)}; {command_for(entry)}")


def submit_entry(
    entry: Entry,
    nexp: int | None = None,
    *,
    options: tuple[str, ...] = (),
    label: str = "",
    as_json: bool = False,
    insist: Insist | None = None,
    typed: Sequence[str] = (),
) -> tuple[RunSet, SubmissionRecord]:
    """`typed`: as in Fix.line()."""
    from orchestrator.model.prerequisites import needs
    from orchestrator.runset.start import start

    for need in needs(entry, os.environ):
        if not need.stops and need.fix:
            warn(f"{need.text}; {need.fix.line(typed)} --check")
    _warn_of_image(entry, warn, typed)
    submitter, variable = entry.logged_submitter
    if submitter and entry.origins[variable].layer not in ("site", "command line"):
        note(
            f"note: the logs will name {submitter} as the submitter; "
            f"for another, set {variable} in the site's `env`"
        )

    def show(run_set: RunSet, was_there: bool) -> None:
        if was_there:
            note(
                f"note: {run_set.name} is the same and has never had a job; it is taken instead of "
                "a new set"
            )
        print(f"set  {run_set.layout.root}", file=sys.stderr if as_json else sys.stdout, flush=True)

    return start(entry, nexp, options=options, label=label, on_set=show, insist=insist, warn=warn)


class SetRequest(NamedTuple):
    """An unwritten set and its job. `files`: the bundle."""

    entry: Entry
    run_set: RunSet
    job: JobRequest
    files: dict[str, bytes]


def _request(args: Namespace, warn: Warn) -> SetRequest:
    from orchestrator.evidence.sets import RunSet
    from orchestrator.onnode.kernel.layout import Layout
    from orchestrator.runset.allocation import Allocation
    from orchestrator.runset.start import compose
    from orchestrator.runset.submit import request_for

    entry = _load(args, warn)
    _warn_of_image(entry, warn, args.typed)
    options = job_options(args, entry.site.scheduler)
    new = compose(
        entry,
        args.nexp,
        label=args.label or "",
        insist=_insist(args, warn),
        warn=warn,
    )
    run_set = RunSet(Layout(new.log_dir / new.record.set_id), new.record)
    job = request_for(run_set, allocation=Allocation(further=options))
    return SetRequest(entry, run_set, job, new.files)


def _show(args: Namespace) -> int:
    """Print the summary first: warnings would hide it."""
    warnings: list[str] = []
    try:
        asked = _request(args, warnings.append)
    except OrchestratorError:
        for text in warnings:
            warn(text)
        raise
    run_set, request = asked.run_set, asked.job
    argv = scheduler_of(run_set).command(request)
    if not args.json:
        from orchestrator.views.parts import FactList
        from orchestrator.views.terminal import lines

        for line in (*lines([FactList(_summary(asked))]), ""):
            note(line)
    for text in warnings:
        warn(text)
    if args.json:
        members = {
            "set": str(run_set.layout.root),
            "argv": argv,
            "environment": sorted(request.env),
            **_planned(asked),
        }
        print_json("submit-dry-run", members)
        return ExitCode.OK
    if warnings:
        note("")
    ours = [f"{name}={shlex.quote(request.env[name])}" for name in ("ORCH_SET_DIR", "NEXP")]
    note("`submit` would write the folder of the set, which does not exist yet, and run in it:")
    print(f"cd {shlex.quote(str(request.workdir))}\n{' '.join(ours)} {shlex.join(argv)}")
    passed = ", ".join(name for name in request.env if name not in ("ORCH_SET_DIR", "NEXP"))
    note(f"with these variables of this shell only: {passed}")
    return ExitCode.OK


def _planned(asked: SetRequest) -> dict[str, Any]:
    from orchestrator.runset.limit import asked_minutes, asked_nodes

    site, allocates = asked.entry.site, kind_of(asked.run_set.record.scheduler).allocates
    mounts = asked.entry.mounts
    return {
        "nexp": asked.run_set.record.nexp,
        "nodes": asked_nodes(asked.entry) if allocates else 1,
        "minutes": asked_minutes(asked.entry, asked.run_set.record.nexp) if allocates else None,
        "partition": site.partition if allocates else None,
        "image": asked.entry.image,
        "submitter": asked.entry.logged_submitter[0] or None,
        "data": {mount.variable: mount.host for mount in mounts if mount.host},
    }


def _summary(asked: SetRequest) -> list[tuple[str, str]]:
    plan, record, site = _planned(asked), asked.run_set.record, asked.entry.site
    allocates = kind_of(record.scheduler).allocates
    runs = f"{count(record.nexp, 'run')} of {record.workload} (round {record.round})"
    spares = f", {count(site.spares, 'spare')} included" if site.spares else ""
    nodes = f"{plan['nodes']} with {record.each} each{spares}"
    time = duration(60 * plan["minutes"], parts=3) if plan["minutes"] else "unlimited"
    data = [f"{folder} ({name})" for name, folder in plan["data"].items()]
    where = [("partition", plan["partition"] or "Slurm's default"), ("time", time)]
    submitter, variable = asked.entry.logged_submitter
    logged = f"{submitter} in the logs (to change it: {variable} in the site's `env`)"
    return [
        ("set", f"{runs}{f': {record.label}' if record.label else ''}"),
        ("nodes", nodes if allocates else "this host"),
        *(where if allocates else []),
        ("image", "none" if record.engine == "none" else plan["image"]),
        ("data", ", ".join(data) or "none"),
        *([("submitter", logged)] if submitter else []),
        ("results", str(asked.run_set.layout.root)),
    ]


def _test(args: Namespace) -> int:
    from tempfile import TemporaryDirectory

    from orchestrator.scheduler.slurm import Slurm

    _, run_set, request, files = _request(args, warn)
    refuse_without_scheduler(run_set.record.scheduler, "--test-only")
    with TemporaryDirectory() as folder:
        script = Path(folder) / "job.sh"
        script.write_bytes(files["job.sh"])
        estimate = Slurm().test(replace(request, script=script, workdir=Path(folder)))
    if args.json:
        print_json("submit-test-only", {"set_id": run_set.name, "said": estimate})
    else:
        print(estimate)
    return ExitCode.OK


COMMAND = Command(
    "submit",
    __doc__,
    add_arguments,
    run,
)
