"""Warn of nodes that may lack the image of a set. No node is asked.

Nodes that may pull are left out. For the others the records of earlier sets show which nodes had
the image; a tar on shared storage can be loaded.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.container.engine import ABSENT
from orchestrator.container.store import stored
from orchestrator.evidence.sets import SetEvidence, set_folders
from orchestrator.model.prerequisites import build_advice
from orchestrator.model.sites import sets_folder
from orchestrator.words import count, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.model import Entry

NEWEST = 20
"""Sets of the log directory that are read."""
ENGINE_S = 10


def missing_image(entry: Entry) -> tuple[str, str] | None:
    """Return why the nodes may lack the image, and the command that checks or fixes it; None for
    nodes that may pull it, or had it for an earlier set."""
    container = entry.container
    if container.engine == "none" or (container.pull == "missing" and not entry.build):
        return None
    why = "no registry has it" if entry.build else "`container.pull` is `never`"
    log_dir = sets_folder(entry.site)
    names = f"{quoted(entry.system)} {quoted(entry.workload)} --round {quoted(entry.round)}"
    kept = stored(log_dir.parent / "images", entry.image)
    if entry.site.scheduler == "local":
        get = build_advice(entry) if entry.build else f"orchestrator images pull {names}"
        if _engine_has(container.command or (container.engine,), entry.image) is not False:
            return None
        return f"this host does not have the image {entry.image}, and {why}", get
    known = set(_nodes_with(entry.image, log_dir))
    if len(known) >= entry.nodes:
        return None
    has = (
        f"only {count(len(known), 'node')} of earlier sets had it"
        if known
        else "no set ran with it"
    )
    text = f"the nodes may lack the image {entry.image}: {why}, and {has}"
    if kept:
        return text, f"orchestrator images distribute {names}"
    # The check first: where the image is, a pull or build would be vain, or fail.
    return f"{text}; to check them, and for the fix:", f"orchestrator doctor {names} --all-nodes"


def _nodes_with(image: str, log_dir: Path) -> Iterator[str]:
    """Yield the nodes whose jobs found the image."""
    for folder in set_folders(log_dir)[:NEWEST]:
        files = SetEvidence(folder)
        if files.record and files.record.image == image and not files.record.rehearsed:
            for job in files.jobs:
                if job.image_digest:
                    yield from job.nodes


def _engine_has(command: tuple[str, ...], image: str) -> bool | None:
    """Return whether this host's engine has an image; None without an answer."""
    with suppress(OSError, subprocess.SubprocessError):
        argv = [*command, "image", "inspect", "--format", "{{.Id}}", image]
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ENGINE_S
        )
        if done.returncode == 0:
            return True
        return False if any(text in done.stderr.lower() for text in ABSENT) else None
    return None
