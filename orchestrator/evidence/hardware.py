"""The nodes' own hardware records: nodes/<node>/hardware.json."""

from __future__ import annotations

from collections.abc import Collection

from orchestrator.evidence.sets import SetEvidence


def captured(evidence: SetEvidence, members: Collection[str]) -> dict[str, str]:
    """Return the values of `members` that are equal on all nodes with a value."""
    answers: dict[str, set[str]] = {}
    for node in evidence.node_folders:
        for name, value in evidence.findings.json(
            evidence.layout.node(node) / "hardware.json"
        ).items():
            if name in members and isinstance(value, (str, int, float)) and str(value):
                answers.setdefault(name, set()).add(str(value))
    return {name: values.pop() for name, values in answers.items() if len(values) == 1}
