"""The whole path on this machine, without Slurm, Docker, GPU or root: ten real (small) training
runs of the built-in workload, with two process groups as nodes, submitted, watched and scored.

example:
  orchestrator demo
  orchestrator demo --dir /tmp/demo --nexp 3
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from orchestrator.cli.arguments import add_json, add_number, add_option
from orchestrator.cli.command import SCORED, Command
from orchestrator.cli.run import watch_and_score
from orchestrator.cli.submit import submit_entry
from orchestrator.errors import UsageError
from orchestrator.resources import user_path
from orchestrator.trust import others

SYSTEM, WORKLOAD = "local_2x2x8", "builtin"


def add_arguments(parser: ArgumentParser) -> None:
    add_option(
        parser,
        "--dir",
        "DIR",
        "folder of its sets (default: ./demo-results)",
        default="demo-results",
    )
    add_number(parser, "--nexp", "N", "number of runs (default: 10)", 10)
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.model import load_entry

    folder = user_path(args.dir).absolute()
    site = _site(folder)
    command = own_command()
    # The system's Python may be older, or missing.
    os.environ["PATH"] = (
        f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    )
    entry = load_entry(SYSTEM, WORKLOAD, site=site)
    code = watch_and_score(*submit_entry(entry, args.nexp, as_json=args.json), as_json=args.json)
    print(
        "\n".join(_next_steps(command, folder, site)), file=sys.stderr if args.json else sys.stdout
    )
    return code


def _next_steps(command: str, folder: Path, site: Path) -> list[str]:
    import shlex

    steps = ("status", "nodes", "report -o report.html", "docs first-set")
    return [
        "",
        f"sets and logs: {folder}",
        "look around:",
        f"  export ORCHESTRATOR_SITE={shlex.quote(str(site))}",
        *(f"  {command} {step}" for step in steps),
    ]


def own_command() -> str:
    """Return how to call this command: by name, with uvx, or by path."""
    import shlex
    import shutil

    from orchestrator.installation import is_of_uvx, source

    if is_of_uvx():
        return f"uvx --from {shlex.quote(source())} orchestrator"
    called = Path(sys.argv[0])
    beside = (
        called
        if called.name.startswith("orchestrator")
        else Path(sys.executable).with_name("orchestrator")
    )
    program = shutil.which("orchestrator")
    if program and beside.exists() and os.path.samefile(program, beside):
        return "orchestrator"
    return (
        shlex.quote(str(beside.absolute()))
        if beside.exists()
        else f"{shlex.quote(sys.executable)} -m orchestrator"
    )


def _site(folder: Path) -> Path:
    """Make the demo's site file unless it exists."""
    path = folder / "site.yaml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if why := others(path):
            raise UsageError(
                f"{path} can be changed by other users: {why}", hint="give another place with --dir"
            )
        if not path.exists():
            with open(path, "x") as file:  # not through a dangling link
                file.write(_site_text(folder))
    except OSError as error:
        raise UsageError(
            f"cannot write to {folder}: {error.strerror or error}",
            hint="give another place with --dir",
        ) from error
    return path


def _site_text(folder: Path) -> str:
    import json  # a JSON string is YAML, whatever the path contains

    return (
        "# Everything on this machine: process groups instead of nodes, no container, no host "
        "settings.\n"
        f"kind: site\nname: demo\nscheduler: local\nlog_dir: {json.dumps(str(folder))}\n"
        'container:\n  engine: none\ntunables: "off"\nclear_caches: false\n'
    )


COMMAND = Command("demo", __doc__, add_arguments, run, SCORED)
