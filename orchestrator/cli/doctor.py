"""Check everything that a set needs: site file, version, Slurm, log directory, and on one node the
preflight: engine, image, GPUs, RDMA, data, clock. Shows the problems, each with the command that
fixes it (`fix:`) or shows more of it (`check:`), and then the verdict. --all shows every check.

Without SYSTEM and WORKLOAD, check only the needs of every host.

--all-nodes checks all nodes instead, with a verdict for each: inside an allocation its nodes;
outside, the idle nodes of the site's partition (or those of --nodes), in an allocation that ends
with the checks; --via ssh reaches hosts without Slurm. With `scheduler: local` it is this host.
--nodes, --via, --deep and --exclude-file imply it.

example:
  orchestrator doctor
  orchestrator doctor MI325X_08x08x32 flux1 --site site.yaml
  orchestrator doctor MI325X_08x08x32 flux1 --all-nodes --deep
  orchestrator doctor --nodes 'node[1-8]' --exclude-file bad-nodes.txt
  orchestrator submit MI325X_08x08x32 flux1 --exclude @bad-nodes.txt
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_flag, add_json, add_site, add_system
from orchestrator.cli.command import Command
from orchestrator.cli.finding import need_site
from orchestrator.cli.output import draw, is_verbose, note, print_json, print_parts, screen
from orchestrator.cli.preflight import (
    add_nodes,
    check_nodes,
    entry_words,
    names_nodes,
    requested_entry,
)
from orchestrator.errors import ExitCode, UsageError
from orchestrator.views.parts import Cell, Table
from orchestrator.words import cell, count, folded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator.model import Entry
    from orchestrator.onnode.policy.verdict import Row
    from orchestrator.words import Screen


def add_arguments(parser: ArgumentParser) -> None:
    add_system(parser, optional=True)
    add_site(parser)
    add_flag(parser, "--all", "show every check, not only the problems")
    add_flag(parser, "--all-nodes", "check all nodes, with a verdict for each")
    add_nodes(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    if args.all_nodes or names_nodes(args):
        if args.all:
            raise UsageError("--all is about one node; --all-nodes prints a verdict per node")
        return check_nodes(args)
    return _check(args)


def _check(args: Namespace) -> int:
    from orchestrator.site.doctor import examine

    def load(path: Path) -> Entry:
        from orchestrator.model import load_site

        load_site(path)  # first: its errors name the file
        return requested_entry(args)

    rows = list(
        examine(
            lambda: need_site(args.site),
            load,
            note,
            names=entry_words(args),
            hosts_only=args.system is None,
        )
    )
    failed = [row.check for row in rows if row.verdict == "fail"]
    if args.json:
        checks = [{"node": row.node, **row.to_json()} for row in rows]
        print_json("doctor", {"fit": not failed, "checks": checks})
    elif args.all or is_verbose():
        print_parts([table(rows)])
        print(verdict(rows))
    else:
        draw(summary(rows, screen()))
    return ExitCode.NO_SCORE if failed else ExitCode.OK


def table(rows: list[Row]) -> Table:
    """Return a row per check, with equal results folded."""
    return Table(
        "Checks",
        ("check", "verdict", "where", "what", "fix"),
        [(*texts, Cell(remedy, code=True)) for *texts, remedy in alike(rows)],
        states=(1,),
        under=("fix", "what"),
    )


def alike(rows: list[Row]) -> list[tuple[str, ...]]:
    """Return (check, verdict, nodes, text, remedy) with equal results folded."""
    from orchestrator.nodes.names import fold

    nodes: dict[tuple[str, str, str, str], list[str]] = {}
    for row in rows:
        nodes.setdefault((row.check, row.verdict, row.text, row.remedy), []).append(row.node)
    return [
        (check, verdict, fold(where), *rest) for (check, verdict, *rest), where in nodes.items()
    ]


def summary(rows: list[Row], screen: Screen) -> Iterator[str]:
    """Yield the number of passes, problems with their commands, and the verdict."""
    from orchestrator.site.doctor import HERE

    passed = sum(row.verdict == "pass" for row in rows)
    yield f"{screen.state('pass')}  {count(passed, 'check')} passed"
    # Without a driver every GPU check has the same problem.
    checks: dict[tuple[str, ...], list[str]] = {}
    for check, *problem in alike(rows):
        # A remedy changes the reason for a skipped check.
        if problem[0] in ("warn", "fail") or (problem[0] == "skip" and problem[3]):
            checks.setdefault(tuple(problem), []).append(check)
    looks = {row.remedy for row in rows if row.shows}
    fixed: dict[tuple[str, ...], list[str]] = {}
    for (state, where, text, remedy), names in checks.items():
        # This host stands for the nodes that have its problem.
        place = "" if HERE in where.split(",") else f" ({where})"
        line = cell(f"{', '.join(names)}{place}: {text}")
        fixed.setdefault((state, remedy, "" if remedy else line), []).append(line)
    order = ("skip", "warn", "fail")
    for (state, remedy, _), lines in sorted(
        fixed.items(), key=lambda item: order.index(item[0][0])
    ):
        for line in lines:
            parts = folded(line, screen.width - 8, whole=True) if screen.width else [line]
            yield f"{screen.state(state)}  {parts[0]}"
            yield from (f"        {part}" for part in parts[1:])
        if remedy:  # unfolded, for pasting
            yield f"        {'check' if remedy in looks else 'fix'}: {cell(remedy)}"
    yield cell(verdict(rows))


def verdict(rows: list[Row]) -> str:
    """Return `ready, with 2 warnings`; not `ready` if something was not checked. Equal problems of
    hosts or checks count once."""
    failed = [row for row in rows if row.verdict == "fail"]
    warnings = _distinct(row for row in rows if row.verdict == "warn")
    if failed:
        checks = ", ".join(dict.fromkeys(row.check for row in failed))
        return (
            f"not ready: {count(_distinct(failed), 'problem')} ({checks})"
            + f", {count(warnings, 'warning')}" * bool(warnings)
        )
    unchecked = dict.fromkeys(row.check for row in rows if row.verdict == "warn" and row.unchecked)
    return (
        ("no problem found" if unchecked else "ready")
        + f", with {count(warnings, 'warning')}" * bool(warnings)
        + f"; not checked: {', '.join(unchecked)}" * bool(unchecked)
    )


def _distinct(rows: Iterable[Row]) -> int:
    return len({(row.text, row.remedy) for row in rows})


COMMAND = Command(
    "doctor",
    __doc__,
    add_arguments,
    run,
    {
        ExitCode.OK: "no check failed (warnings included); with --all-nodes every node was tested",
        ExitCode.NO_SCORE: "a check failed; with --all-nodes also if a node is drained or in use",
        ExitCode.SCHEDULER: "--all-nodes: the checks could not run",
        ExitCode.UNKNOWN: "--all-nodes: a node did not answer",
    },
)
