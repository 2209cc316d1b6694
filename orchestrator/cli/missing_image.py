"""Warn of nodes that may lack a set's image, without asking them.

Nodes that may pull are left out. Records of earlier sets show where the image was; a tar on shared
storage can be loaded.
"""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

from orchestrator.container.engine import NodeEngine
from orchestrator.container.store import stored
from orchestrator.evidence.sets import SetEvidence, set_folders
from orchestrator.model.sites import sets_folder
from orchestrator.nodes.names import NamedNode
from orchestrator.nodes.transport import ThisHost
from orchestrator.words import count, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.model import Entry

NEWEST = 20
"""Sets read in the log directory."""


def missing_image(entry: Entry) -> tuple[str, str] | None:
    """Return why nodes may lack the image, and a command to check or fix it; None if they may pull
    it, or had it for an earlier set."""
    container = entry.container
    if container.engine == "none" or (container.pull == "missing" and not entry.build):
        return None
    why = "no registry has it" if entry.build else "`container.pull` is `never`"
    log_dir = sets_folder(entry.site)
    names = f"{quoted(entry.system)} {quoted(entry.workload)} --round {quoted(entry.round)}"
    if entry.site.scheduler == "local":
        command = tuple(container.command or (container.engine,))
        reply = NodeEngine(NamedNode("here"), ThisHost(), command).inspect(entry.image, Event())
        if reply.image or reply.problem:
            return None
        get = f"orchestrator images pull {names}"
        if entry.build:  # it asks for the published tree
            get = f"orchestrator images build {names}"
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
    if stored(log_dir.parent / "images", entry.image):
        return text, f"orchestrator images distribute {names}"
    # The check first: where the image is, a pull or build would be vain, or fail.
    return (
        f"{text}; unless `doctor` has found it there, check them:",
        f"orchestrator doctor {names} --all-nodes",
    )


def _nodes_with(image: str, log_dir: Path) -> Iterator[str]:
    for folder in set_folders(log_dir)[:NEWEST]:
        files = SetEvidence(folder)
        if files.record and files.record.image == image and not files.record.rehearsed:
            for job in files.jobs:
                if job.image_digest:
                    yield from job.nodes
