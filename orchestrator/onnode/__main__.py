"""Entry of a bundle's lib/: selects the program of this process.

Submitted jobs and their nodes start it from an archive (loader.py); by hand it reads the folder's
files once. Imports come from memory.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

USAGE = """usage: python3 -I -S -B lib PROGRAM
  loop slurm|local            the runs of a set (job.sh, run_with_docker.sh)
  node hold|check|deep|look   one node (started by the loop)
  preflight ...               the checks alone (preflight.sh)"""
PARTS = {
    "loop": ("lib.loop.job", "slurm local"),
    "node": ("lib.agent.agent", "hold check deep look"),
}


def main(program: "tuple[object, ...]", part: str = "", *arguments: str) -> int:
    """Run a part of the package; return its exit status.

    `program`: the fields of a Program (kernel/program.py).

    """
    sys.dont_write_bytecode = True
    # A missing locale on a node must not decide how a file is read.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    module, known = PARTS.get(part, ("lib.loop.preflight", ""))
    if part != "preflight" and (len(arguments) != 1 or arguments[0] not in known.split()):
        print(USAGE, file=sys.stderr)
        return 2
    carried = import_module("lib.kernel.program").Program(*program)
    return int(import_module(module).main(carried, *arguments))


def by_hand(*arguments: str) -> int:
    """Read the bundle around this folder, and run a part of it."""
    lib = Path(os.path.abspath(__file__)).parent
    # Python has put this folder first; until the files are read, the package is found in the
    # parent, behind the standard library.
    sys.path[0:1] = []
    sys.path.append(str(lib.parent))
    try:
        loader = import_module("lib.loader")  # first: it refuses a Python that is too old
    except SystemExit as refused:
        print(refused, file=sys.stderr)
        return 3 if arguments[:1] == ("preflight",) else 1  # 3: the checks could not run
    program = import_module("lib.kernel.program").read(str(lib.parent))
    sys.path.remove(str(lib.parent))
    for name in [name for name in sys.modules if name.partition(".")[0] == "lib"]:
        del sys.modules[name]
    sys.meta_path.insert(0, loader.Carried(program.files))
    return int(import_module("lib.__main__").main(tuple(program), *arguments))


if __name__ == "__main__":
    sys.exit(by_hand(*sys.argv[1:]))
