"""Entry of a bundle's lib/: selects the program of this process."""

import os
import sys

if sys.version_info < (3, 9):  # before any import that an older Python could not read
    sys.exit(
        "orchestrator: %s on %s is Python %d.%d; the bundle needs 3.9 or newer: install python3, "
        "or name another "
        "interpreter (`python:` in the site file, PYTHON=... for this bundle)"
        % (sys.executable, os.uname()[1], sys.version_info[0], sys.version_info[1])
    )

from importlib import import_module
from pathlib import Path

USAGE = """usage: python3 -I -S -B lib loop slurm|local       the runs of a set (job.sh, run_with_docker.sh)
       python3 -I -S -B lib node hold|check|deep|look   one node (started by the loop)
       python3 -I -S -B lib notify command|mail|webhook   pass on what standard input says (started by the loop)
       python3 -I -S -B lib preflight ...          the checks alone (preflight.sh)"""
PARTS = {
    "loop": (".loop.job", "slurm local"),
    "notify": (".loop.notify", "command mail webhook"),
    "node": (".agent.agent", "hold check deep look"),
}


def main(part: str = "", *words: str) -> int:
    """Run one part of the package; return its exit status. Every part imports only its needs."""
    lib = Path(os.path.abspath(__file__)).parent
    # Python has put this folder first; the package is found in its parent, behind the standard
    # library.
    sys.path[0:1] = []
    sys.path.append(str(lib.parent))
    sys.dont_write_bytecode = True
    # A missing locale on a node must not decide how a file is read.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    module, known = PARTS.get(part, (".loop.preflight", ""))
    if part != "preflight" and (len(words) != 1 or words[0] not in known.split()):
        print(USAGE, file=sys.stderr)
        return 2
    return int(import_module(module, lib.name).main(lib.parent, *words))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
