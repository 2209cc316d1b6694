"""Compare sets, folders of logs and published entries: score, throughput and samples to converge as
ratios, the certainty of the difference, differences in environment, host settings and options, and
whether the two are within 1 %.

The others are compared with the first. Published entries are named round/benchmark/system or by
their number.

example:
  orchestrator compare 6.0/flux1/MI325X_08x08x32 MI325X_08x08x32-flux1-20260501
  orchestrator compare results/before results/after --json
  orchestrator compare results/before results/after --format html -o compare.html
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import RULESET_HELP, add_operands
from orchestrator.cli.command import Command
from orchestrator.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from orchestrator.compare.comparison import Comparison
    from orchestrator.compare.sides import Side


def add_arguments(parser: ArgumentParser) -> None:
    text = "two or more sets, folders of logs, or published entries"
    add_operands(parser, "sides", "A B", "+", text)
    parser.add_argument("--ruleset", metavar="ROUND", default="", help=RULESET_HELP)
    parser.add_argument("--site", metavar="FILE", help="site file, to find sets by name")
    parser.add_argument(
        "--format",
        choices=("text", "json", "html"),
        default="",
        help="default: by the ending of FILE, else text",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="", help="file to write (html: compare.html)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: Namespace) -> int:
    from orchestrator.cli.output import print_parts
    from orchestrator.cli.report import write_file
    from orchestrator.compare.comparison import compare
    from orchestrator.compare.parts import comparison_parts, verdicts
    from orchestrator.report.working import working

    if len(args.sides) < 2:
        raise UsageError("two sides are needed", hint="orchestrator compare A B")
    with working("reading the logs"):
        first, *others = [_side(name, args.ruleset, args.site) for name in args.sides]
    comparisons = [compare(first, other) for other in others]
    chosen = (
        "json"
        if args.json
        else args.format or ("html" if args.output.endswith((".html", ".htm")) else "text")
    )
    output = args.output or ("compare.html" if chosen == "html" else "-")
    if output != "-":
        size = write_file(output, _text(comparisons, chosen) + "\n")
        for headline in verdicts(comparisons):
            print(headline.text)
        print(f"written: {output} ({size / 1000:.0f} kB)")
    elif chosen == "text":
        print_parts(comparison_parts(comparisons))
    else:
        print(_text(comparisons, chosen))
    return (
        ExitCode.OK
        if all(comparison.score_ratio and comparison.has_scores for comparison in comparisons)
        else ExitCode.NO_SCORE
    )


def _text(comparisons: list[Comparison], chosen: str) -> str:
    if chosen == "json":
        from orchestrator.cli.output import json_text, one_or_more

        documents = [comparison.to_json() for comparison in comparisons]
        return json_text(*one_or_more("comparison", documents))
    if chosen == "html":
        from orchestrator.compare.page import page

        return page(comparisons)
    from orchestrator.compare.parts import comparison_parts
    from orchestrator.views.terminal import lines

    return "\n".join(lines(comparison_parts(comparisons)))


def _side(name: str, ruleset: str, site: str | None) -> Side:
    """Return a folder, published entry or set of the site. Raises UsageError for another name."""
    from orchestrator.cli.finding import folders
    from orchestrator.compare.sides import find_side

    side = find_side(name, ruleset=ruleset)
    if side is None:
        try:
            (folder,) = folders([name], site)
        except UsageError as error:
            raise UsageError(
                f"`{name}` is neither a folder nor a published entry nor a set: {error.message}",
                hint="published entries are written round/benchmark/system, such as "
                "6.0/flux1/MI325X_08x08x32, "
                "or by MLCommons' number, such as 6.0-0037",
            ) from error
        side = find_side(folder, ruleset=ruleset)
    if side is None:
        raise UsageError(f"{name}: the folder went away")
    return side


COMMAND = Command(
    "compare",
    __doc__,
    add_arguments,
    run,
    {
        ExitCode.OK: "every side has a valid score",
        ExitCode.NO_SCORE: "a side has no valid score",
    },
)
