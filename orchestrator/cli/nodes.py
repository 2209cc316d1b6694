"""The nodes of a set: ranks, good and failed attempts, times, exit codes, bandwidth, preflight, and
exclusions.

START-UP is from the start of a run's script to run_start, SHUT-DOWN from run_stop to the script's
end; cold is the first run in a new container. Times of the published entry come from its logs.

VS OTHERS is a node's time over that of the other nodes in the same attempts; WITH and WITHOUT are
minutes to train of the good runs with and without the node. Together with the bandwidth test they
point at a slow node. If the runs used different nodes, a second table has the minutes to train per
group of nodes.

example:
  orchestrator nodes                                 # of the newest set
  orchestrator nodes MI325X_08x08x32-flux1-20261121 --json
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_json, add_set
from orchestrator.cli.command import Command
from orchestrator.cli.finding import chosen_set
from orchestrator.cli.output import print_json, print_remark, print_table
from orchestrator.cli.pictures import startup_text
from orchestrator.errors import ExitCode
from orchestrator.words import Screen, TextTable, duration, train_time

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.evidence.nodes import NodeGroup, NodeHistory
    from orchestrator.evidence.startup import StartUp

STARTUP = TextTable(
    "ATTEMPT", "NODE", "START-UP", "RUN", "SHUT-DOWN", "CACHES", right=("START-UP", "RUN", "SHUT-DOWN"), below=("CACHES",)
)  # fmt: skip
GROUPS = TextTable(
    "NODES", "RUNS", "MEAN", "FASTEST", "SLOWEST", "VS ALL", right=("RUNS", "MEAN", "FASTEST", "SLOWEST", "VS ALL")
)  # fmt: skip
NODES = TextTable(
    "NODE", "RANK", "GOOD", "FAILED", "MEAN", "LAST", "VS OTHERS", "WITH", "WITHOUT", "EXIT CODES", "GB/S", "PREFLIGHT",
    right=("RANK", "GOOD", "FAILED", "MEAN", "LAST", "VS OTHERS", "WITH", "WITHOUT", "GB/S"),
    states=("PREFLIGHT",),
    leave=("LAST", "EXIT CODES", "WITHOUT", "WITH", "MEAN"),
)  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    add_set(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.evidence.attempts import read_attempts
    from orchestrator.evidence.nodes import read_groups, read_history, suspicions
    from orchestrator.evidence.sets import SetEvidence
    from orchestrator.evidence.startup import as_json, startups
    from orchestrator.published import startup

    root = chosen_set(args).layout.root
    evidence = SetEvidence(root)
    attempts = read_attempts(evidence)
    history, groups = read_history(evidence, attempts), read_groups(evidence, attempts)
    pointers = suspicions(history)
    starts, record = startups(evidence), evidence.record
    about = (record.benchmark, record.round, record.system) if record else ("", "", "")
    published = startup.find(*about)
    if args.json:
        told = {
            "nodes": [one.to_json() for one in history],
            "groups": [one.to_json() for one in groups],
        }
        around = {**as_json(starts), "published": [one.to_json() for one in published]}
        print_json("nodes", {"set": str(root), **told, "suspicions": pointers, "startup": around})
        return ExitCode.OK
    from orchestrator.nodes.names import fold

    if not history:
        print(f"no job of {root.name} has had nodes yet")
        return ExitCode.OK
    print_table(NODES, [_row(one) for one in history])
    if groups:
        print()
        print_table(GROUPS, _group_rows(groups))
        print()
    for text, names in _remarks(history).items():
        print_remark(f"{text} ({fold(names)})")
    for text in pointers:
        print_remark(f"slow: {text}")
    if starts:
        print()
        print_table(STARTUP, [_start_row(one) for one in starts])
    for entry in published:
        print(f"published: {entry.words}")
    return ExitCode.OK


def table(root: Path, screen: Screen) -> list[str]:
    """Return the table of a set's nodes as lines."""
    from orchestrator.evidence.nodes import read_history
    from orchestrator.evidence.sets import SetEvidence

    return NODES.lines([_row(one) for one in read_history(SetEvidence(root))], screen)


def _remarks(history: list[NodeHistory]) -> dict[str, list[str]]:
    """Return text -> its nodes: exclusions, and complaints of checks."""
    found: dict[str, list[str]] = {}
    for one in history:
        for aside in one.set_aside:
            found.setdefault(
                f"set aside ({aside.when}): {aside.reason or 'no reason on record'}", []
            ).append(one.node)
        if one.lost and not one.set_aside:
            found.setdefault(
                f"lost: Slurm says {one.lost[-1].reason or 'nothing'} of it", []
            ).append(one.node)
    for one in history:
        for verdict, reason, remedy in one.preflight.reasons if one.preflight else ():
            found.setdefault(f"{verdict}: {reason}" + (f"; {remedy}" if remedy else ""), []).append(
                one.node
            )
    return found


def _start_row(one: StartUp) -> list[str]:
    return [
        f"{one.run}.{one.attempt}",
        one.node,
        startup_text(one.startup_s, one.cold),
        _seconds(one.run_s),
        _seconds(one.shutdown_s),
        one.cache or "-",
    ]


def _group_rows(groups: list[NodeGroup]) -> list[list[str]]:
    """Return minutes to train of the good runs per group of nodes, and their mean over that of
    all good runs."""
    from orchestrator.nodes.names import fold

    everything = [value for one in groups for value in one.minutes]
    usual = sum(everything) / len(everything)
    return [
        [
            fold(one.nodes),
            str(len(one.runs)),
            *map(train_time, (one.mean, min(one.minutes), max(one.minutes))),
            f"{one.mean / usual:.3f}" if usual else "-",
        ]
        for one in groups
    ]


def _row(one: NodeHistory) -> list[str]:
    rank = ",".join(map(str, one.ranks)) or (
        "waits" if one.waits else "spare" if one.spare else "-"
    )
    last = one.last.seconds if one.last else None
    return [
        one.node,
        rank,
        str(one.good),
        str(one.failed),
        _seconds(one.mean_s),
        _seconds(last),
        "-" if one.relative is None else f"{one.relative:.3f}",
        train_time(one.minutes_with),
        train_time(one.minutes_without),
        ",".join(map(str, one.exits)) or "-",
        "-" if one.gbps is None else f"{one.gbps:.1f}",
        one.preflight.verdict if one.preflight else "-",
    ]


def _seconds(value: float | None) -> str:
    return "-" if value is None else duration(value)


COMMAND = Command(
    "nodes",
    "who ran what on which node of a set, how fast, and which were set aside",
    __doc__,
    add_arguments,
    run,
)
