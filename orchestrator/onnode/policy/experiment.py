"""Is a set one experiment? Compares a job's nodes with the runs that count.

Image and content of the containers must not change; another driver or firmware is a warning. A
missing value is no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from .experiment_facts import ALL, INSIDE, is_content, label, of_run, runs_text

Facts = Mapping[str, Mapping[str, str]]
"""Field -> node (* for most) -> value."""
Known = Mapping[str, Mapping[str, Sequence[int]]]
"""Field -> value -> runs that count and had it."""

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
