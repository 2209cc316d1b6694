"""Warn of nodes that may lack a set's image, without asking them.

Nodes that may pull do not count. Earlier sets, `images` and `doctor` recorded where the image was.
"""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.container.engine import NodeEngine
from orchestrator.container.image_nodes import nodes_with
from orchestrator.container.store import stored
from orchestrator.errors import Fix, SetError
from orchestrator.evidence.sets import SetEvidence, set_folders
from orchestrator.model.sites import sets_folder
from orchestrator.nodes.names import NamedNode
from orchestrator.nodes.transport import ThisHost
from orchestrator.scheduler.kinds import kind_of
from orchestrator.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.model import Entry

NEWEST = 20
"""Sets read in the log directory."""


class MissingImage(NamedTuple):
    text: str
    fix: Fix


def missing_image(entry: Entry) -> MissingImage | None:
    """Return why nodes may lack the image; None if they may pull it, or had it."""
    container = entry.container
    if container.engine == "none" or (container.pull == "missing" and not entry.build):
        return None
    why = "no registry has it" if entry.build else "`container.pull` is `never`"
    log_dir = sets_folder(entry.site)

    def named(*action: str, further: tuple[str, ...] = ()) -> Fix:
        what = (entry.system, entry.workload, "--round", entry.round)
        return Fix(other=(*action, *what, *further), kept=("--site", "--systems-dir"))

    if kind_of(entry.site.scheduler).runs_here:
        command = tuple(container.command or (container.engine,))
        reply = NodeEngine(NamedNode("here"), ThisHost(), command).inspect(entry.image, Event())
        if reply.image or reply.problem:
            return None
        get = "build" if entry.build else "pull"  # `build` asks for the published tree
        text = f"this host does not have the image {entry.image}, and {why}"
        return MissingImage(text, named("images", get))
    images = log_dir.parent / "images"
    known = {*_nodes_with(entry.image, log_dir), *nodes_with(images, entry.image)}
    if len(known) >= entry.nodes:
        return None
    has = f"only {count(len(known), 'node')} had it" if known else "no set ran with it"
    text = f"the nodes may lack the image {entry.image}: {why}, and {has}"
    if stored(images, entry.image):
        return MissingImage(text, named("images", "distribute"))
    # The check first: with the image, a pull or build would be vain, or fail.
    text += "; unless `doctor` has found it there, check them:"
    return MissingImage(text, named("doctor", further=("--all-nodes",)))


def _nodes_with(image: str, log_dir: Path) -> Iterator[str]:
    try:
        folders = set_folders(log_dir)[:NEWEST]
    except SetError:
        return
    for folder in folders:
        files = SetEvidence(folder)
        if files.record and files.record.image == image and not files.record.rehearsed:
            for job in files.jobs:
                if job.image_digest:
                    yield from job.nodes
