"""Facts of a set's experiment: image and content of the containers, versions on the nodes.

`experiment` judges them before and after a run; a score compares them again.
"""

from __future__ import annotations

from ..kernel.layout import CONTENT_PARTS

TYPE_CHECKING = False  # importing typing is slow
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALL = "*"
INSIDE = "inside."
"""Prefix of facts about the content of containers; a part follows."""
_WARNED = ("driver", "gpu.firmware.", "gpu.vbios", "nic.firmware", "kernel", "bios", "rocm")
_MOST_LISTED = 4


def label(field: str) -> str:
    """For people."""
    part = field[len(INSIDE) :] if field.startswith(INSIDE) else ""
    return f"{part} of the containers:" if part else f"{field} is"


def runs_text(runs: Sequence[int]) -> str:
    """Return `run 3` or `runs 1 to 4, 7`."""
    parts: list[list[int]] = []
    for run in sorted(set(runs)):
        if parts and parts[-1][-1] == run - 1:
            parts[-1].append(run)
        else:
            parts.append([run])
    texts = [f"{some[0]} to {some[-1]}" if len(some) > 1 else str(some[0]) for some in parts]
    return f"run{'s' if len(set(runs)) > 1 else ''} {', '.join(texts)}"


def parse_facts(text: str) -> dict[str, dict[str, str]]:
    """Return the compared facts of a start.tsv."""
    facts: dict[str, dict[str, str]] = {}
    for row in text.splitlines()[1:]:
        node, field, value = (row.split("\t", 2) + ["", ""])[:3]
        if is_compared(field) and value not in ("", "-"):
            facts.setdefault(field, {})[node] = value
    return facts


def is_content(field: str) -> bool:
    """Return whether a fact is the image or content of a container."""
    return field == "image" or field.startswith(INSIDE)


def is_compared(field: str) -> bool:
    return is_content(field) or field.startswith(_WARNED)


def of_run(inside: Mapping[str, object]) -> dict[str, dict[str, str]]:
    """Return the facts of a run's state. `inside`: node -> part -> hash."""
    facts: dict[str, dict[str, str]] = {}
    for node, parts in inside.items():
        for part, value in parts.items() if isinstance(parts, dict) else ():
            if part in CONTENT_PARTS and isinstance(value, str):
                facts.setdefault(INSIDE + part, {})[node] = value
    return facts


def list_differences(old: str, new: str) -> str:
    """Compare two lists (lines of name, tab, value): `numpy 1.26.4 -> 2.0.0`."""
    before, after = _entries(old), _entries(new)
    texts = [
        f"{name} {_shown(before.get(name))} -> {_shown(after.get(name))}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    more = f" and {len(texts) - _MOST_LISTED} more" if len(texts) > _MOST_LISTED else ""
    return ", ".join(texts[:_MOST_LISTED]) + more


def _entries(text: str) -> dict[str, str]:
    return {line.partition("\t")[0]: line.partition("\t")[2] for line in text.splitlines()}


def _shown(value: str | None) -> str:
    return "none" if value is None else value[:60]
