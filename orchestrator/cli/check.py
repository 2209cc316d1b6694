"""Check logs against a round's compliance rules: each problem with file, line and the expected
value.

For a set it also lists values in its logs that differ from its environment or its descriptor. Takes
any folder with result_*.txt (or *.log) files, and set folders. Exit code: 0 no problem (warnings
aside), 1 problems, 2 unusable input.

example:
  orchestrator check results/MI355X_1x8x1/llama2_70b_lora --ruleset 6.1.0
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_rules
from orchestrator.cli.command import Command
from orchestrator.cli.output import one_or_more, print_json
from orchestrator.errors import ExitCode

if TYPE_CHECKING:
    from orchestrator.mllog.result import Score


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders", metavar="DIR", nargs="*", help="folder with the logs of one set, or a set folder"
    )
    add_rules(parser)
    parser.add_argument(
        "--site", metavar="FILE", help="site file, to find sets by name and the newest one"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    from orchestrator.cli.finding import folders, own_rules
    from orchestrator.mllog.score import score_dir

    own = own_rules(args.workload, args.ruleset, args.site)
    scores = [
        score_dir(folder, ruleset=args.ruleset, own=own)
        for folder in folders(args.folders, args.site)
    ]
    if args.json:
        documents = [_document(score) for score in scores]
        print_json(*one_or_more("check", documents))
    else:
        from orchestrator.mllog.table import check_text

        for score in scores:
            print(check_text(score))
    return ExitCode.OK if all(map(_sound, scores)) else ExitCode.NO_SCORE


def _sound(score: Score) -> bool:
    return score.compliant and score.seeds_ok and not score.differences


def _document(score: Score) -> dict[str, object]:
    findings = score.findings
    return {
        "directory": score.directory,
        "benchmark": score.benchmark,
        "round": score.ruleset,
        "files": len(score.runs),
        "compliant": score.compliant,
        "seeds_ok": score.seeds_ok,
        "as_described": not score.differences,
        "findings": [finding.to_json() for finding in findings],
    }


COMMAND = Command(
    "check",
    __doc__,
    add_arguments,
    run,
    {ExitCode.OK: "nothing is wrong (warnings aside)", ExitCode.NO_SCORE: "something is"},
)
