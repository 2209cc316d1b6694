"""Score a set of runs: time-to-train, the olympic mean, the RCP test and the verdict, as from
MLCommons' referee.

Takes any folder with result_*.txt (or *.log) files, and set folders. Without a folder: the newest
set of the site. A workload that is no MLPerf benchmark (`ruleset: own` in its document) is scored
by its own rules, and marked so. Exit code: 0 a valid score, 1 no valid score, 2 unusable input.

--compliance lists the findings of the round's compliance rules instead, with file, line and the
expected value; of a set also values in its logs that differ from its environment or its descriptor.
Exit code: 0 no finding (there may be warnings), 1 findings.

example:
  orchestrator score results/MI355X_1x8x1/llama2_70b_lora --ruleset 6.0.0
  orchestrator score results/MI355X_1x8x1/llama2_70b_lora --compliance
"""

from __future__ import annotations

import argparse
import sys

from orchestrator.cli.arguments import add_flag, add_rules, minutes
from orchestrator.cli.command import Command
from orchestrator.errors import ExitCode, OrchestratorError, UsageError

TYPE_CHECKING = False  # importing typing is slow
if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.mllog.own import OwnRules
    from orchestrator.mllog.result import Score


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders", metavar="DIR", nargs="*", help="folder with the logs of one set, or a set folder"
    )
    add_rules(parser)
    add_flag(parser, "--compliance", "list the compliance findings, not the score")
    parser.add_argument(
        "--rules-from",
        choices=("mlperf_logging",),
        default="",
        help="compare the installed mlperf-logging with the built-in rules first, and stop "
        "if they differ; rules of other rounds are always taken from it",
    )
    parser.add_argument(
        "--window",
        action="store_true",
        help="more runs than needed: score the median window of consecutive runs",
    )
    parser.add_argument(
        "--minutes-left",
        type=minutes,
        metavar="N",
        help="unfinished set: time left in the allocation: does the rest fit",
    )
    parser.add_argument(
        "--site", metavar="FILE", help="site file, to find sets by name and the newest one"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    from orchestrator.cli.finding import folders, own_rules

    if args.rules_from:
        from orchestrator.cli.output import note
        from orchestrator.mllog.installed import check_equal

        note(f"{check_equal()}: its rules of the built-in rounds equal the built-in rules")
    rules = own_rules(args.workload, args.ruleset, args.site)
    named = folders(args.folders, args.site)
    if args.compliance:
        if args.window or args.minutes_left is not None:
            raise UsageError("--window and --minutes-left are about the score, not --compliance")
        from orchestrator.cli import compliance

        return compliance.show(named, args.json, ruleset=args.ruleset, own_rules=rules)
    return show(
        named,
        args.json,
        ruleset=args.ruleset,
        window=args.window,
        minutes_left=args.minutes_left,
        own_rules=rules,
        last_line=lambda folder, score: more_runs(folder, score, args.site),
    )


def show(
    folders: list[str],
    as_json: bool,
    *,
    ruleset: str = "",
    window: bool = False,
    minutes_left: float | None = None,
    own_rules: OwnRules | None = None,
    last_line: Callable[[str, Score], str] = lambda folder, score: "",
) -> int:
    """Print scores and return the worst exit code. `last_line` returns a command to print below a
    score. Raises scoring errors of a single folder."""
    from orchestrator.mllog.score import score_dir

    documents, worst, single = [], ExitCode.OK, len(folders) == 1
    for folder in folders:
        try:
            score = score_dir(
                folder,
                ruleset=ruleset,
                window=window,
                minutes_left=minutes_left,
                own_rules=own_rules,
            )
        except OrchestratorError as error:
            if single:
                raise
            print(f"orchestrator score: {error}", file=sys.stderr)
            documents.append({"directory": folder, "error": error.message})
            worst = ExitCode.BAD_INPUT
            continue
        if not score.valid:
            worst = max(worst, ExitCode.NO_SCORE)
        if as_json:
            documents.append(score.to_json())
        else:
            from orchestrator.cli.output import print_parts
            from orchestrator.views.score import score_parts

            against, command = against_published(folder, score), last_line(folder, score)
            print_parts(score_parts(score, against, command))
    if as_json:
        from orchestrator.cli.output import one_or_more, print_json

        print_json(*one_or_more("score", documents))
    return worst


def more_runs(folder: str, score: Score, site: str | None) -> str:
    """Return the command that adds the runs that a score needs; "" if the set declares enough, or
    cannot become valid."""
    is_hopeless = not score.forecast or score.forecast["never_because"]
    if is_hopeless or score.pending or len(score.runs) >= score.runs_required:
        return ""
    from pathlib import Path

    from orchestrator.cli.closing import with_short_name
    from orchestrator.evidence.sets import SetEvidence
    from orchestrator.words import quoted

    root = Path(folder).absolute()
    needed = SetEvidence(root).too_few_runs
    if not needed:
        return ""
    command = f"orchestrator resume {quoted(root)} --nexp {quoted(str(needed))}"
    return with_short_name(command, root, site)


def against_published(folder: str, score: Score) -> list[str]:
    """Compare our set with published results of its system, benchmark and round."""
    from orchestrator.mllog.source import read_description

    minutes = None if score.own or score.no_result else score.minutes
    if minutes is None or not (record := read_description(folder)):
        return []
    from orchestrator.published import compare, of_set

    return [
        f"{compare(minutes, entry)} ({entry.submitter}, round {entry.round})"
        for entry in of_set(record)
    ]


COMMAND = Command(
    "score",
    __doc__,
    add_arguments,
    run,
    {
        ExitCode.OK: "a valid score; with --compliance: no problem (there may be warnings)",
        ExitCode.NO_SCORE: "no valid score; with --compliance: something is wrong",
    },
)
