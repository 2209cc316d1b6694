"""The way this command was installed."""

from __future__ import annotations

import json
import os
import shlex
import sys
from importlib import metadata
from pathlib import Path

from orchestrator.words import quoted

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


def install_command(requirement: str, *, newer: bool = False) -> str:
    """Return the command that adds a package, by uv, pipx or pip. `newer`: replace an old one."""
    prefix = Path(sys.prefix)
    if (prefix / "pipx_metadata.json").is_file():
        command = ["pipx", "inject", *(["--force"] if newer else []), PACKAGE]
    elif (prefix / "uv-receipt.toml").is_file():
        return f"uv tool install --force --with {quoted(requirement)} {quoted(source())}"
    else:
        command = [sys.executable, "-m", "pip", "install", *(["--upgrade"] if newer else [])]
    return shlex.join([*command, requirement])
