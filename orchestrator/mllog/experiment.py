"""Check that a set's runs had equal bundles, images and contents of containers.

Reads each run's start.tsv and the member `inside` of its state. A missing value is no difference:
older sets lack the content.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.mllog.compliance import LogFinding
from orchestrator.mllog.source import Source, file_names
from orchestrator.onnode.kernel.regular import MAX_BYTES
from orchestrator.onnode.kernel.walk import SetWalk
from orchestrator.onnode.policy.experiment_facts import (
    ALL,
    INSIDE,
    label,
    list_differences,
    of_run,
    parse_facts,
    runs_text,
)

DIFFERS = "differs"
_SHOWN = 19
"""Characters of a value: `sha256:` and twelve digits."""

Places = dict[tuple[str, str], dict[int, tuple[str, ...]]]
"""(field, value) -> run -> nodes; () for all nodes of the run."""


def changes(source: Source) -> list[LogFinding]:
    """Return a finding for each unusual value."""
    files = {run.number: run.name for run in source.files if run.number is not None}
    places: Places = {}
    for number in files:
        for field, value, nodes in _values(source.walk, number):
            places.setdefault((field, value), {})[number] = nodes
    findings = []
    for field in dict.fromkeys(field for field, _ in places):
        values = {value: runs for (name, value), runs in places.items() if name == field}
        usual = max(values, key=lambda value: _weight(values[value]))
        for value, runs in values.items():
            if value != usual:
                text = _sentence(source.walk, field, value, usual, runs, values[usual])
                key = field.removeprefix("end ")
                findings.append(LogFinding(files[min(runs)], 0, key, "experiment", text, DIFFERS))
    return findings + _edits(source, files)


def _edits(source: Source, files: dict[int, str]) -> list[LogFinding]:
    states: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for run, edits in source.edits.items():
        states.setdefault(tuple(sorted(edits.items())), []).append(run)
    findings = []
    usual = max(states, key=lambda state: len(states[state]), default=())
    for state, runs in states.items():
        if state != usual:
            names = file_names({**dict(state), **dict(usual)})
            text = f"was edited between {runs_text(runs)} and {runs_text(states[usual])}: {names}"
            findings.append(LogFinding(files[min(runs)], 0, "bundle", "experiment", text, DIFFERS))
    return findings


def _weight(runs: dict[int, tuple[str, ...]]) -> float:
    """Count a value's runs; a share of the nodes counts half."""
    return sum(0.5 if nodes else 1.0 for nodes in runs.values())


def _values(walk: SetWalk, number: int) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield field, value and nodes of the counting attempt, at its start and (`end FIELD`) its
    end."""
    folder = walk.run(number)
    state = walk.json(f"{folder}/state.json")
    named = state.get("nodes")
    nodes = [str(node) for node in named] if isinstance(named, list) else []
    table = walk.text(f"{folder}/attempt_{state.get('attempt')}/start.tsv", MAX_BYTES)
    start = parse_facts(table)
    inside = state.get("inside")
    end = of_run(inside) if isinstance(inside, dict) else {}
    facts = {name: values for name, values in start.items() if name == "image"}
    facts.update({f"end {name}": values for name, values in end.items()})
    for field, values in facts.items():
        by_value: dict[str, list[str]] = {}
        for node in nodes or [ALL]:
            if value := values.get(node) or values.get(ALL):
                by_value.setdefault(value, []).append(node)
        for value, some in by_value.items():
            yield field, value, () if len(some) == len(nodes or [ALL]) else tuple(some)


def _sentence(
    walk: SetWalk,
    field: str,
    value: str,
    usual: str,
    runs: dict[int, tuple[str, ...]],
    others: dict[int, tuple[str, ...]],
) -> str:
    name = field.removeprefix("end ")
    nodes = sorted({node for some in runs.values() for node in some})
    where = f" on {', '.join(nodes[:8])}" if nodes else ""
    when = " at the end of" if field != name else " in"
    elsewhere = runs_text([run for run, some in others.items() if not some] or list(others))
    text = (
        f"{label(name)} {value[:_SHOWN]}{when} {runs_text(list(runs))}{where}, "
        f"{usual[:_SHOWN]} in {elsewhere}"
    )
    detail = difference_of(walk, name, usual, value)
    return f"{text}: {detail}" if detail else text


def difference_of(walk: SetWalk, field: str, old: str, new: str) -> str:
    """Return the differences between two values' lists; "" if not recorded."""
    part = field.removeprefix(INSIDE)
    lists = []
    for value in (old, new):
        if part == field or not value.isalnum():
            return ""
        path = f"{walk.root}/inside/{part}-{value}.tsv"
        text = walk.text(path, MAX_BYTES)
        if not text and not walk.has_file(path):
            return ""
        lists.append(text)
    return list_differences(*lists)
