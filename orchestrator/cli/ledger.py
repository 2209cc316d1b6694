"""Compare a set with its ledger: declarations, submissions, attempts, results, cancellations and
edits, in order.

Names every record that was changed, dropped, moved or inserted, and every file that differs from
its record. Exit code: 0 no difference, 1 differences. A clock set back by more than a day is only a
note. The head covers all records: the report and the package carry it, and --head compares.

example:
  orchestrator ledger verify MI325X_08x08x32-flux1-20261121
  orchestrator ledger verify SET --head "31 5f0c..." --json
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from orchestrator.cli.arguments import add_json, add_set, add_text
from orchestrator.cli.command import Command
from orchestrator.cli.finding import folders
from orchestrator.cli.output import print_json
from orchestrator.errors import ExitCode


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("verify",), help="what to do")
    add_set(parser)
    add_json(parser)
    add_text(parser, "--head", "HEAD", "a head that was kept elsewhere: `<number> <hash>`")


def run(args: Namespace) -> int:
    from pathlib import Path

    from orchestrator.evidence.ledger import Mismatch, verify
    from orchestrator.onnode.set import ledger

    [folder] = folders([args.set] if args.set else [], args.site)
    verdict = verify(Path(folder))
    problems = list(verdict.problems)
    if args.head and args.head not in [
        ledger.head([item]) for item in ledger.read(Path(folder))[0]
    ]:
        problems.append(
            Mismatch(0, ledger.NAME, f"no record is {args.head}: what was there then was changed")
        )
    if args.json:
        outcome = {"problems": [item.to_json() for item in problems], "valid": not problems}
        print_json("ledger", {"set": folder, **verdict.to_json(), **outcome})
    else:
        for item in problems:
            print(item)
        for item in verdict.clock:
            print(f"note: clock: {item}")
        if verdict.torn:
            print("note: the last line was never finished; the next record covers it")
        if verdict.copy_of:
            print(f"note: this is a copy of {verdict.copy_of}")
        print(f"{verdict.records} records, {len(problems)} problems; head {verdict.head}")
    return ExitCode.NO_SCORE if problems else ExitCode.OK


COMMAND = Command(
    "ledger",
    __doc__,
    add_arguments,
    run,
    {ExitCode.OK: "everything is as on record", ExitCode.NO_SCORE: "something is not"},
)
