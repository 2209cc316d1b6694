"""A set's logs compared with its environment and descriptor.

The bundle's `workload.json` maps keys of the log to variables (values in `environment.sh`) and
facts of the descriptor. Differences do not change a score: the rules know neither.
"""

from __future__ import annotations

import math

from orchestrator.mllog.compliance import LogFinding
from orchestrator.onnode.kernel.regular import MAX_BYTES
from orchestrator.onnode.kernel.settings_file import declared, shown
from orchestrator.words import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from orchestrator.mllog.reader import Log, Record
    from orchestrator.mllog.source import RunFile, Source

DIFFERS = "differs"
"""Severity of a difference."""

SEED = "SEED"
"""The variable with a different value in each run."""


class Expected:
    """A key's expected value; `variable` or `fact` is "" if not compared."""

    __slots__ = ("fact", "form", "key", "value", "variable")

    def __init__(self, entry: dict[str, Any]) -> None:
        self.key, self.variable, self.fact, self.value, self.form = (
            str(entry.get(name) or "") for name in ("key", "env", "fact", "value", "form")
        )


def differences(source: Source, logs: list[tuple[RunFile, Log]]) -> list[LogFinding]:
    """Return the differences, a finding for all runs with the same value."""
    entries = source.workload.get("logged")
    expected = (
        [Expected(entry) for entry in entries if isinstance(entry, dict)]
        if isinstance(entries, list)
        else []
    )
    if not expected:
        return []
    content = source.walk.content(f"{source.directory}/environment.sh", MAX_BYTES)
    environment = {name: shown(value) for name, value in declared(content).items()}
    differing: dict[tuple[str, str], list[tuple[RunFile, Log, Record]]] = {}
    for run, log in logs:
        given = {**environment, SEED: "" if run.seed is None else str(run.seed)}
        for entry in expected:
            for record, text in _compare(entry, log, given):
                differing.setdefault((entry.key, text), []).append((run, log, record))
    return [_finding(key, text, records, len(logs)) for (key, text), records in differing.items()]


def _finding(
    key: str, text: str, records: list[tuple[RunFile, Log, Record]], runs: int
) -> LogFinding:
    run, log, record = records[0]
    share = "" if len(records) == runs == 1 else f" (in {len(records)} of {count(runs, 'run')})"
    return LogFinding(run.name, log.line(record), key, "described", f"{text}{share}", DIFFERS)


def _compare(entry: Expected, log: Log, given: dict[str, str]) -> list[tuple[Record, str]]:
    """Return the key's record with each difference; [] if it is not logged."""
    record = log.last(entry.key)
    if record is None:
        return []
    misfits = []
    value = given.get(entry.variable, "")
    if value and not any(
        _same(each.value, entry.form.replace("{}", value)) for each in log.with_key(entry.key)
    ):
        said = (
            "the run was given the seed "
            if entry.variable == SEED
            else f"the environment says {entry.variable}="
        )
        misfits.append((record, f"logged is {_short(record.value)}, and {said}{_short(value)}"))
    if entry.value and not any(_same(each.value, entry.value) for each in log.with_key(entry.key)):
        logged = _short(record.value)
        text = f"logged is {logged}, and the descriptor says {entry.fact} {entry.value}"
        misfits.append((record, text))
    return misfits


def _short(value: Any) -> str:
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _same(logged: Any, wanted: str) -> bool:
    try:
        return math.isclose(float(logged), float(wanted), rel_tol=1e-9)
    except (TypeError, ValueError, OverflowError):
        return str(logged).strip() == wanted.strip()
