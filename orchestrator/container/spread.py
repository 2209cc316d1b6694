"""One image on many nodes: which node has what, and making all of them equal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from orchestrator.container.image import Image, Look, common, short
from orchestrator.nodes.fanout import each
from orchestrator.nodes.names import NamedNode

State = Literal["present", "missing", "other", "no answer"]


class NodeEngine(Protocol):
    """The image store of one node."""

    def look(self, reference: str) -> Look: ...

    def install(self, tar: Path, image: Image, reference: str) -> Look: ...


Open = Callable[[NamedNode, threading.Event], NodeEngine]
"""Gives the image store of a node; the event is set when nobody wants its answer any more."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The image that every node should have, and who says so."""

    image: Image
    why: str


@dataclass(frozen=True, slots=True)
class NodeImage:
    """What one node has, compared with the wanted image."""

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
    """All nodes, in the order in which they were given. `wanted` is None when nothing tells which image is right."""

    reference: str
    wanted: Wanted | None
    nodes: tuple[NodeImage, ...]

    @property
    def equal(self) -> bool:
        return bool(self.nodes) and all(node.state == "present" for node in self.nodes)

    @property
    def silent(self) -> list[str]:
        return [node.node for node in self.nodes if node.state == "no answer"]

    @property
    def odd(self) -> list[str]:
        """The nodes that answered and do not have the wanted image."""
        return [node.node for node in self.nodes if node.state in ("missing", "other")]

    def to_json(self) -> dict[str, Any]:
        wanted = {**self.wanted.image.to_json(), "why": self.wanted.why} if self.wanted else None
        return {
            "reference": self.reference,
            "equal": self.equal,
            "wanted": wanted,
            "odd_nodes": self.odd,
            "silent_nodes": self.silent,
            "nodes": [node.to_json() for node in self.nodes],
        }


def look_at(
    nodes: Sequence[NamedNode], reference: str, open_engine: Open, *, limit: int
) -> list[Look]:
    """Ask every node which image `reference` means there; in the order of `nodes`."""
    looks = dict(
        each(nodes, lambda node, stopped: open_engine(node, stopped).look(reference), limit=limit)
    )
    return [looks[node] for node in nodes]


def judge(reference: str, looks: Sequence[Look], wanted: Wanted | None) -> SpreadReport:
    """Compare every node's image with `wanted`; without one, with the image that most nodes have."""
    found = [look.image for look in looks if look.image]
    if wanted is None and (most := common(found)):
        count = sum(image.same_as(most) for image in found)
        wanted = Wanted(most, f"{count} of {len(looks)} nodes have it")
    return SpreadReport(reference, wanted, tuple(_judged(look, wanted) for look in looks))


def _judged(look: Look, wanted: Wanted | None) -> NodeImage:
    if look.problem:
        return NodeImage(look.node, "no answer", None, look.problem)
    if look.image is None:
        return NodeImage(look.node, "missing", None)
    right = wanted is not None and look.image.same_as(wanted.image)
    return NodeImage(look.node, "present" if right else "other", look.image)


def install_on(
    nodes: Sequence[NamedNode],
    tar: Path,
    image: Image,
    reference: str,
    open_engine: Open,
    *,
    limit: int,
) -> Iterator[Look]:
    """Bring the image in `tar` onto every node, at most `limit` at a time; yield each node's new look as it is done."""
    work = each(
        nodes,
        lambda node, stopped: open_engine(node, stopped).install(tar, image, reference),
        limit=limit,
    )
    for _, look in work:
        yield look


def sentence(report: SpreadReport) -> str:
    """One line that says whether the nodes agree, and which do not."""
    if report.equal and report.wanted:
        return f"all {len(report.nodes)} nodes have {short(report.wanted.image.id)}"
    parts = [f"no answer from {', '.join(report.silent)}"] if report.silent else []
    if report.wanted is not None:
        parts = [f"not on {', '.join(report.odd)}" if report.odd else "", *parts]
        return f"{short(report.wanted.image.id)} is wanted ({report.wanted.why}): {'; '.join(filter(None, parts))}"
    if any(node.image for node in report.nodes):
        parts = ["the nodes differ, and nothing says which image is the right one", *parts]
    elif report.odd:
        parts = [f"no image on {', '.join(report.odd)}", *parts]
    return "; ".join(parts)
