"""The same image on many nodes: comparison, and loading a tar."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from orchestrator.container.engine import EngineReply, NodeEngine
from orchestrator.container.image import Image, common, short, wanted_id
from orchestrator.container.store import StoredImage, stored, whose
from orchestrator.errors import UsageError
from orchestrator.nodes.fanout import each
from orchestrator.onnode.kernel.node_names import all_of
from orchestrator.words import count

State = Literal["present", "missing", "other", "failed", "no answer"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The image that every node should have, and why."""

    image: Image
    why: str


@dataclass(frozen=True, slots=True)
class NodeImage:
    node: str
    state: State
    image: Image | None
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "state": self.state,
            "image": self.image.to_json() if self.image else None,
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True)
class SpreadReport:
    """The images of all nodes; `wanted` is None if unknown."""

    reference: str
    wanted: Wanted | None
    nodes: tuple[NodeImage, ...]

    @property
    def equal(self) -> bool:
        return bool(self.nodes) and all(node.state == "present" for node in self.nodes)

    @property
    def silent(self) -> list[str]:
        return self._nodes("no answer")

    @property
    def failed(self) -> list[str]:
        """Nodes whose engine failed."""
        return self._nodes("failed")

    @property
    def odd(self) -> list[str]:
        """Nodes that answered without the wanted image."""
        return self._nodes("missing", "other")

    def _nodes(self, *states: State) -> list[str]:
        return [node.node for node in self.nodes if node.state in states]

    @property
    def summary(self) -> str:
        unknown = [
            f"the engine failed on {', '.join(self.failed)}" if self.failed else "",
            f"no answer from {', '.join(self.silent)}" if self.silent else "",
        ]
        odd = ", ".join(self.odd)
        if self.wanted is not None:
            wanted = short(self.wanted.image.id)
            if self.equal:
                number = len(self.nodes)
                have = f"{all_of(number)} have" if number > 1 else "the node has"
                return f"{have} {wanted}"
            parts = [f"not on {odd}" if odd else "", *unknown]
            return f"{wanted} is wanted ({self.wanted.why}): {'; '.join(filter(None, parts))}"
        reason = ""
        if any(node.image for node in self.nodes):
            reason = "the nodes differ, and the right image is unknown"
        elif odd:
            reason = f"no image on {odd}"
        return "; ".join(filter(None, [reason, *unknown]))

    def to_json(self) -> dict[str, Any]:
        wanted = {**self.wanted.image.to_json(), "why": self.wanted.why} if self.wanted else None
        return {
            "reference": self.reference,
            "equal": self.equal,
            "wanted": wanted,
            "odd_nodes": self.odd,
            "failed_nodes": self.failed,
            "silent_nodes": self.silent,
            "nodes": [node.to_json() for node in self.nodes],
        }


def check(
    engines: Sequence[NodeEngine],
    reference: str,
    *,
    expected: str = "",
    kept: StoredImage | None = None,
    limit: int,
) -> SpreadReport:
    """Compare nodes with the id `expected` (or its start), else the tar `kept`, else most nodes.
    Raises UsageError for a malformed id."""
    wanted = None
    if expected:
        wanted = Wanted(Image(wanted_id(expected)), "--expect")
    elif kept is not None:
        wanted = _as_stored(kept)
    replies = _inspect(engines, reference, limit)
    return judge(reference, replies, _completed(wanted, replies))


def tar_to_distribute(
    folder: Path, reference: str, expected: str = "", *, of_others: bool = False
) -> StoredImage:
    """Return the tar of `reference` in `folder`.

    Raises UsageError without a tar, for a digest, for another id than `expected`, and for a tar
    that another user can write, unless `of_others`.
    """
    if "@" in reference:
        raise UsageError(
            f"{reference}: a tar carries no repository digest, so this name cannot be given to "
            "an image",
            hint="name the image by its tag",
        )
    kept = stored(folder, reference, of_others=True)
    if kept is None:
        raise UsageError(
            f"there is no tar of {reference} in {folder}",
            hint=f"orchestrator images pull --image {quote(reference)} --tar {quote(str(folder))}",
        )
    if not of_others and (why := whose(kept)):
        raise UsageError(
            f"the tar of {reference} in {folder} can be changed by other users: {why}",
            hint="its image would run on all nodes; if you trust that user, add --others",
        )
    if expected and not kept.image.id.startswith(wanted_id(expected)):
        raise UsageError(f"{kept.tar} holds {kept.image.id}, not the image of --expect")
    return kept


def distribute(
    engines: Sequence[NodeEngine],
    kept: StoredImage,
    *,
    limit: int,
    progress: Callable[[str], None],
) -> SpreadReport:
    """Load the tar on every node without its image, and check again."""
    reference = kept.reference
    wanted = _as_stored(kept)
    replies = {reply.node: reply for reply in _inspect(engines, reference, limit)}
    before = judge(reference, list(replies.values()), wanted)
    odd = [engine for engine in engines if engine.node.name in before.odd]
    if odd:
        size = f"{kept.bytes / 1e9:.1f} GB"
        share = f"{len(odd)} of {count(len(engines), 'node')}"
        progress(f"loading {short(kept.image.id)} ({size}) on {share}")
    start = time.monotonic()
    work = each(
        odd,
        lambda engine, stopped: engine.install(kept.tar, kept.image, reference, stopped),
        limit=limit,
    )
    for number, (_, reply) in enumerate(work, 1):
        replies[reply.node] = reply
        seconds = time.monotonic() - start
        outcome = reply.problem or "done"
        progress(f"  {reply.node}: {outcome} ({number} of {len(odd)}, {seconds:.1f} s)")
    return judge(reference, list(replies.values()), wanted)


def judge(reference: str, replies: Sequence[EngineReply], wanted: Wanted | None) -> SpreadReport:
    """Compare images with `wanted`, by default the most frequent."""
    images = [reply.image for reply in replies if reply.image]
    if wanted is None and (most := common(images)):
        alike = sum(image.same_as(most) for image in images)
        wanted = Wanted(most, f"it is on {alike} of {count(len(replies), 'node')}")
    nodes = tuple(_judged(reply, wanted) for reply in replies)
    return SpreadReport(reference, wanted, nodes)


def _judged(reply: EngineReply, wanted: Wanted | None) -> NodeImage:
    if reply.problem:
        state: State = "failed" if reply.answered else "no answer"
        return NodeImage(reply.node, state, None, reply.problem)
    if reply.image is None:
        return NodeImage(reply.node, "missing", None)
    right = wanted is not None and reply.image.same_as(wanted.image)
    return NodeImage(reply.node, "present" if right else "other", reply.image)


def _inspect(engines: Sequence[NodeEngine], reference: str, limit: int) -> list[EngineReply]:
    work = each(engines, lambda engine, stopped: engine.inspect(reference, stopped), limit=limit)
    replies = {reply.node: reply for _, reply in work}
    return [replies[engine.node.name] for engine in engines]


def _as_stored(kept: StoredImage) -> Wanted:
    return Wanted(kept.image, f"the tar {kept.tar}")


def _completed(wanted: Wanted | None, replies: Sequence[EngineReply]) -> Wanted | None:
    """Return `wanted` with a node's whole id, if that starts with it."""
    if wanted is None:
        return None
    for reply in replies:
        if reply.image and reply.image.id.startswith(wanted.image.id):
            same = reply.image.id == wanted.image.id
            return wanted if same else replace(wanted, image=reply.image)
    return wanted
