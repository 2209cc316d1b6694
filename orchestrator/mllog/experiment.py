"""Whether the runs of a set are one experiment: image and content of the containers are equal.

Reads each run's start.tsv and the member `inside` of its state. Older sets have not recorded the
content; a missing value is no difference.
"""

from __future__ import annotations

import os
from collections import Counter

from orchestrator.mllog.compliance import LogFinding
from orchestrator.mllog.source import Source, read_json
from orchestrator.onnode.kernel.regular import read_bytes
from orchestrator.onnode.policy.experiment import (
    ALL,
    INSIDE,
    Facts,
    label,
    list_differences,
    of_run,
    parse_facts,
    runs_text,
)

DIFFERS = "differs"
_LARGEST = 1 << 20
_LARGEST_LIST = 8 << 20
_SHOWN = 19
"""Characters of a value: `sha256:` and twelve digits."""

Places = dict[tuple[str, str], dict[int, list[str]]]
"""(field, value) -> run -> nodes, * for most."""


def changes(source: Source) -> list[LogFinding]:
    """Return a finding for each value that most runs or nodes do not have."""
    files = {run.number: run.name for run in source.files if run.number is not None}
    places: Places = {}
    for number in files:
        for facts in _facts(source.directory, number):
            for field, by_node in facts.items():
                for node, value in by_node.items():
                    places.setdefault((field, value), {}).setdefault(number, []).append(node)
    found = []
    for field in dict.fromkeys(field for field, _ in places):
        values = {value: runs for (name, value), runs in places.items() if name == field}
        weights = Counter({value: _weight(runs) for value, runs in values.items()})
        usual = weights.most_common(1)[0][0]
        for value, runs in values.items():
            if value != usual:
                text = _sentence(source.directory, field, value, usual, runs, values[usual])
                key = field.removeprefix("end ")
                found.append(LogFinding(files[min(runs)], 0, key, "experiment", text, DIFFERS))
    return found


def _weight(runs: dict[int, list[str]]) -> int:
    """Return how many runs have a value on most of their nodes."""
    return sum(ALL in nodes for nodes in runs.values())


def _facts(directory: str, number: int) -> list[Facts]:
    """Return the facts of the run's attempt that counts: at its start, and at its end."""
    folder = os.path.join(directory, "runs", str(number))
    state = read_json(os.path.join(folder, "state.json"))
    try:
        path = os.path.join(folder, f"attempt_{state.get('attempt')}", "start.tsv")
        start = parse_facts(read_bytes(path, _LARGEST).decode("utf-8", "replace"))
    except OSError:
        start = {}
    compared = {
        name: values for name, values in start.items() if name == "image" or name.startswith(INSIDE)
    }
    inside = state.get("inside")
    end = of_run(inside) if isinstance(inside, dict) else {}
    return [compared, {f"end {name}": values for name, values in end.items()}]


def _sentence(
    directory: str,
    field: str,
    value: str,
    usual: str,
    runs: dict[int, list[str]],
    others: dict[int, list[str]],
) -> str:
    name = field.removeprefix("end ")
    nodes = sorted({node for some in runs.values() for node in some} - {ALL})
    where = f" on {', '.join(nodes[:8])}" if nodes else ""
    when = " at the end of" if field != name else " in"
    elsewhere = runs_text(list(others))
    text = (
        f"{label(name)} {value[:_SHOWN]}{when} {runs_text(list(runs))}{where}, "
        f"{usual[:_SHOWN]} in {elsewhere}"
    )
    detail = difference_of(directory, name, usual, value)
    return f"{text}: {detail}" if detail else text


def difference_of(directory: str, field: str, old: str, new: str) -> str:
    """Return how the lists of two values differ; "" if they are not recorded."""
    part = field.removeprefix(INSIDE)
    lists = []
    for value in (old, new):
        if part == field or not value.isalnum():
            return ""
        try:
            path = os.path.join(directory, "inside", f"{part}-{value}.tsv")
            lists.append(read_bytes(path, _LARGEST_LIST).decode("utf-8", "replace"))
        except (OSError, ValueError):
            return ""
    return list_differences(*lists)
