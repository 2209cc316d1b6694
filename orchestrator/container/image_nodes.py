"""Nodes on which `images` or `doctor` found an image: a file next to the tars, for `submit`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator.onnode.kernel import records
from orchestrator.onnode.kernel.regular import parse, read_bytes


def _path(folder: Path, reference: str) -> Path:
    readable = re.sub(r"[^A-Za-z0-9.-]+", "_", reference)[:120].strip("_.")
    return folder / f"{readable}.{hashlib.sha256(reference.encode()).hexdigest()[:16]}.nodes.json"


def keep(folder: Path, reference: str, have: Sequence[str], lack: Sequence[str]) -> None:
    """Add nodes that have an image to those known, and drop those that lack it. Without write
    access, `submit` warns for nothing."""
    known = [*nodes_with(folder, reference), *have]
    nodes = [node for node in dict.fromkeys(known) if node not in lack]
    text = json.dumps({"reference": reference, "nodes": nodes})
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        records.replace(_path(folder, reference), f"{text}\n".encode(), sync=False)


def nodes_with(folder: Path, reference: str) -> list[str]:
    """Return the nodes that last had the image; [] if the file is unreadable. Anybody may have
    written the names."""
    try:
        data = parse(read_bytes(_path(folder, reference)))
        if data["reference"] != reference:
            return []
        return [str(name) for name in data["nodes"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
