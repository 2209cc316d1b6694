"""The runs' evaluated environment: each variable's place in the bundle and its origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.evidence.bundle import edited, evaluated, origins, places
from orchestrator.report.model import Variable

if TYPE_CHECKING:
    from orchestrator.evidence.sets import SetEvidence


def read_environment(evidence: SetEvidence) -> tuple[tuple[Variable, ...], str]:
    """Return the variables by name, and a note about their origins."""
    values = evaluated(evidence)
    if not values:
        return (), "the set has no environment.sh yet"
    set_by, given_by = places(evidence), origins(evidence)
    variables = tuple(
        Variable(name, value, set_by.get(name, ""), given_by.get(name, ""))
        for name, value in sorted(values.items())
    )
    if not given_by:
        return (
            variables,
            ("the origins of the variables are not recorded: the bundle is of an older version"),
        )
    changed = ", ".join(edited(evidence))
    return (
        variables,
        f"edited after the bundle was made, so a value may be another one: {changed}"
        if changed
        else "",
    )
