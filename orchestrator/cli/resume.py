"""Submit the runs that a set still lacks: the same bundle again, which goes on at the first run that is not done.

Refused while a job of the set is alive, and when all runs are done. Earlier attempts stay on record.

example:
  orchestrator resume                                # the newest set
  orchestrator resume MI325X_08x08x32-flux1-20261121
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from orchestrator.cli._common import add_json, add_set, chosen_set, print_json, scheduler_of
from orchestrator.errors import ExitCode


def add_arguments(parser: ArgumentParser) -> None:
    add_set(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.runset.submit import missing_runs, submit

    run_set = chosen_set(args)
    missing = missing_runs(run_set)
    submission = submit(run_set, scheduler_of(run_set))
    if args.json:
        print_json({"set": str(run_set.layout.root), "job_id": submission.job_id, "submission": submission.number,
                    "missing_runs": missing})
    else:
        print(f"set  {run_set.layout.root}\njob  {submission.job_id}\nruns {', '.join(map(str, missing))} of "
              f"{run_set.record.nexp} are to be done")
    return ExitCode.OK
