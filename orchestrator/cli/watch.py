"""A live view of a set until it ends: a table on a terminal, otherwise one line per change.

Ctrl-C ends the view, never the job. Exit code 0 when every run of the set is final, 5 when it ended before that.

example:
  orchestrator watch                                 # the newest set
  orchestrator watch MI325X_08x08x32-flux1-20261121 --interval 10
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from orchestrator.cli.arguments import add_json, add_set, seconds
from orchestrator.cli.command import Command
from orchestrator.cli.finding import chosen_set, scheduler_of
from orchestrator.cli.output import is_terminal, note, print_json
from orchestrator.errors import ExitCode
from orchestrator.words import bare, clean

if TYPE_CHECKING:
    from orchestrator.evidence.picture import SetPicture
    from orchestrator.evidence.sets import RunSet


def add_arguments(parser: ArgumentParser) -> None:
    add_set(parser)
    add_json(parser)
    add_interval(parser)


def add_interval(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--interval",
        metavar="S",
        type=seconds,
        help="seconds between looks at the set's files (default: from the length of the runs)",
    )


def run(args: Namespace) -> int:
    run_set = chosen_set(args)
    try:
        picture = watch(run_set, args.interval, silent=args.json)
    except KeyboardInterrupt:
        come_back(run_set)
        return ExitCode.INTERRUPTED
    if args.json:
        from orchestrator.evidence.picture import as_json

        print_json(as_json(picture))
    return ExitCode.OK if picture.state == "complete" else ExitCode.SET_STATE


def watch(run_set: RunSet, interval_s: float | None, *, silent: bool = False, out: TextIO | None = None) -> SetPicture:
    """Show the set until it ends and return its last picture. `out` is where lines go when that is no terminal."""
    from orchestrator.evidence.watch import Watch

    pictures = Watch(run_set, scheduler_of(run_set), interval_s).pictures()
    if silent:
        *_, last = pictures
        return last
    if is_terminal() and out is None:
        return _live(pictures)
    return _lines(pictures, out or sys.stdout)


def come_back(run_set: RunSet) -> None:
    note(
        f"\nthe job goes on; come back with: orchestrator watch {run_set.layout.root}\n"
        f"or end it with: orchestrator cancel {run_set.layout.root}"
    )


def _lines(pictures: Iterator[SetPicture], out: TextIO) -> SetPicture:
    from orchestrator.cli.pictures import aside_text, headline

    before, aside = "", 0
    for picture in pictures:
        for one in picture.set_aside[aside:]:
            print(f"{time.strftime('%H:%M:%S')}  set aside {clean(aside_text(one))}", file=out, flush=True)
        aside = len(picture.set_aside)
        line = clean(headline(picture))
        if line != before:
            print(f"{time.strftime('%H:%M:%S')}  {line}", file=out, flush=True)
            before = line
    return picture


def _live(pictures: Iterator[SetPicture]) -> SetPicture:
    from rich.console import Console
    from rich.live import Live

    console = Console(file=bare(sys.stdout))
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        for picture in pictures:
            live.update(_panel(picture), refresh=True)
    return picture


def _panel(picture: SetPicture) -> Any:
    """The rich view: the facts of the set above the table of its runs."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from orchestrator.cli.pictures import RUNS, RUNS_RIGHT, describe, run_row

    facts = Table.grid(padding=(0, 2))
    for name, value in describe(picture):
        facts.add_row(Text(name, style="dim"), Text(clean(value)))
    runs = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in RUNS:
        runs.add_column(name, justify="right" if name in RUNS_RIGHT else "left")
    styles = {"success": "green", "running": "bold", "failed": "red", "queued": "dim"}
    for one in picture.runs:
        runs.add_row(*(Text(clean(cell)) for cell in run_row(one)), style=styles.get(one.state, ""))
    return Group(facts, runs)


COMMAND = Command(
    "watch",
    "live view of a set until it ends",
    __doc__,
    add_arguments,
    run,
    {ExitCode.OK: "every run of the set is final", ExitCode.SET_STATE: "the set ended before that"},
)
