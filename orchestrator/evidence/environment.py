"""The environment of a set's runs as it was evaluated."""

from __future__ import annotations

from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.kernel.settings import declared, shown

LARGEST = 1 << 20


def evaluated(evidence: SetEvidence) -> dict[str, str]:
    """Return the values in a set's environment.sh; {} when there is none."""
    text = evidence.findings.text(evidence.layout.environment, LARGEST)
    return {name: shown(value) for name, value in declared(text).items()}
