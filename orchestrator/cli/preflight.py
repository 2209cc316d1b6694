"""`doctor --all-nodes`: a verdict per node of the allocation, the partition, or --nodes."""

from __future__ import annotations

import os
import signal
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import (
    add_choice,
    add_flag,
    add_number,
    add_option,
    add_text,
)
from orchestrator.cli.finding import load_named, need_site, site_log_dir
from orchestrator.cli.output import draw, note, print_json, screen
from orchestrator.cli.signals import exit_on
from orchestrator.errors import ExitCode, SetError, UsageError, is_full
from orchestrator.views.parts import Bullets, Cell, Table
from orchestrator.words import cell

if TYPE_CHECKING:
    from orchestrator.model import Entry
    from orchestrator.nodes.names import NamedNode
    from orchestrator.onnode.policy.verdict import CheckGroup, NodeVerdict, Verdicts
    from orchestrator.preflight.places import Request
    from orchestrator.site.remedies import Remedies, RunOn
    from orchestrator.words import Screen

EXAMPLE = "orchestrator doctor MI325X_08x08x32 flux1 --all-nodes"


def add_nodes(parser: ArgumentParser) -> None:
    add_text(
        parser,
        "--nodes",
        "NAMES",
        "nodes, such as 'node[1-4,7]'; for SSH also "
        "NAME=ssh://[user@]host[:port] "
        "(default: the allocation's, else the partition's idle nodes)",
    )
    add_choice(
        parser,
        "--via",
        ("slurm", "ssh", "local"),
        "how to reach them (default: as the site's scheduler)",
        None,
    )
    add_flag(parser, "--deep", "measure the bandwidth between the nodes too: minutes, not seconds")
    add_option(
        parser,
        "--exclude-file",
        "FILE",
        "write the failed nodes into it, one a line, for --exclude @FILE and sbatch --exclude",
    )
    add_option(parser, "--ssh-config", "FILE", "instead of ~/.ssh/config")
    add_number(parser, "--parallel", "N", "hosts at a time over SSH (default: 32)", 32)


def names_nodes(args: Namespace) -> bool:
    """Return whether an option needs --all-nodes."""
    return bool(args.nodes or args.via or args.deep or args.exclude_file)


def check_nodes(args: Namespace) -> int:
    """Print a verdict for each node, and return the exit code."""
    from orchestrator.container.image_nodes import keep
    from orchestrator.evidence.sets import check_log_dir
    from orchestrator.preflight.bundle import temporary_bundle, with_deep
    from orchestrator.preflight.places import Request
    from orchestrator.site.remedies import Remedies

    entry = requested_entry(args)
    if args.system is None:
        note(
            "hosts only: no GPU, fabric, image and data without a system; "
            f"{EXAMPLE} checks them too"
        )
    entry = with_deep(entry) if args.deep else entry
    log_dir = site_log_dir(entry.site)
    check_log_dir(log_dir)
    # SIGTERM, too, removes temporary files and releases the nodes.
    with exit_on(signal.SIGTERM), temporary_bundle(entry, log_dir) as bundle:
        verdicts, run_on = _check(args, entry, Request(bundle, args.deep))
    of_image = {row.node: row.verdict for row in verdicts.rows if row.check == "image"}
    have = [node for node, verdict in of_image.items() if verdict == "pass"]
    lack = [node for node, verdict in of_image.items() if verdict in ("warn", "fail")]
    if have or lack:
        keep(log_dir.parent / "images", entry.image, have, lack)
    if args.exclude_file:
        _write_excluded(Path(args.exclude_file), verdicts)
    if args.json:
        print_json("preflight", verdicts.to_json())
    else:
        remedies = Remedies(entry, entry_words(args), run_on)
        draw(lines(verdicts, remedies, screen(), deep=args.deep))
    if any(node.silent for node in verdicts.nodes):
        return ExitCode.UNKNOWN
    return ExitCode.OK if verdicts.fit else ExitCode.NO_SCORE


def requested_entry(args: Namespace) -> Entry:
    """Return the entry of SYSTEM and WORKLOAD, else of hosts only."""
    from orchestrator.preflight.bundle import hosts_only

    site = need_site(args.site)
    if args.system is not None:
        return load_named(args, site)
    return hosts_only(site)


def entry_words(args: Namespace) -> list[str]:
    """Return SYSTEM, WORKLOAD and the options of both, as typed."""
    options = [("--round", args.round), *(("--systems-dir", folder) for folder in args.systems_dir)]
    options.append(("--site", args.site))
    names = [args.system, args.workload] if args.system is not None else []
    return names + [str(word) for pair in options if pair[1] for word in pair]


def _check(args: Namespace, entry: Entry, request: Request) -> tuple[Verdicts, RunOn]:
    from orchestrator.preflight import places
    from orchestrator.site.remedies import on_this_host, over_ssh, through_slurm

    via = args.via or entry.site.scheduler
    if via == "local":
        if args.nodes:
            raise UsageError(
                "--nodes: without a scheduler this host is checked",
                hint="--via ssh checks hosts by name",
            )
        return places.on_this_host(request), on_this_host
    if via == "ssh":
        from orchestrator.nodes.ssh import Ssh

        hosts = _hosts(args, entry)
        verdicts = places.over_ssh(
            request,
            hosts,
            transport=Ssh(config_file=args.ssh_config),
            limit=args.parallel,
        )
        return verdicts, over_ssh(hosts, args.ssh_config)
    from orchestrator.scheduler.slurm_variables import current_allocation

    names, run_on = _names(args.nodes), through_slurm(entry.site.partition)
    allocation = current_allocation()
    if allocation.job and allocation.nodelist:
        chosen = _of_allocation(names, allocation.nodelist)
        return places.in_allocation(request, chosen, os.environ), run_on
    return places.allocate(request, entry, names, note), run_on


# ---- nodes ----


def _names(text: str) -> list[str]:
    from orchestrator.nodes.names import parse_nodes

    nodes = parse_nodes(text) if text else []
    for node in nodes:
        if node.address:
            raise UsageError(
                f"--nodes: {node.name}={node.address}: Slurm knows nodes by name",
                hint="--via ssh takes addresses",
            )
    return [node.name for node in nodes]


def _hosts(args: Namespace, entry: Entry) -> list[NamedNode]:
    from orchestrator.nodes.names import NamedNode, expand_all, for_commands, parse_nodes

    if args.nodes:
        return for_commands(parse_nodes(args.nodes))
    excluded = set(expand_all(entry.site.exclude))
    names = [name for name in expand_all(entry.site.nodelist) if name not in excluded]
    if not names:
        raise UsageError(
            "--via ssh: which hosts? the site file has no nodelist", hint="--nodes 'node[1-8]'"
        )
    return [NamedNode(name) for name in names]


def _of_allocation(names: list[str], nodelist: str) -> list[str]:
    from orchestrator.nodes.names import expand_all

    allocated = expand_all([nodelist])
    foreign = [name for name in names if name not in allocated]
    if foreign:
        raise UsageError(
            f"--nodes: {', '.join(foreign)} is not of this allocation ({nodelist})",
            hint="leave the allocation's shell to check other nodes",
        )
    return names or allocated


# ---- output ----


def lines(verdicts: Verdicts, remedies: Remedies, screen: Screen, *, deep: bool) -> Iterator[str]:
    from orchestrator.evidence.checks import coverage
    from orchestrator.nodes.names import fold
    from orchestrator.views import terminal

    yield from terminal.lines([_table(verdicts, remedies), Bullets(_remarks(verdicts))], screen)
    if deep and not _measured(verdicts):
        yield "bandwidth not measured: no node passed its checks"
    yield coverage(verdicts)
    if verdicts.exclude:
        yield f"exclude: {cell(fold(verdicts.exclude))}"


def _table(verdicts: Verdicts, remedies: Remedies) -> Table:
    tested = [node for node in verdicts.nodes if node.verdict != "untested"]
    common = _common_groups(tested)
    rows: list[tuple[str, str, str, str]] = []
    for node in verdicts.nodes:
        groups = [group for group in node.groups if group not in common]
        cells = _cells(groups, remedies, [node.node])
        if node.verdict == "untested":
            cells.insert(0, (node.untested, ""))
        (reason, fix), *more = cells or [("", "")]
        rows += [(node.node, node.verdict, reason, fix), *(("", "", *pair) for pair in more)]
    cells = _cells(common, remedies, [node.node for node in tested])
    for number, (group, (reason, fix)) in enumerate(zip(common, cells, strict=True)):
        rows.append(("" if number else "all tested", group.verdict, reason, fix))
    return Table(
        "Nodes",
        ("node", "verdict", "reason", "fix"),
        [(*texts, Cell(fix, code=True)) for *texts, fix in rows],
        states=(1,),
        under=("fix", "reason"),
    )


def _remarks(verdicts: Verdicts) -> list[str]:
    """Return problems of nodes together, and the bandwidth test even if nothing is wrong."""
    problems = [
        f"{row.verdict}: {row.reason}" + (f"; {row.remedy}" if row.remedy else "")
        for row in verdicts.together
    ]
    labels = {"pass": "deep", "skip": "bandwidth not measured"}
    measured = [
        f"{labels[outcome]}: {text}" for outcome, text in _measured(verdicts) if outcome in labels
    ]
    return [*problems, *measured]


def _measured(verdicts: Verdicts) -> list[tuple[str, str]]:
    """Return (verdict, text) of the bandwidth test, each result once."""
    checks = [row for node in verdicts.nodes for row in node.rows]
    return [*dict.fromkeys((row.verdict, row.text) for row in checks if row.check == "deep")]


def _common_groups(tested: Sequence[NodeVerdict]) -> list[CheckGroup]:
    if len(tested) < 2:
        return []
    first, *others = tested
    return [group for group in first.groups if all(group in node.groups for node in others)]


def _cells(
    groups: Sequence[CheckGroup], remedies: Remedies, nodes: Sequence[str]
) -> list[tuple[str, str]]:
    """Return (reason, command) of each group on `nodes`."""
    from orchestrator.onnode.policy.verdict import Row

    cells = []
    for group in groups:
        row = Row(nodes[0], group.checks[0], group.verdict, 0, group.text, group.remedy)
        row = remedies.with_command(row, nodes)
        cells.append((replace(group, text=row.text).reason, row.remedy))
    return cells


def _write_excluded(path: Path, verdicts: Verdicts) -> None:
    try:
        path.write_text("".join(f"{name}\n" for name in verdicts.exclude), encoding="utf-8")
    except OSError as error:
        raise (SetError if is_full(error) else UsageError)(
            f"--exclude-file {path}: {error.strerror or error}",
            hint="name a file that can be written",
        ) from error
