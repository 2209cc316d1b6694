"""submit, watch and score in one command, with the exit code of `score`: 0 for a valid score, 1
without one.

Ctrl-C ends the view, never the job. With --json the progress goes to standard error and the score
to standard output.

example:
  orchestrator run MI325X_08x08x32 flux1 --site site.yaml --nexp 10
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from orchestrator.cli import score
from orchestrator.cli.arguments import add_interval, add_request
from orchestrator.cli.command import SCORED, Command
from orchestrator.cli.output import note
from orchestrator.cli.submit import submit_new
from orchestrator.cli.watch import come_back, watch
from orchestrator.errors import ExitCode

if TYPE_CHECKING:
    from orchestrator.evidence.sets import RunSet, SubmissionRecord


def add_arguments(parser: ArgumentParser) -> None:
    add_request(parser)
    add_interval(parser)


def run(args: Namespace) -> int:
    run_set, submission = submit_new(args)
    return watch_and_score(run_set, submission, args.interval, as_json=args.json, site=args.site)


def watch_and_score(
    run_set: RunSet,
    submission: SubmissionRecord,
    interval_s: float | None = None,
    *,
    as_json: bool = False,
    site: str | None = None,
) -> int:
    """Show a set until it ends, then its score; return its exit code."""
    from orchestrator.cli.closing import end_lines

    root = run_set.layout.root
    out = sys.stderr if as_json else None
    print(f"job  {submission.job_id}", file=out or sys.stdout, flush=True)
    try:
        picture = watch(run_set, interval_s, out=out, site=site)
    except KeyboardInterrupt:
        come_back(run_set, site)
        return ExitCode.INTERRUPTED
    if as_json or picture.done:
        code = score.show([str(root)], as_json)
    else:  # nothing to score
        code = ExitCode.NO_SCORE
    for line in end_lines(picture, site):
        note(line)
    return code


COMMAND = Command("run", __doc__, add_arguments, run, SCORED)
