"""submit, watch and score in one. The exit code is that of `score`: 0 for a valid score, 1 for none.

Ctrl-C ends the view, never the job. With --json the progress goes to standard error and the score to standard output.

example:
  orchestrator run MI325X_08x08x32 flux1 --site site.yaml --nexp 10
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from orchestrator.cli._common import add_entry, add_json, note
from orchestrator.cli.submit import submit_new
from orchestrator.cli.watch import add_interval, come_back, watch
from orchestrator.errors import ExitCode


def add_arguments(parser: ArgumentParser) -> None:
    add_entry(parser)
    add_json(parser)
    add_interval(parser)


def run(args: Namespace) -> int:
    run_set, submission = submit_new(args)
    root = run_set.layout.root
    out = sys.stderr if args.json else None
    print(f"set  {root}\njob  {submission.job_id}", file=out or sys.stdout, flush=True)
    try:
        picture = watch(run_set, args.interval, out=out)
    except KeyboardInterrupt:
        come_back(run_set)
        return ExitCode.INTERRUPTED
    if picture.state != "complete":
        note(f"the set ended as {picture.state}: {picture.reason}\n  goes on with: orchestrator resume {root}")
    return score(root, as_json=args.json)


def score(root: Path, *, as_json: bool) -> int:
    """What `orchestrator score ROOT` prints and returns."""
    from orchestrator.cli import score as command

    parser = ArgumentParser(prog="orchestrator score")
    command.add_arguments(parser)
    return int(command.run(parser.parse_args([str(root), *(["--json"] if as_json else [])])))
