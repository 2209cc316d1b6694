"""`extends`: a workload, preparation or round starts from another, merged key by key.

Mappings merge; other values replace, and null removes a key. Each key keeps its document and line.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from orchestrator.model.source import Document, Key

EXTENDS = "extends"
_ENVIRONMENTS = ("env", "logged", "offline")
"""Here null is a value: composition removes the variable, or the log's key. Not in `launch`, which
it does not compose."""
_OF_THE_ROUND_ALONE = ("source", "note", EXTENDS)
"""Statements that do not apply to another round."""


def overlaid(base: Document, mine: Document) -> Document:
    """Put `mine` over all of the resolved `base`."""
    inherited = {name: value for name, value in base.data.items() if name != EXTENDS}
    replaced = [("rounds", name) for name in _extending(mine)]
    origins = _Origins({}, {})
    data = _merge(origins, base, inherited, mine, mine.data, (), (), tuple(replaced))
    origins.lines[()] = mine.lines.get((), 1)
    return Document(mine.path, data, origins.lines, mine.problems, origins.homes)


def with_rounds(document: Document) -> Document:
    """Resolve rounds that extend others; report problems in the document."""
    rounds = document.data.get("rounds")
    if not isinstance(rounds, dict):
        return document
    waiting = _extending(document)
    done: set[str] = set()
    for name in waiting:
        document = _resolved(document, name, waiting, done, [])
    return document


def _extending(document: Document) -> dict[str, str]:
    rounds = document.data.get("rounds")
    if not isinstance(rounds, dict):
        return {}
    return {
        name: part[EXTENDS]
        for name, part in rounds.items()
        if isinstance(part, dict)
        and isinstance(part.get(EXTENDS), str)
        and document.origin(("rounds", name, EXTENDS))[0].path == document.path
    }


def _resolved(
    document: Document, name: str, waiting: dict[str, str], done: set[str], chain: list[str]
) -> Document:
    key: Key = ("rounds", name)
    base = waiting.get(name)
    if name in done or base is None:
        return document
    if base == name:
        document.add(
            (*key, EXTENDS),
            f"{name} extends itself; leave it out: a round of the workload that this document "
            "extends is inherited under the same name",
        )
        done.add(name)
        return document
    if base in [*chain, name]:
        circle = " extends ".join([*[*chain, name][[*chain, name].index(base) :], base])
        document.add((*key, EXTENDS), f"a circle: {circle}")
        done.update([*chain, name])
        return document
    rounds = document.data["rounds"]
    if base not in rounds:
        has = ", ".join(sorted(other for other in rounds if other != name))
        document.add((*key, EXTENDS), f"there is no round {base} to extend; there are: {has}")
        done.add(name)
        return document
    document = _resolved(document, base, waiting, done, [*chain, name])
    if name in done:
        return document
    done.add(name)
    rounds = document.data["rounds"]
    if not isinstance(rounds[base], dict):
        return document
    inherited = {
        part: value for part, value in rounds[base].items() if part not in _OF_THE_ROUND_ALONE
    }
    origins = _Origins(dict(document.lines), dict(document.homes))
    part = _merge(origins, document, inherited, document, rounds[name], ("rounds", base), key)
    data = {**document.data, "rounds": {**rounds, name: part}}
    return Document(document.path, data, origins.lines, document.problems, origins.homes)


class _Origins(NamedTuple):
    """`lines` and `homes` of a merged Document."""

    lines: dict[Key, int]
    homes: dict[Key, tuple[Document, Key]]

    def note(self, key: Key, origin: tuple[Document, Key]) -> None:
        self.lines[key], self.homes[key] = 0, origin


def _merge(
    origins: _Origins,
    base: Document,
    inherited: Any,
    mine: Document,
    given: Any,
    base_key: Key,
    key: Key,
    replaced: tuple[Key, ...] = (),
) -> Any:
    if not (isinstance(inherited, dict) and isinstance(given, dict)) or key in replaced:
        _adopt(origins, mine, given, key, key)
        return given
    origins.note(key, mine.origin(key))
    data: dict[str, Any] = {}
    keeps_null = len(key) > 1 and key[-1] in _ENVIRONMENTS and key[-2] != "launch"
    for name in dict.fromkeys([*inherited, *given]):
        here, there = (*key, name), (*base_key, name)
        if name not in given:
            _adopt(origins, base, inherited[name], there, here)
            data[name] = inherited[name]
        elif given[name] is None and name in inherited and not keeps_null:
            continue
        elif name not in inherited:
            _adopt(origins, mine, given[name], here, here)
            data[name] = given[name]
        else:
            data[name] = _merge(
                origins, base, inherited[name], mine, given[name], there, here, replaced
            )
    return data


def _adopt(origins: _Origins, source: Document, value: Any, there: Key, here: Key) -> None:
    """Record `value`, and all below it, as from `there` in `source`."""
    origins.note(here, source.origin(there))
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for name, part in items:
        _adopt(origins, source, part, (*there, name), (*here, name))


def chain_text(documents: list[Document]) -> str:
    """Format a circle of `extends`, with lines."""
    return " extends ".join(
        f"{document.shown_path}:{document.line((EXTENDS,))}" for document in documents
    )
