"""Move sets to the trash of the log directory, hidden from all commands, and print how to get them
back.

A complete set with results is refused without --force. A set whose job may be alive, and another
user's set, is always refused. If any set is refused, no set is moved. --failed takes your sets
without a finished run that failed, paused, were lost or refused, or whose runs all failed.

example:
  orchestrator rm MI325X_08x08x32-flux1-20261121-101500-9f3c
  orchestrator rm 9f3c 7c8d
  orchestrator rm --failed
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import SET_HELP, add_flag, add_json, add_operands, add_site
from orchestrator.cli.command import Command
from orchestrator.cli.finding import named_set
from orchestrator.cli.output import note, print_json
from orchestrator.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from orchestrator.evidence.sets import RunSet

FAILED = ("failed", "paused", "lost", "refused", "complete")
"""States of sets that failed if no run is done; others were ended, or wait."""


def add_arguments(parser: ArgumentParser) -> None:
    add_operands(parser, "sets", "SET", "*", SET_HELP)
    add_flag(parser, "--failed", "your sets that failed without a finished run")
    add_flag(parser, "--force", "also complete sets with results")
    add_site(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.runset.trash import remove

    if bool(args.sets) == args.failed:
        raise UsageError(
            "name sets, or --failed, not both"
            if args.sets
            else "which sets? name them, or --failed",
            hint="orchestrator ls lists the sets",
        )
    removed = remove(_failed(args) if args.failed else _named(args), force=args.force)
    if args.json:
        members = [
            {"set_id": moved.set_id, "set": str(moved.place), "trash": str(moved.trash)}
            for moved in removed
        ]
        print_json("rm", {"removed": members})
        return ExitCode.OK
    for moved in removed:
        print(f"removed: {moved.set_id}\n  to get it back: {moved.way_back}")
    if not removed:
        note("no set of yours failed without a finished run; orchestrator ls lists the others")
    return ExitCode.OK


def _named(args: Namespace) -> list[RunSet]:
    if "" in args.sets:
        raise UsageError("a set's name is empty", hint="orchestrator ls lists the sets")
    sets = [named_set(name, args.site) for name in args.sets]
    return list({run_set.layout.root: run_set for run_set in sets}.values())


def _failed(args: Namespace) -> list[RunSet]:
    from orchestrator.cli.status import draw_all, site_sets
    from orchestrator.evidence.sets import RunSet, SetEvidence, set_folders
    from orchestrator.runset.find import foreign

    sets = [
        files for folder in set_folders(site_sets(args)) if (files := SetEvidence(folder)).record
    ]
    return [
        RunSet(files.layout, files.record)
        for files, picture in zip(sets, draw_all(sets), strict=True)
        if picture.state in FAILED and not picture.done and files.record
        if not foreign(files.layout)
    ]


COMMAND = Command(
    "rm",
    __doc__,
    add_arguments,
    run,
)
