"""The environment of a set's runs as it was evaluated, with each variable's place in the bundle and its document."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.evidence.bundle import inputs, places
from orchestrator.evidence.environment import evaluated
from orchestrator.report.model import Variable

if TYPE_CHECKING:
    from orchestrator.evidence.sets import SetEvidence
    from orchestrator.model import Entry


def read_environment(evidence: SetEvidence, described: dict[str, Any]) -> tuple[tuple[Variable, ...], str]:
    """(variables by name, a note about what is known of their origins)"""
    values = evaluated(evidence)
    if not values:
        return (), "the set has no environment.sh yet"
    set_by = places(evidence)
    origins, note = _origins(evidence, described, values)
    return tuple(
        Variable(name, value, set_by.get(name, ""), origins.get(name, "")) for name, value in sorted(values.items())
    ), note


def _origins(evidence: SetEvidence, described: dict[str, Any], values: dict[str, str]) -> tuple[dict[str, str], str]:
    """Name -> layer and document, as far as the catalogue's documents are those that the bundle was made from."""
    entry = _entry(described)
    if entry is None:
        return {}, "the catalogue at hand does not have this system and workload: only places in the bundle are shown"
    used = inputs(evidence)
    same = {name for name in entry.files if hashlib.sha256(Path(name).read_bytes()).hexdigest() in used}
    changed = sorted(Path(name).name for name in entry.files if name not in same)
    known = {str(Path(name).resolve()) for name in same}
    origins = {name: _origin(entry, name, value, known, all_same=not changed) for name, value in values.items()}
    note = f"changed since the bundle was made, so origins in it are left out: {', '.join(changed)}" if changed else ""
    return origins, note


def _entry(described: dict[str, Any]) -> Entry | None:
    from orchestrator.errors import OrchestratorError
    from orchestrator.model import load_entry

    system, workload, round_ = (str(described.get(name) or "") for name in ("system", "workload", "round"))
    if not system or not workload or "/" in system + workload:
        return None
    try:
        return load_entry(system, workload, round=round_ or None)
    except OrchestratorError:
        return None


def _origin(entry: Entry, name: str, value: str, known: set[str], *, all_same: bool) -> str:
    from orchestrator.model.values import Text

    given = entry.whole_env.get(name)
    if given is None or (isinstance(given, Text) and given.text != value):
        return "site or command line" if all_same else ""
    origin = entry.origins[name]
    path = Path(origin.file)
    return f"{origin.layer}: {path.parent.name}/{path.name}:{origin.line}" if str(path.resolve()) in known else ""
