"""Make the submission tree (results/, systems/, benchmarks/) from sets of runs, all or nothing.

It contains exactly the required runs in launch order; of a longer set the median window. Sets that
would be rejected are refused with the reason. --verify runs MLCommons' package checker
(mlperf-logging) over a copy before anything is written.

example:
  orchestrator package MI325X_08x08x32-flux1-20260501 -o AMD --submitter AMD --framework "PyTorch 2.10.0" --verify
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_systems_dir
from orchestrator.cli.command import Command
from orchestrator.cli.output import print_json
from orchestrator.errors import ExitCode
from orchestrator.words import clean

if TYPE_CHECKING:
    from orchestrator.submission.package import Options, Package
    from orchestrator.submission.verify import Word

STATUSES = ("onprem", "cloud", "rdi", "preview")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "sets", metavar="SET", nargs="+", help="a set, or a folder of logs (then with --system)"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        required=True,
        help="the submitter's folder; must not exist or be empty",
    )
    parser.add_argument(
        "--submitter", metavar="NAME", required=True, help="the organisation that hands in"
    )
    parser.add_argument(
        "--division",
        choices=("closed", "open"),
        default="closed",
        help="division of the submission (default: closed)",
    )
    parser.add_argument(
        "--status",
        choices=STATUSES,
        default="onprem",
        help="availability of the system (default: onprem)",
    )
    parser.add_argument(
        "--framework", metavar="TEXT", default="", help='such as "PyTorch 2.10.0 + ROCm 7.2.2"'
    )
    parser.add_argument(
        "--system",
        metavar="NAME",
        default="",
        help="the system's name in the tree (default: the set's)",
    )
    parser.add_argument(
        "--implementation", metavar="NAME", default="", help="default: the system's name"
    )
    parser.add_argument(
        "--system-json",
        metavar="FILE",
        default="",
        help="members of the system description that win over what is known",
    )
    parser.add_argument(
        "--ruleset", metavar="ROUND", default="", help="round whose rules count, such as 6.0.0"
    )
    parser.add_argument(
        "--allow-differences",
        action="store_true",
        help=(
            "hand in logs that tell other values than the environment, the descriptor or "
            "--submitter: notes, not refusals"
        ),
    )
    parser.add_argument("--site", metavar="FILE", help="site file, to find sets by name")
    add_systems_dir(parser)
    parser.add_argument(
        "--verify",
        action="store_true",
        help="run the official package checker first; needs mlperf-logging",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: Namespace) -> int:
    from orchestrator.cli.finding import folders
    from orchestrator.report.working import working
    from orchestrator.submission.package import check_place, make_package, write_package
    from orchestrator.submission.verify import installed_version, verify

    output = Path(args.output)
    check_place(output)
    if args.verify:
        installed_version()
    package = make_package(folders(args.sets, args.site), _options(args))
    word = None
    if args.verify:
        with working("the official package checker reads a copy"):
            word = verify(package.files, package.ruleset, package.benchmarks)
    if word is None or word.passed:
        write_package(package, output)
    _tell(args, package, word)
    return ExitCode.OK if word is None or word.passed else ExitCode.NO_SCORE


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
    """Return the folders with further descriptors in the site file."""
    from orchestrator.cli.finding import find_site
    from orchestrator.model import load_site

    found = find_site(site)
    return [Path(one) for one in load_site(found).systems_dirs] if found else []


def _tell(args: Namespace, package: Package, word: Word | None) -> None:
    written = word is None or word.passed
    if args.json:
        checker = (
            {
                "passed": word.passed,
                "errors": word.errors,
                "warnings": word.warnings,
                "version": word.version,
            }
            if word
            else None
        )
        told = {
            "directory": args.output if written else None,
            "round": package.ruleset,
            "files": sorted(package.files),
            "warnings": package.warnings,
            "checker": checker,
        }
        print_json("package", told)
        return
    for warning in package.warnings:
        print(f"note: {clean(warning)}", file=sys.stderr)
    if word:
        print(
            f"mlperf-logging {word.version}, package checker, round {package.ruleset}: "
            f"{'no errors' if word.passed else 'ERRORS'}"
        )
        for error in word.errors:
            print(f"  {clean(error)}")
    if written:
        total = sum(map(len, package.files.values()))
        print(f"written: {args.output} ({len(package.files)} files, {total / 1e6:.1f} MB)")
    else:
        print("nothing was written", file=sys.stderr)


COMMAND = Command(
    "package",
    "the submission tree of one or more sets, checked before it is written",
    __doc__,
    add_arguments,
    run,
    {
        ExitCode.OK: "written; with --verify the checker found nothing wrong",
        ExitCode.NO_SCORE: "the checker did; nothing was written",
    },
)
