"""Who pulls the image next: of the nodes that lack it, so many at the same time as the site lets its registry serve."""

from __future__ import annotations

from .place import Standing


def lacking(standing: Standing) -> list[str]:
    """Return the nodes that said they lack the image and are still to get it, those with a rank first."""
    lack = {node for node, report in standing.reports.items() if report.lacks}
    if not lack:
        return []
    out = standing.failed.keys() | standing.silent
    return [node for node in standing.by_rank if node in lack and node not in out]


def next_to_pull(standing: Standing, at_once: int) -> list[str]:
    """Return the nodes that may begin to pull now."""
    lack = lacking(standing)
    free = at_once - sum(node in standing.pulling for node in lack)
    return [node for node in lack if node not in standing.pulling][: max(free, 0)]
