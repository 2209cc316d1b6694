"""Make the submission tree (results/, systems/, benchmarks/) from sets of runs, all or nothing.

It contains exactly the required runs in launch order; of a longer set the median window. Sets that
would be rejected are refused with the reason. --verify runs MLCommons' package checker
(mlperf-logging) over a copy before anything is written.

example:
  orchestrator package MI325X_08x08x32-flux1-20260501 -o AMD --submitter AMD --verify
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import (
    add_choice,
    add_flag,
    add_json,
    add_option,
    add_systems_dir,
    add_text,
)
from orchestrator.cli.command import Command
from orchestrator.cli.output import print_json
from orchestrator.errors import ExitCode
from orchestrator.words import clean, count

if TYPE_CHECKING:
    from orchestrator.submission.package import Options, Package
    from orchestrator.submission.verify import Word

STATUSES = ("onprem", "cloud", "rdi", "preview")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "sets", metavar="SET", nargs="+", help="a set, or a folder of logs (then with --system)"
    )
    add_option(
        parser,
        "-o --output",
        "DIR",
        "the submitter's folder, new or empty; in MLCommons' results it has the submitter's name",
        required=True,
    )
    add_option(parser, "--submitter", "NAME", "the organisation that submits", required=True)
    add_choice(
        parser,
        "--division",
        ("closed", "open"),
        "division of the submission (default: closed)",
        "closed",
    )
    add_choice(
        parser, "--status", STATUSES, "availability of the system (default: onprem)", "onprem"
    )
    add_text(parser, "--framework", "TEXT", 'such as "PyTorch 2.10.0 + ROCm 7.2.2"')
    add_text(parser, "--system", "NAME", "the system's name in the tree (default: the set's)")
    add_text(parser, "--implementation", "NAME", "default: the system's name")
    add_text(
        parser,
        "--system-json",
        "FILE",
        "members of the system description, which override the known values",
    )
    add_text(parser, "--ruleset", "ROUND", "round whose rules count, such as 6.0.0")
    add_flag(
        parser,
        "--allow-differences",
        "package logs with other values than the environment, the descriptor or "
        "--submitter, runs of an edited bundle, or a set that differs from its ledger: notes, not "
        "refusals",
    )
    add_option(parser, "--site", "FILE", "site file, to find sets by name")
    add_systems_dir(parser)
    add_flag(parser, "--verify", "run the official package checker first; needs mlperf-logging")
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.cli.finding import folders
    from orchestrator.report.working import working
    from orchestrator.submission.package import check_place, make_package, write_package
    from orchestrator.submission.verify import verify

    output = Path(args.output)
    check_place(output)
    package = make_package(folders(args.sets, args.site), _options(args))
    verdict = None
    if args.verify:
        with working("the official package checker reads a copy"):
            verdict = verify(package.files, package.ruleset, package.benchmarks)
    if verdict is None or verdict.passed:
        write_package(package, output)
    _print_outcome(args, package, verdict)
    return ExitCode.OK if verdict is None or verdict.passed else ExitCode.NO_SCORE


def _options(args: Namespace) -> Options:
    from orchestrator.submission.description import STATUSES as TEXTS
    from orchestrator.submission.description import read_given
    from orchestrator.submission.package import Options

    given = read_given(Path(args.system_json)) if args.system_json else {}
    return Options(
        submitter=args.submitter,
        division=args.division,
        status=TEXTS[args.status],
        framework=args.framework,
        system=args.system,
        implementation=args.implementation,
        ruleset=args.ruleset,
        given=given,
        systems_dirs=[*args.systems_dir, *_systems_dirs(args.site)],
        allow_differences=args.allow_differences,
    )


def _systems_dirs(site: str | None) -> list[Path]:
    from orchestrator.cli.finding import find_site
    from orchestrator.model import load_site

    file = find_site(site)
    return [Path(folder) for folder in load_site(file).systems_dirs] if file else []


def _print_outcome(args: Namespace, package: Package, verdict: Word | None) -> None:
    from orchestrator.submission.verify import check_command

    written = verdict is None or verdict.passed
    if args.json:
        checker = (
            {
                "passed": verdict.passed,
                "errors": verdict.errors,
                "warnings": verdict.warnings,
                "version": verdict.version,
            }
            if verdict
            else None
        )
        members = {
            "directory": args.output if written else None,
            "round": package.ruleset,
            "files": sorted(package.files),
            "warnings": package.warnings,
            "checker": checker,
        }
        print_json("package", members)
        return
    for warning in package.warnings:
        print(f"note: {clean(warning)}", file=sys.stderr)
    if verdict:
        outcome = "no errors" if verdict.passed else "ERRORS"
        title = f"mlperf-logging {verdict.version}, package checker, round {package.ruleset}"
        print(f"{title}: {outcome}")
        for error in verdict.errors:
            print(f"  {clean(error)}")
    if written:
        total = sum(map(len, package.files.values()))
        print(f"written: {args.output} ({count(len(package.files), 'file')}, {total / 1e6:.1f} MB)")
        print("to check it again after edits:")
        print(f"  {check_command(Path(args.output), package.ruleset)}")
    else:
        print("nothing was written", file=sys.stderr)


COMMAND = Command(
    "package",
    __doc__,
    add_arguments,
    run,
    {
        ExitCode.OK: "written; with --verify the checker found nothing wrong",
        ExitCode.NO_SCORE: "the checker did; nothing was written",
    },
)
