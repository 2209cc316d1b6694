"""The evaluated environment of a set's runs."""

from __future__ import annotations

from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.kernel.settings_file import declared, shown

LARGEST = 1 << 20


def evaluated(evidence: SetEvidence) -> dict[str, str]:
    """Return the values in a set's environment.sh; {} without the file."""
    text = evidence.findings.text(evidence.layout.environment, LARGEST)
    return {name: shown(value) for name, value in declared(text).items()}
