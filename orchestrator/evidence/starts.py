"""Is a set one experiment? Its nodes' facts at the start of each run, later changes, and the proof
of cold caches.

Reads runs/<i>/attempt_<k>/start.tsv (docs/tuning.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.kernel.events import number

ALL = "*"
_OF_NODE = ("ready_ms", "cache_before_kib", "cache_after_kib")


@dataclass(frozen=True, slots=True)
class Cache:
    """One node's caches before a run: KiB that dropping could free, before and after; None if not
    measured."""

    ready_ms: int
    before_kib: int | None = None
    after_kib: int | None = None


class FactDifference(NamedTuple):
    """A fact that differs from most runs of the set. `node` is * for all nodes of the run."""

    field: str
    node: str
    run: int
    attempt: int
    value: str
    usual: str

    def to_json(self) -> dict[str, object]:
        return self._asdict()


@dataclass(frozen=True, slots=True)
class AttemptStart:
    """The facts of an attempt's nodes at its start: `facts[field][node]`; * stands for every node
    without a value."""

    run: int
    attempt: int
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    caches: dict[str, Cache] = field(default_factory=dict)

    def value(self, name: str, node: str) -> str:
        values = self.facts.get(name, {})
        return values.get(node, values.get(ALL, "-"))


def attempt_starts(evidence: SetEvidence) -> list[AttemptStart]:
    """Return the facts of every attempt that got ready, in order."""
    texts = (
        (run, attempt, evidence.findings.text(evidence.layout.start_table(run, attempt)))
        for run, attempt in evidence.tried
    )
    return [_start(run, attempt, text) for run, attempt, text in texts if text]


def differences(starts: Sequence[AttemptStart]) -> list[FactDifference]:
    """Return every fact that differs between a set's nodes or runs, by field, node and run."""
    different = []
    for name in dict.fromkeys(name for start in starts for name in start.facts):
        times = Counter(start.value(name, ALL) for start in starts)
        usual = times.most_common(1)[0][0]
        for start in starts:
            nodes = start.facts.get(name, {ALL: "-"})
            different += [
                FactDifference(name, node, start.run, start.attempt, value, usual)
                for node, value in nodes.items()
                if value != usual
            ]
    return sorted(different, key=lambda it: (it.run, it.attempt, it.field, it.node))


def _start(run: int, attempt: int, text: str) -> AttemptStart:
    facts: dict[str, dict[str, str]] = {}
    of_nodes: dict[str, dict[str, int]] = {}
    for line in text.splitlines()[1:]:
        node, name, value = (line.split("\t", 2) + ["", ""])[:3]
        if name in _OF_NODE:
            of_nodes.setdefault(node, {})[name] = number(value) or 0
        elif name:
            facts.setdefault(name, {})[node] = value
    caches = {
        node: Cache(
            values.get("ready_ms", 0), values.get("cache_before_kib"), values.get("cache_after_kib")
        )
        for node, values in of_nodes.items()
    }
    return AttemptStart(run, attempt, facts, caches)
