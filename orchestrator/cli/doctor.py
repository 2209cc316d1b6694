"""Check everything that a set needs: site file, version, Slurm, log directory, and on one node the
preflight: engine, image, GPUs, RDMA, data, clock. A verdict per line, with the command that fixes
it.

Without SYSTEM and WORKLOAD, check only the needs of every host. `orchestrator preflight` checks all
nodes.

example:
  orchestrator doctor
  orchestrator doctor MI325X_08x08x32 flux1 --site site.yaml
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_json, add_site, add_system
from orchestrator.cli.command import Command
from orchestrator.cli.finding import need_site
from orchestrator.cli.output import note, print_json, print_table
from orchestrator.cli.preflight import requested_entry
from orchestrator.errors import ExitCode
from orchestrator.words import TextTable

if TYPE_CHECKING:
    from orchestrator.model import Entry
    from orchestrator.onnode.policy.verdict import Row

CHECKS = TextTable(
    "CHECK",
    "VERDICT",
    "WHERE",
    "WHAT",
    "WHAT MENDS IT",
    states=("VERDICT",),
    below=("WHAT", "WHAT MENDS IT"),
)


def add_arguments(parser: ArgumentParser) -> None:
    add_system(parser, optional=True)
    add_site(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.site.doctor import examine

    def load(path: Path) -> Entry:
        from orchestrator.model import load_site

        load_site(path)  # first, so that errors of the file name the file
        return requested_entry(args)

    rows = list(examine(lambda: need_site(args.site), load, note, hosts_only=not args.system))
    failed = [row.check for row in rows if row.verdict == "fail"]
    if args.json:
        print_json("doctor", {"fit": not failed, "checks": [asdict(row) for row in rows]})
    else:
        print_table(CHECKS, _alike(rows))
        print(
            f"{len(failed)} of {len(rows)} checks failed: {', '.join(failed)}" if failed else "fit"
        )
    return ExitCode.NO_SCORE if failed else ExitCode.OK


def _alike(rows: list[Row]) -> list[tuple[str, ...]]:
    """Return one row for all nodes with the same result of a check, in the order of the first
    node."""
    from orchestrator.nodes.names import fold

    nodes: dict[tuple[str, str, str, str], list[str]] = {}
    for row in rows:
        nodes.setdefault((row.check, row.verdict, row.text, row.remedy), []).append(row.node)
    return [
        (check, verdict, fold(where), *rest) for (check, verdict, *rest), where in nodes.items()
    ]


COMMAND = Command(
    "doctor",
    __doc__,
    add_arguments,
    run,
    {ExitCode.OK: "no check failed (warnings included)", ExitCode.NO_SCORE: "a check failed"},
)
