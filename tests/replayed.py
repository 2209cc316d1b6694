"""What every set that a test made must stand: its events give the same decisions again."""

from __future__ import annotations

from pathlib import Path

from orchestrator.evidence.events import read_events
from orchestrator.evidence.replay import replay


def differences(folder: Path) -> list[str]:
    """Make the decisions of every job of a set, or of the sets below `folder`, again; return those that come out otherwise."""
    return [
        f"{path}: {difference}"
        for place in ("", "*/", "*/*/")  # made-up hosts beside the sets have thousands of files
        for path in sorted(folder.glob(f"{place}events-*.tsv"))
        for difference in replay(read_events(path)).differences
    ]
