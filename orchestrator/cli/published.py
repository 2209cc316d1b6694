"""The published results of AMD Instinct entries in MLPerf Training 5.0, 5.1 and 6.0, with their
sources.

--minutes compares your own time with each of them.

example:
  orchestrator published --benchmark llama2_70b_lora --round 6.0
  orchestrator published --system MI355X_1x8x1 --benchmark llama2_70b_lora --minutes 8.31
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_flag, add_json, add_option, add_text, minutes
from orchestrator.cli.command import Command
from orchestrator.cli.output import print_json, print_parts
from orchestrator.errors import ExitCode, UsageError, did_you_mean
from orchestrator.views.parts import Table

if TYPE_CHECKING:
    from orchestrator.published import PublishedResult

_COLUMNS = ("round", "benchmark", "minutes", "GPUs", "accelerator")


def add_arguments(parser: ArgumentParser) -> None:
    add_text(
        parser,
        "--system",
        "NAME",
        "a system of this catalogue, a published name, or a GPU such as MI355X",
    )
    add_text(parser, "--benchmark", "NAME", "such as llama2_70b_lora, llama31_8b, flux1")
    add_text(parser, "--round", "R", "5.0, 5.1 or 6.0")
    add_option(parser, "--minutes", "N", "compare this time with them", type=minutes)
    add_flag(parser, "--sources", "also print the source of each figure, and notes")
    add_flag(parser, "--others", "the times of other makers' GPUs that AMD's articles compare with")
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.published import compare, difference, find

    if args.others:
        return _others(args)
    results = find(benchmark=args.benchmark, round=args.round, system=args.system)
    if not results:
        raise _nothing(args)
    if args.json:
        members_list = [result.to_json() for result in results]
        if args.minutes is not None:
            for members, result in zip(members_list, results, strict=True):
                members["difference_percent"] = round(difference(args.minutes, result), 2)
        print_json("published", {"results": members_list})
        return ExitCode.OK
    if args.minutes is not None:
        for result in results:
            print(
                f"{result.round}  {result.submitter} {result.name}: {compare(args.minutes, result)}"
            )
        return ExitCode.OK
    table = Table(
        "Published results",
        (*_COLUMNS, "submitter", "published name", "system"),
        [_row(result) for result in results],
        numeric=(2, 3),
        leave=("published name", "submitter"),
    )
    print_parts([table])
    if any(result.basis == "computed" for result in results):
        print(
            "* computed from the published logs: mean of the middle runs, times the factor of the "
            "RCP check"
        )
    for result in results if args.sources else ():
        source = "; ".join(filter(None, (result.source, result.note)))
        print(f"{result.round} {result.submitter} {result.name}: {source}")
    return ExitCode.OK


def _others(args: Namespace) -> int:
    from orchestrator.published import others

    if args.system or args.minutes is not None:
        raise UsageError("--others goes with --benchmark and --round alone")
    results = others(benchmark=args.benchmark, round=args.round)
    if not results:
        raise UsageError(
            "no time of another maker's GPU is quoted for that",
            hint="orchestrator published --others",
        )
    if args.json:
        print_json("published-others", {"results": [result._asdict() for result in results]})
        return ExitCode.OK
    rows = [
        (
            result.round,
            result.benchmark,
            f"{result.minutes:.2f}",
            result.gpus,
            result.accelerator,
            result.entry or "-",
        )
        for result in results
    ]
    table = Table(
        "Times of other makers' GPUs",
        (*_COLUMNS, "entry"),
        rows,
        numeric=(2, 3),
        remark="source",
        below=[result.source for result in results],
    )
    print_parts([table])
    return ExitCode.OK


def _row(result: PublishedResult) -> list[str]:
    star = "*" if result.basis == "computed" else " "
    return [
        result.round,
        result.benchmark,
        f"{result.minutes:.2f}{star}",
        str(result.gpus),
        result.accelerator,
        result.submitter,
        result.name,
        result.system or "-",
    ]


def _nothing(args: Namespace) -> UsageError:
    from orchestrator.published import known_names, load

    names = known_names()
    if args.system and args.system.lower() not in (name.lower() for name in names):
        meant = did_you_mean(args.system, names, before="", after="")
        return UsageError(
            f"nothing is published for a system {args.system!r}{meant}",
            hint="orchestrator published lists all",
        )
    benchmarks, rounds = (
        ", ".join(sorted({getattr(result, key) for result in load()}))
        for key in ("benchmark", "round")
    )
    return UsageError(
        f"nothing is published for that; benchmarks: {benchmarks}; rounds: {rounds}",
        hint="orchestrator published lists all",
    )


COMMAND = Command(
    "published",
    __doc__,
    add_arguments,
    run,
)
