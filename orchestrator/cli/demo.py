"""The whole path on this machine, with no Slurm, Docker, GPU or root: a set of ten real (small) training runs of the
built-in workload over two process groups as nodes, submitted, watched and scored.

example:
  orchestrator demo
  orchestrator demo --dir /tmp/demo --nexp 3
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from orchestrator.cli import run as run_command
from orchestrator.cli._common import add_json, positive
from orchestrator.errors import UsageError

SYSTEM, WORKLOAD = "local_2x2x8", "builtin"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dir", metavar="DIR", default="demo-results", help="where its sets go (default: ./demo-results)"
    )
    parser.add_argument("--nexp", metavar="N", type=positive, default=10, help="number of runs (default: 10)")
    add_json(parser)


def run(args: Namespace) -> int:
    folder = Path(args.dir).expanduser().absolute()
    site = _site(folder)
    # The runs use this installation's Python: the system's own may be older, or missing.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    code = run_command.run(
        Namespace(
            system=SYSTEM,
            workload=WORKLOAD,
            site=str(site),
            nexp=args.nexp,
            round=None,
            env=[],
            spares=None,
            exclude="",
            interval=None,
            json=args.json,
        )
    )
    out = sys.stderr if args.json else sys.stdout
    print(f"\nsets and logs: {folder}\nlook around:   orchestrator status --site {site}", file=out)
    return code


def _site(folder: Path) -> Path:
    """The site file of the demo, made on first use; an edited one is kept."""
    path = folder / "site.yaml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(_site_text(folder))
    except OSError as error:
        raise UsageError(
            f"cannot write to {folder}: {error.strerror or error}", hint="give another place with --dir"
        ) from error
    return path


def _site_text(folder: Path) -> str:
    import json  # a JSON string is a YAML string, whatever is in the path

    return (
        "# Everything on this machine: process groups instead of nodes, no container, no host settings.\n"
        f"kind: site\nname: demo\nscheduler: local\nlog_dir: {json.dumps(str(folder))}\n"
        'container:\n  engine: none\ntunables: "off"\nclear_caches: false\n'
    )
