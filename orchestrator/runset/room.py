"""The error of a full log directory."""

from __future__ import annotations

import errno
from pathlib import Path

from orchestrator.errors import Fix, SetError
from orchestrator.words import quoted


def no_room(error: OSError, what: str, log_dir: Path) -> SetError | None:
    """Return the error if storage or quota are full."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    from orchestrator.evidence.own_causes import FILLS  # a slow import, rarely needed

    folder = quoted(log_dir)
    limits = "quota -s" if error.errno == errno.EDQUOT else f"df -h {folder}"
    return SetError(
        f"{what}: {error.strerror or error}",
        hint=(
            "make room: `orchestrator rm` moves sets to .trash there, and rm -r of that frees the "
            "space; the command below shows the largest folders"
        ),
        fix=Fix(f"{limits}; {FILLS.format(log_dir=folder)}"),
    )
