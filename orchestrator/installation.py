"""How this command was installed."""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata
from pathlib import Path

PACKAGE = "mlperf-orchestrator"


def source() -> str:
    """Return an address, or the package's name on an index."""
    try:
        origin = json.loads(metadata.distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return PACKAGE
    url = str(origin.get("url") or PACKAGE)
    return "git+" + url if "vcs_info" in origin else url


def is_of_uvx() -> bool:
    """True under uvx: the command is on its PATH, not on the user's."""
    return bool(os.environ.get("UV")) and Path(sys.prefix).parent.name.startswith("archive-")
