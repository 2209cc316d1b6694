"""Write a site file from the cluster's own answers: partition, limits, GPUs, account, engine, sudo,
network, log directory.

It asks Slurm, and inspects one node through a short srun; without Slurm, this host. It asks you
only for the rest, such as the folders of the data; with --yes, or without a terminal, nothing.
Every other key is in the file as a comment with its description (not with --short), with a schema
next to it for editors. An existing file is never replaced without --force.

example:
  orchestrator init
  orchestrator init --yes --log-dir /shared/mlperf/results
  orchestrator init --short --data flux1=/shared/flux1/data
  orchestrator init --scheduler local -o ~/.config/orchestrator/site.yaml
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from orchestrator.cli.arguments import add_choice, add_flag, add_json, add_option, add_text
from orchestrator.cli.command import Command
from orchestrator.cli.output import ask, note, print_json
from orchestrator.errors import ExitCode, UsageError
from orchestrator.resources import user_path
from orchestrator.words import quoted


def add_arguments(parser: ArgumentParser) -> None:
    add_option(
        parser, "-o --output", "FILE", "default: ./site.yaml", type=Path, default=Path("site.yaml")
    )
    add_flag(parser, "--force", "replace an existing file")
    add_flag(parser, "-y --yes", "ask nothing; use the detected values")
    add_choice(parser, "--scheduler", ("slurm", "local"), "default: slurm if it answers")
    add_text(parser, "--partition", "NAME", "default: a partition with GPUs, or Slurm's default")
    add_text(parser, "--account", "NAME", "default: Slurm's for you")
    add_text(parser, "--log-dir", "DIR", "folder for the sets, on storage that all nodes see")
    add_text(parser, "--name", "NAME", "name of the site (default: my-cluster)")
    add_option(
        parser,
        "--data",
        "WORKLOAD=DIR",
        "folder of a workload's data, such as flux1=/shared/flux1/data; WORKLOAD.VARIABLE=DIR for "
        "a workload with several; may be repeated",
        action="append",
        type=_data,
        default=[],
    )
    add_flag(parser, "--short", "write only the keys that have a value")
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.site.find import Wishes, find
    from orchestrator.site.site_file import write_site

    path = user_path(str(args.output))
    if path.exists() and not args.force:
        raise UsageError(
            f"{path} is there already",
            hint=f"orchestrator doctor --site {quoted(path)} checks it; --force writes it anew",
        )
    asking = not args.yes and not args.json and sys.stdin.isatty() and sys.stdout.isatty()
    wishes = Wishes(
        args.scheduler, args.partition, args.account, args.log_dir, args.name, tuple(args.data)
    )
    draft = find(
        wishes, lambda question, default: (asking and ask(question, default)) or default, note
    )
    write_site(path, draft, short=args.short)
    if args.json:
        members = {
            "site": str(path.absolute()),
            "node": draft.node,
            "values": draft.values,
            "notes": draft.notes,
        }
        print_json("init", members)
        return ExitCode.OK
    for text in draft.notes:
        note(f"note: {text}")
    print(path)
    values = draft.values
    place = f"partition {values['partition']}" if "partition" in values else "this host"
    engine = values.get("container", {}).get("engine", "docker")
    note(f"{place}; containers: {engine}; sets in {values['log_dir']}")
    note(f"next: orchestrator doctor --site {quoted(path)}")
    return ExitCode.OK


def _data(text: str) -> tuple[str, str]:
    name, equals, folder = text.partition("=")
    if not equals or not name or not folder:
        raise ArgumentTypeError(f"{text!r} is not WORKLOAD=DIR")
    return name, folder


COMMAND = Command(
    "init",
    __doc__,
    add_arguments,
    run,
)
