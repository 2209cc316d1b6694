"""Repeat the decisions of a set's jobs from their event files: eligible nodes, their ranks, the
outcome of an attempt and its blame. The same events give the same decisions; differences are shown.

example:
  orchestrator replay                                # the newest set
  orchestrator replay MI325X_08x08x32-flux1-20261121 --json
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_json, add_set
from orchestrator.cli.command import Command
from orchestrator.cli.finding import chosen_set
from orchestrator.cli.output import print_json
from orchestrator.errors import ExitCode, UsageError
from orchestrator.words import clean, quoted

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.evidence.replay import Replay


def add_arguments(parser: ArgumentParser) -> None:
    add_set(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    root = chosen_set(args).layout.root
    replays = {
        path.stem.removeprefix("events-"): _replayed(path)
        for path in sorted(root.glob("events-*.tsv"))
    }
    differences = [
        (job, outcome) for job, replayed in replays.items() for outcome in replayed.differences
    ]
    if args.json:
        jobs = {
            job: {
                "decisions": outcome.decisions,
                "differences": [str(difference) for difference in outcome.differences],
                "reworded": outcome.reworded,
            }
            for job, outcome in replays.items()
        }
        print_json("replay", {"set": str(root), "jobs": jobs})
    else:
        for job, replayed in replays.items():
            counted = (
                f"{replayed.decisions} decisions, {len(replayed.differences)} of them come out "
                "otherwise"
            )
            if replayed.reworded:
                counted += f", {replayed.reworded} in other words (of another version)"
            print(clean(f"job {job}: {counted}"))
        for job, difference in differences:
            print(clean(f"  job {job}: {difference}"))
        if not replays:
            print(f"no job of {root.name} has an event file")
    return ExitCode.NO_SCORE if differences else ExitCode.OK


def _replayed(path: Path) -> Replay:
    from orchestrator.evidence.events import read_events
    from orchestrator.evidence.replay import replay

    try:
        return replay(read_events(path))
    except OSError as error:
        raise UsageError(
            f"{quoted(path)} cannot be read: {error.strerror or error}",
            hint=f"ls -ld {quoted(path)}",
        ) from error


COMMAND = Command(
    "replay",
    __doc__,
    add_arguments,
    run,
    {
        ExitCode.OK: "every decision comes out as it was made",
        ExitCode.NO_SCORE: "one comes out otherwise",
    },
)
