"""Several nodes in few words: `node[1-7]` and `all 8 nodes`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

_NUMBERED = re.compile(r"(.*?)(\d{1,15})(\D*)", re.DOTALL)
"""Head, last number and tail of a name."""
ALL_NODES = r"(?:all \d+|both) nodes"
"""Pattern of all_of(); older records have `all 2 nodes`."""
LONGEST, MOST_NAMED = 80, 4
"""Most characters of folded names in a sentence; most names instead."""


def fold(names: Collection[str]) -> str:
    """Fold n1 n2 n3 m to `n[1-3],m`, with sorted numbers."""
    parts = {name: match.groups() for name in names if (match := _NUMBERED.fullmatch(name))}
    # n08 has two digits, so n12 belongs to the same range; n8, n9, n10 are a range without padding.
    padded = {
        (head, tail, len(number))
        for head, number, tail in parts.values()
        if number[0] == "0" and len(number) > 1
    }
    groups: dict[tuple[str, str, int], list[int]] = {}
    for name in dict.fromkeys(names):
        head, number, tail = parts.get(name, (name, "", ""))
        digits = len(number) if (head, tail, len(number)) in padded else 0
        groups.setdefault((head, tail, digits), []).extend([int(number)] if number else [])
    return ",".join(_folded(*key, sorted(numbers)) for key, numbers in groups.items())


def _folded(head: str, tail: str, digits: int, numbers: list[int]) -> str:
    if not numbers:
        return head
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = ["-".join(str(end).zfill(digits) for end in dict.fromkeys(ends)) for ends in ranges]
    inside = texts[0] if len(numbers) == 1 else f"[{','.join(texts)}]"
    return f"{head}{inside}{tail}"


def subject(nodes: Sequence[str], total: int, ranks: Mapping[str, int]) -> str:
    """Return `all 8 nodes` or `both nodes` if these are all, `nodes n[1-7]`, or `node n3 (rank
    2)`."""
    if len(nodes) == 1:
        rank = ranks.get(nodes[0])
        return f"node {nodes[0]}" + ("" if rank is None else f" (rank {rank})")
    return all_of(total) if len(nodes) == total else f"nodes {_in_short(nodes)}"


def all_of(total: int) -> str:
    """Return `both nodes` or `all 8 nodes`. `total`: at least two."""
    return "both nodes" if total == 2 else f"all {total} nodes"


def _in_short(nodes: Sequence[str]) -> str:
    folded = fold(nodes)
    if len(folded) <= LONGEST:
        return folded
    return f"{fold(nodes[:MOST_NAMED])} and {len(nodes) - MOST_NAMED} more"


def ranked(nodes: Iterable[str]) -> dict[str, int]:
    """Return node -> rank."""
    return {node: rank for rank, node in enumerate(nodes)}


def by_text(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return text -> nodes, from (node, text)."""
    nodes: dict[str, list[str]] = {}
    for node, text in pairs:
        nodes.setdefault(text, []).append(node)
    return nodes
