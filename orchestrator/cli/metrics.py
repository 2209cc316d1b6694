"""Write the state of the sets in the log directory as Prometheus metrics (text format), for the
textfile collector of its node exporter: sets, runs, minutes, failures, excluded nodes, queue time.

With -o the file is replaced atomically, so no collector reads half of it; without it the metrics
are printed.

example:
  orchestrator metrics -o /var/lib/prometheus/node-exporter/orchestrator.prom
"""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from orchestrator.cli.arguments import add_json, add_option, add_site
from orchestrator.cli.command import Command
from orchestrator.cli.output import print_json
from orchestrator.cli.status import draw_all, site_sets
from orchestrator.errors import ExitCode, SetError, UsageError, is_full


def add_arguments(parser: ArgumentParser) -> None:
    add_site(parser)
    add_option(parser, "-o --output", "FILE", "default: print them", type=Path)
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.evidence.metrics import exposition, families
    from orchestrator.evidence.sets import SetEvidence, set_folders
    from orchestrator.onnode.kernel.records import write_bytes

    sets = [
        files
        for folder in set_folders(site_sets(args))
        if (files := SetEvidence(folder)).record or files.findings
    ]
    metrics = families(zip(sets, draw_all(sets), strict=True), time.time())
    if args.json:
        print_json("metrics", {"metrics": [family.as_json() for family in metrics]})
    elif args.output is None:
        print(exposition(metrics), end="")
    else:
        # A new file is for everybody: the collector is another user. A device keeps its mode.
        umask = os.umask(0o022)
        try:
            write_bytes(args.output, exposition(metrics).encode(), sync=False)
        except OSError as error:
            kind = SetError if is_full(error) else UsageError
            raise kind(f"{args.output} cannot be written: {error.strerror or error}") from error
        finally:
            os.umask(umask)
    return ExitCode.OK


COMMAND = Command(
    "metrics",
    __doc__,
    add_arguments,
    run,
)
