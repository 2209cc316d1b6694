"""--spares and --exclude: what a set asks of the scheduler beyond the nodes that its system has."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.model import Entry

MOST_SPARES = 1000


def add_allocation(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--spares",
        metavar="K",
        type=spares,
        help="nodes to ask for beyond those of the system; one takes "
        "the place of a node that fails (default: the site's `spares`)",
    )
    parser.add_argument(
        "--exclude",
        metavar="NODES|@FILE",
        default="",
        help="nodes not to use, such as node[1-4,7], beside the site's `exclude`; @FILE: one or more a line, "
        "as `orchestrator preflight` writes it",
    )


def spares(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > MOST_SPARES:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 0 to {MOST_SPARES}")
    return int(text)


def excluded(args: Namespace) -> list[str]:
    """The names of --exclude. Raises UsageError for what names no node and for a file that cannot be read."""
    from orchestrator.nodes.names import names_given

    return names_given(args.exclude, "--exclude") if args.exclude else []


def with_allocation(entry: Entry, args: Namespace) -> Entry:
    """`entry` with --spares and --exclude in place of and beside what its site says."""
    from dataclasses import replace

    from orchestrator.runset.allocation import without

    site, changed = entry.site, {}
    if args.spares is not None:
        changed["spares"] = args.spares
    if names := excluded(args):
        refuse_without_scheduler(site.scheduler)
        changed["exclude"] = [*site.exclude, *names]
        changed["nodelist"] = without(site.nodelist, names)
    return replace(entry, site=site.model_copy(update=changed)) if changed else entry


def refuse_without_scheduler(scheduler: str) -> None:
    if scheduler == "local":
        raise UsageError("--exclude: without a scheduler there is nothing to choose nodes from (scheduler: local)")
