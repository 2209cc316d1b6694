"""The logs of a set compared with its environment and its descriptor.

The bundle's `workload.json` maps keys of the log to variables (values in `environment.sh`) and
facts of the descriptor. Differences do not change a score: the rules know neither. Either the code
ignored a value, or somebody replaced the descriptor's.
"""

from __future__ import annotations

import math
import os

from orchestrator.mllog.compliance import LogFinding
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

LARGEST = 1 << 20
"""Bytes read of environment.sh."""


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
        [Expected(one) for one in entries if isinstance(one, dict)]
        if isinstance(entries, list)
        else []
    )
    if not expected:
        return []
    environment = _environment(os.path.join(source.directory, "environment.sh"))
    told: dict[tuple[str, str], list[tuple[RunFile, Log, Record]]] = {}
    for run, log in logs:
        given = {**environment, SEED: "" if run.seed is None else str(run.seed)}
        for one in expected:
            for record, text in _compare(one, log, given):
                told.setdefault((one.key, text), []).append((run, log, record))
    return [_finding(key, text, found, len(logs)) for (key, text), found in told.items()]


def _finding(
    key: str, text: str, found: list[tuple[RunFile, Log, Record]], runs: int
) -> LogFinding:
    run, log, record = found[0]
    share = "" if len(found) == runs == 1 else f" (in {len(found)} of {count(runs, 'run')})"
    return LogFinding(run.name, log.line(record), key, "described", f"{text}{share}", DIFFERS)


def _compare(one: Expected, log: Log, given: dict[str, str]) -> list[tuple[Record, str]]:
    """Return the key's record with each difference in words; [] if it is not logged."""
    record = log.last(one.key)
    if record is None:
        return []
    found = []
    value = given.get(one.variable, "")
    if value and not any(
        _same(each.value, one.form.replace("{}", value)) for each in log.with_key(one.key)
    ):
        said = (
            "the run was given the seed "
            if one.variable == SEED
            else f"the environment says {one.variable}="
        )
        found.append((record, f"logged is {_short(record.value)}, and {said}{_short(value)}"))
    if one.value and not any(_same(each.value, one.value) for each in log.with_key(one.key)):
        found.append(
            (
                record,
                f"logged is {_short(record.value)}, and the descriptor says {one.fact} {one.value}",
            )
        )
    return found


def _short(value: Any) -> str:
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _same(logged: Any, wanted: str) -> bool:
    try:
        return math.isclose(float(logged), float(wanted), rel_tol=1e-9)
    except (TypeError, ValueError, OverflowError):
        return str(logged).strip() == wanted.strip()


def _environment(path: str) -> dict[str, str]:
    try:
        # Opening a pipe would wait, and a large file would fill the memory.
        if not os.path.isfile(path) or os.path.getsize(path) > LARGEST:
            return {}
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return {name: shown(value) for name, value in declared(file.read()).items()}
    except OSError:
        return {}
