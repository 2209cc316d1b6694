"""Create a set below the site's log directory and submit its job; print the set's folder and the job id.

The set's folder holds the bundle that runs. Nothing is left behind when the bundle cannot be written, or when the
partition does not allow the time that the runs need (Slurm is asked; without an answer that is left to sbatch). When the
scheduler does not answer, the set says `unknown`, the exit code is 4, and nothing is ever submitted twice.

example:
  orchestrator submit MI325X_08x08x32 flux1 --site site.yaml --nexp 10
  orchestrator submit MI325X_08x08x32 flux1 --spares 2 --exclude @bad-nodes.txt
  orchestrator submit MI355X_1x8x1 llama31_8b --side-by-side 10 --spares 1     # ten runs at once, on eleven nodes
  orchestrator submit MI325X_08x08x32 flux1 --dry-run        # what would be asked of the scheduler
"""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_entry, add_json
from orchestrator.cli.command import Command
from orchestrator.cli.finding import load_asked, scheduler_of, site_log_dir
from orchestrator.cli.output import note, print_json
from orchestrator.errors import ExitCode

if TYPE_CHECKING:
    from orchestrator.evidence.sets import RunSet, SubmissionRecord
    from orchestrator.model import Entry
    from orchestrator.onnode.records import SetRecord


def add_arguments(parser: ArgumentParser) -> None:
    add_entry(parser)
    add_json(parser)
    parser.add_argument("--dry-run", action="store_true", help="write nothing, submit nothing; print the command")


def run(args: Namespace) -> int:
    if args.dry_run:
        return _show(args)
    run_set, submission = submit_new(args)
    if args.json:
        print_json(
            {
                "set": str(run_set.layout.root),
                "set_id": run_set.name,
                "job_id": submission.job_id,
                "job_name": run_set.record.job_name,
                "nexp": run_set.record.nexp,
            }
        )
    else:
        print(f"set  {run_set.layout.root}\njob  {submission.job_id}")
    return ExitCode.OK


def submit_new(args: Namespace) -> tuple[RunSet, SubmissionRecord]:
    """Create the set that the arguments of add_entry() describe, and submit it."""
    return submit_entry(load_asked(args), args.nexp)


def submit_entry(entry: Entry, nexp: int | None = None) -> tuple[RunSet, SubmissionRecord]:
    """Create a set of `nexp` runs (default: what the rules require) below the site's log directory, and submit it."""
    from orchestrator.evidence.sets import RunSet
    from orchestrator.runset.create import create
    from orchestrator.runset.submit import submit

    record, files, log_dir = _compose(entry, nexp)
    run_set = RunSet(create(record, files, log_dir), record)
    return run_set, submit(run_set, scheduler_of(run_set))


def _compose(entry: Entry, nexp: int | None) -> tuple[SetRecord, dict[str, bytes], Path]:
    from orchestrator.render import manifest_hash, render_bundle
    from orchestrator.runset.create import describe
    from orchestrator.runset.limit import refuse_too_long

    nexp = nexp or entry.runs_required
    refuse_too_long(entry, nexp)
    files = render_bundle(entry, nexp=nexp)
    return describe(entry, nexp=nexp, bundle_sha256=manifest_hash(files)), files, site_log_dir(entry.site)


def _show(args: Namespace) -> int:
    from orchestrator.evidence.sets import RunSet
    from orchestrator.onnode.layout import Layout
    from orchestrator.runset.submit import request_for

    record, _, log_dir = _compose(load_asked(args), args.nexp)
    run_set = RunSet(Layout(log_dir / record.set_id), record)
    request = request_for(run_set)
    argv = scheduler_of(run_set).command(request)
    if args.json:
        print_json({"set": str(run_set.layout.root), "argv": argv, "environment": sorted(request.env)})
        return ExitCode.OK
    ours = [f"{name}={shlex.quote(request.env[name])}" for name in ("ORCH_SET_DIR", "NEXP")]
    print(f"cd {shlex.quote(str(request.workdir))}\n{' '.join(ours)} {shlex.join(argv)}")
    passed = ", ".join(name for name in request.env if name not in ("ORCH_SET_DIR", "NEXP"))
    note(f"passed on from this shell: {passed}")
    return ExitCode.OK


COMMAND = Command(
    "submit",
    "create a set and submit its job",
    __doc__,
    add_arguments,
    run,
)
