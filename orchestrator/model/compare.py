"""Compare two entries."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.entry import Entry

_CONTAINER = (
    "devices",
    "groups",
    "caps",
    "security_opt",
    "ulimits",
    "shm_size",
    "network",
    "ipc",
    "uts",
)


@dataclass(frozen=True, slots=True)
class EntryDifference:
    """`kind`: `fact`, `container` or `env`. A missing value is ""."""

    kind: str
    name: str
    left: str
    right: str


def differences(left: Entry, right: Entry) -> list[EntryDifference]:
    """Return facts first, then container options, then variables by name."""
    theirs_of = right.facts(lambda fact: fact.compared)
    pairs = [
        ("fact", name, mine, theirs_of[name])
        for name, mine in left.facts(lambda fact: fact.compared).items()
    ]
    pairs += [
        ("container", name, getattr(left.container, name), getattr(right.container, name))
        for name in _CONTAINER
    ]
    ours = left.whole_env
    theirs = right.whole_env
    pairs += [("env", name, ours.get(name), theirs.get(name)) for name in sorted({*ours, *theirs})]
    return [
        EntryDifference(kind, name, _text(mine), _text(other))
        for kind, name, mine, other in pairs
        if mine != other
    ]


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ", ".join("=".join(item) if isinstance(item, tuple) else str(item) for item in value)
    return str(value)
