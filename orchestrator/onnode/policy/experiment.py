"""Is a set one experiment? Compares a job's nodes with the runs that count.

Image and content of the containers must not change; another driver or firmware is a warning. A
missing value is no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ..kernel.layout import CONTENT_PARTS

Facts = Mapping[str, Mapping[str, str]]
"""Field -> node (* for most) -> value."""
Known = Mapping[str, Mapping[str, Sequence[int]]]
"""Field -> value -> runs that count and had it."""

ALL = "*"
INSIDE = "inside."
"""Prefix of facts about the content of containers; a part follows."""
_WARNED = ("driver", "gpu.firmware.", "gpu.vbios", "nic.firmware", "kernel", "bios", "rocm")
_MOST_LISTED = 4
MOST_TOLD = 8


def usual(values: Iterable[str]) -> str:
    """Return the most frequent value, the first of several; "" without values."""
    times = Counter(values)
    return max(times, key=times.__getitem__, default="")


class FactChange(NamedTuple):
    """A fact new to the runs that count. `nodes`: () for all; `before`: the usual value, in
    `runs`."""

    field: str
    nodes: tuple[str, ...]
    value: str
    before: str
    runs: tuple[int, ...]

    @property
    def is_refused(self) -> bool:
        return is_content(self.field)

    @property
    def text(self) -> str:
        where = f"on {', '.join(self.nodes)}" if self.nodes else "on all nodes"
        return f"{label(self.field)} {self.value} {where}, {self.before} in {runs_text(self.runs)}"


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


def known(runs: Iterable[tuple[int, Facts]]) -> dict[str, dict[str, list[int]]]:
    places: dict[str, dict[str, list[int]]] = {}
    for run, facts in runs:
        for field, values in facts.items():
            for value in dict.fromkeys(values.values()):
                places.setdefault(field, {}).setdefault(value, []).append(run)
    return places


def folded(reports: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return node -> part -> hash: most frequent values at *, others by node."""
    fields = list(dict.fromkeys(field for facts in reports.values() for field in facts))
    most = {
        field: usual(facts[field] for facts in reports.values() if field in facts)
        for field in fields
    }
    by_node = {
        node: {field: value for field, value in facts.items() if value != most[field]}
        for node, facts in reports.items()
    }
    return {ALL: most, **{node: facts for node, facts in by_node.items() if facts}} if most else {}


def changes(now: Mapping[str, Mapping[str, str]], before: Known) -> list[FactChange]:
    """Return facts new to the runs that count. `now`: node -> field -> value."""
    differing = []
    for field, values in before.items():
        nodes: dict[str, list[str]] = {}
        have = [node for node, facts in now.items() if facts.get(field, "-") not in ("", "-")]
        for node in have:
            if now[node][field] not in values:
                nodes.setdefault(now[node][field], []).append(node)
        for value, some in nodes.items():
            best = max(values, key=lambda other: len(values[other]), default="")
            every = () if len(some) == len(now) else tuple(some)
            differing.append(FactChange(field, every, value, best, tuple(values.get(best, ()))))
    return differing


class Verdict(NamedTuple):
    """`problem`: why no run starts, or ""."""

    problem: str
    warnings: list[str]


def judge_start(now: Mapping[str, Mapping[str, str]], before: Known, policy: str) -> Verdict:
    """Decide before a run on new nodes. `policy`: the setting CHANGES; `flag` allows them."""
    differences = changes(now, before)
    refused = [change.text for change in differences if change.is_refused]
    warned = [change.text for change in differences if not change.is_refused]
    warnings = [f"not what earlier runs had: {listed(warned)}"] if warned else []
    text = f"not the experiment of the runs that count: {listed(refused)}" if refused else ""
    if text and policy == "flag":
        return Verdict("", [f"{text} (allowed)", *warnings])
    return Verdict(text, warnings)


def judge_end(
    run: int,
    inside: Mapping[str, Mapping[str, str]],
    before: Known,
    differences: Callable[[str, str, str], str],
) -> str:
    """Return how a run's containers (node -> part -> hash) differ from earlier runs or each other,
    or "". `differences`: texts for two values of a field."""
    now = {
        node: {INSIDE + part: sha for part, sha in parts.items()} for node, parts in inside.items()
    }
    expected = before or known([(run, of_run({ALL: folded(inside).get(ALL, {})}))])
    texts = []
    for change in changes(now, expected):
        detail = differences(change.field, change.before, change.value)
        texts.append(f"{change.text}: {detail}" if detail else change.text)
    return f"run {run} is not the experiment of the other runs: {listed(texts)}" if texts else ""


def listed(texts: Sequence[str], most: int = MOST_TOLD) -> str:
    more = f"; and {len(texts) - most} more" if len(texts) > most else ""
    return "; ".join(texts[:most]) + more


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
