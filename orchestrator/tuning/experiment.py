"""Is a set one experiment? What its nodes were when each run began, what changed since, and the proof of cold caches.

Reads runs/<i>/attempt_<k>/start.tsv and node_<rank>.json (docs/tuning.md). Standard library only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ALL = "*"
_OF_NODE = ("ready_ms", "cache_before_kib", "cache_after_kib")


@dataclass(frozen=True, slots=True)
class Cache:
    """One node's caches before a run: KiB that dropping could free, before and after; None where nobody asked."""

    ready_ms: int
    before_kib: int | None = None
    after_kib: int | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """A knob that did not hold at the end of a run."""

    run: int
    attempt: int
    node: str
    knob: str
    wanted: str
    found: str
    need: str

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact that is not what it is in most runs of the set. `node` is * when all nodes of the run have the value."""

    field: str
    node: str
    run: int
    attempt: int
    value: str
    usual: str

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(slots=True)
class AttemptStart:
    """What an attempt's nodes were when it began: `facts[field][node]`, where node * is every node not named itself."""

    run: int
    attempt: int
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    caches: dict[str, Cache] = field(default_factory=dict)

    def value(self, name: str, node: str) -> str:
        """Return the value of a fact on a node, "-" where the node did not tell it."""
        values = self.facts.get(name, {})
        return values.get(node, values.get(ALL, "-"))


def attempt_starts(set_dir: Path) -> list[AttemptStart]:
    """Return what is known of every attempt of the set that got ready, in the order of runs and attempts."""
    return [
        _read_start(path, run, attempt) for path, run, attempt in _attempts(set_dir) if (path / "start.tsv").is_file()
    ]


def differences(set_dir: Path) -> list[Difference]:
    """Return every fact that differs between nodes or runs of the set: by field, node and run."""
    starts = attempt_starts(set_dir)
    found = []
    for name in dict.fromkeys(name for start in starts for name in start.facts):
        times = Counter(start.value(name, ALL) for start in starts)
        usual = times.most_common(1)[0][0]
        for start in starts:
            nodes = start.facts.get(name, {ALL: "-"})
            found += [
                Difference(name, node, start.run, start.attempt, value, usual)
                for node, value in nodes.items()
                if value != usual
            ]
    return sorted(found, key=lambda one: (one.run, one.attempt, one.field, one.node))


def drifts(set_dir: Path) -> list[Drift]:
    """Return every knob that did not hold at the end of a run."""
    found = []
    for path, run, attempt in _attempts(set_dir):
        for record in sorted(path.glob("node_*.json")):
            document = _json(record)
            for one in document.get("drift") or ():
                if isinstance(one, dict):
                    found.append(
                        Drift(
                            run,
                            attempt,
                            str(document.get("node", "")),
                            *(str(one.get(name, "")) for name in ("knob", "wanted", "found", "need")),
                        )
                    )
    return found


def _attempts(set_dir: Path) -> Iterator[tuple[Path, int, int]]:
    """Yield (folder, run, attempt), in their order."""
    keyed = []
    for path in set_dir.glob("runs/*/attempt_*"):
        run, attempt = path.parent.name, path.name.removeprefix("attempt_")
        if run.isdecimal() and attempt.isdecimal():
            keyed.append((int(run), int(attempt), path))
    for number, k, path in sorted(keyed):
        yield path, number, k


def _read_start(folder: Path, run: int, attempt: int) -> AttemptStart:
    start = AttemptStart(run, attempt)
    own: dict[str, dict[str, int]] = {}
    for line in (folder / "start.tsv").read_text(errors="replace").splitlines()[1:]:
        node, name, value = (line.split("\t", 2) + ["", ""])[:3]
        if name in _OF_NODE:
            own.setdefault(node, {})[name] = int(value) if value.lstrip("-").isdecimal() else 0
        elif name:
            start.facts.setdefault(name, {})[node] = value
    start.caches = {
        node: Cache(values.get("ready_ms", 0), values.get("cache_before_kib"), values.get("cache_after_kib"))
        for node, values in own.items()
    }
    return start


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}  # an unreadable record is a finding of those who need it
    return document if isinstance(document, dict) else {}
