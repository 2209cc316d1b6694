"""Nodes lent by Slurm to a command outside an allocation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import ceil
from typing import TYPE_CHECKING

from orchestrator.cli.output import note
from orchestrator.errors import SchedulerError
from orchestrator.scheduler.kinds import kind_of
from orchestrator.words import count

if TYPE_CHECKING:
    from orchestrator.model import Site
    from orchestrator.nodes.names import NamedNode
    from orchestrator.nodes.transport import Transport

SPARE_MIN = 5
"""For the start and the end of steps."""


def lends(site: Site | None, nodes: Sequence[NamedNode]) -> bool:
    """Return whether Slurm lends `nodes` (empty: it chooses)."""
    from orchestrator.scheduler.slurm_variables import current_allocation

    inside = bool(current_allocation().job)
    by_name = not any(node.address for node in nodes)
    return site is not None and kind_of(site.scheduler).allocates and not inside and by_name


@contextmanager
def lent(
    site: Site, names: Sequence[str], purpose: str, *, seconds: float, limit: int
) -> Iterator[tuple[list[NamedNode], Transport]]:
    """Borrow `names`, or the partition's idle nodes.

    `seconds`: the longest time of a node; `limit`: nodes at a time.
    Named nodes in use answer with their state; others are left out, with a note. Raises
    SchedulerError if no node is idle, or if Slurm does not lend them.
    """
    from orchestrator.nodes.borrowed import Lent, borrowed
    from orchestrator.nodes.names import NamedNode, fold
    from orchestrator.preflight.places import allocation_options, settled

    chosen = settled(site, names)
    if not chosen.idle:
        texts = [f"{node} is {state}" for node, state in list(chosen.untested.items())[:3]]
        raise SchedulerError(
            f"no node is idle, so Slurm lends no node: {'; '.join(texts)}",
            hint="ask again later, or reach nodes in use with --via ssh",
        )
    if chosen.untested and not names:
        away = fold(list(chosen.untested))
        note(
            f"left out: {count(len(chosen.untested), 'node')} that {purpose} cannot reach ({away})"
        )
    options = allocation_options(site)
    minutes = _allowed(site, SPARE_MIN + ceil(ceil(len(chosen.idle) / limit) * seconds / 60))
    with borrowed(chosen.idle, options, minutes=minutes, purpose=purpose) as step:
        nodes = [NamedNode(name) for name in names or chosen.idle]
        yield nodes, Lent(step, chosen.untested)


def _allowed(site: Site, minutes: int) -> int:
    """Return `minutes`, at most the partition's limit: Slurm refuses more."""
    from orchestrator.scheduler.slurm_nodes import partition_limits

    with suppress(SchedulerError):
        limits = partition_limits(site.partition).values()
        return min(minutes, max((limit or minutes for limit in limits), default=minutes))
    return minutes
