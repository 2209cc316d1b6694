"""`export --format prometheus`: sets in Prometheus' text format, for node exporter's textfile
collector."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from pathlib import Path

from orchestrator.cli.output import note, print_json
from orchestrator.cli.status import draw_all, site_sets
from orchestrator.errors import ExitCode, SetError, UsageError, is_full


def export(args: Namespace) -> int:
    """Replace --output atomically, or print."""
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
    elif args.output in ("", "-"):
        print(exposition(metrics), end="")
    else:
        # Everybody may read a new file: the collector is another user. A device keeps its mode.
        umask = os.umask(0o022)
        try:
            write_bytes(Path(args.output), exposition(metrics).encode(), sync=False)
        except OSError as error:
            kind = SetError if is_full(error) else UsageError
            raise kind(f"{args.output} cannot be written: {error.strerror or error}") from error
        finally:
            os.umask(umask)
        note(f"written: {args.output}")
    return ExitCode.OK
