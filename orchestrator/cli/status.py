"""The state of sets: all of the site's log directory in a table, or one in detail.

Built from the files of the sets and one scheduler query for all of them. If the scheduler does not
answer, the files are shown and marked so. Live sets and the newest twenty are shown; --all shows
every set, --watch shows one live (`orchestrator watch`).

example:
  orchestrator status                      # all sets
  orchestrator status MI325X_08x08x32-flux1-20261121-101500-9f3c
  orchestrator status /shared/results/MI325X_08x08x32-flux1-20261121-101500-9f3c --json
  orchestrator status --watch              # the newest set
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_flag, add_json, add_set
from orchestrator.cli.command import Command
from orchestrator.cli.finding import chosen_set, log_dir_of, need_site, scheduler_of
from orchestrator.cli.output import note, print_json, print_parts
from orchestrator.errors import ExitCode
from orchestrator.words import cell, count

if TYPE_CHECKING:
    from orchestrator.evidence.picture import SetPicture
    from orchestrator.evidence.sets import SetEvidence
    from orchestrator.scheduler.job import Scheduler

NEWEST = 20


def add_arguments(parser: ArgumentParser) -> None:
    add_set(parser, "default: all sets; with --watch the newest")
    add_json(parser)
    add_all(parser)
    add_flag(parser, "-w --watch", "show it live until it ends, as `orchestrator watch` does")


def add_all(parser: ArgumentParser) -> None:
    add_flag(parser, "--all", f"all sets, not only live sets and the newest {NEWEST}")


def run(args: Namespace) -> int:
    if args.watch:
        from orchestrator.cli import watch

        return watch.run(Namespace(**vars(args), interval=None))
    return _one(args) if args.set else list_sets(args)


def _one(args: Namespace) -> int:
    from orchestrator.cli.closing import set_parts, with_unreleased
    from orchestrator.evidence.picture import as_json, look

    run_set = chosen_set(args)
    [picture] = map(with_unreleased, look([run_set.layout.root], [scheduler_of(run_set)]))
    if args.json:
        print_json("set", as_json(picture))
        return ExitCode.OK
    print_parts(set_parts(picture, args.site))
    return ExitCode.OK


def list_sets(args: Namespace) -> int:
    from orchestrator.evidence.picture import as_json
    from orchestrator.evidence.sets import SetEvidence, set_folders, surely_settled
    from orchestrator.views.sets import set_table

    log_dir = site_sets(args)
    folders = set_folders(log_dir)
    older = folders[NEWEST:]
    live = older if args.all else [folder for folder in older if not surely_settled(folder)]
    wanted = folders[:NEWEST] + live
    sets = [files for folder in wanted if (files := SetEvidence(folder)).is_one]
    shown = (
        sets
        if args.all
        else sets[:NEWEST] + [files for files in sets[NEWEST:] if not files.settled]
    )
    pictures = draw_all(shown)
    if args.json:
        print_json("sets", {"sets": [as_json(picture) for picture in pictures]})
    elif pictures:
        print_parts([set_table(pictures)])
        hidden = len(folders) - len(wanted) + len(sets) - len(shown)
        if hidden:
            note(f"{count(hidden, 'older set')} not shown; --all shows every set")
        from orchestrator.cli.closing import closing_lines

        if lines := closing_lines(
            pictures[0], args.site
        ):  # of the newest set; the table has only sets
            note("\n".join([f"\n{cell(pictures[0].root.name)}:", *lines]))
    else:
        note(f"there is no set in {log_dir} yet")
    return ExitCode.OK


def site_sets(args: Namespace) -> Path:
    """Raises SetError if the log directory is missing."""
    from orchestrator.evidence.sets import check_log_dir

    log_dir = log_dir_of(need_site(args.site))
    check_log_dir(log_dir)
    return log_dir


def draw_all(sets: list[SetEvidence]) -> list[SetPicture]:
    """Query each scheduler once; note a scheduler that does not answer."""
    from orchestrator.evidence.picture import draw

    def opened(name: str) -> Scheduler:
        from orchestrator.scheduler import open_scheduler  # not needed if all sets are settled

        return open_scheduler(name)

    names = {files.record.scheduler for files in sets if files.record and not files.settled}
    pictures = draw(sets, [opened(name) for name in sorted(names & {"local", "slurm"})])
    if any(picture.job_state == "no answer" for picture in pictures):
        note("no answer from the scheduler; the states are those of the sets' own files")
    return pictures


COMMAND = Command(
    "status",
    __doc__,
    add_arguments,
    run,
)
