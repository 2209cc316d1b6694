"""The words after `lib`: which part of the package this process is."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

USAGE = """usage: python3 -I -S -B lib loop slurm|local       the runs of a set (job.sh, run_with_docker.sh)
       python3 -I -S -B lib node hold|check|deep   one node (started by the loop)
       python3 -I -S -B lib preflight ...          the checks alone (preflight.sh)"""


def main(argv: Sequence[str]) -> int:
    """Run one part; return its exit status. Every part imports only what it needs."""
    sys.dont_write_bytecode = True
    # A locale that is missing on a node must not decide how a file is read.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    bundle = Path(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    part, words = (argv[0] if argv else ""), list(argv[1:])
    if part == "node" and words in (["hold"], ["check"], ["deep"]):
        from .agent import hold

        return hold.main(bundle, words[0])
    if part == "loop" and words in (["slurm"], ["local"]):
        from .loop import job

        return job.main(bundle, words[0])
    if part == "preflight":
        from .loop import preflight

        return preflight.main(bundle, words)
    print(USAGE, file=sys.stderr)
    return 2
