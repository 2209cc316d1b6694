"""Are the nodes of a set alike? Image, network, facts. Rules: docs/network.md, docs/tuning.md.

`nodes` are in rank order; every comparison is with what most of them have, so its price grows with their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from .judge import usual
from .said import MOST_FACTS, Report

if TYPE_CHECKING:
    from ..settings import Settings

FactRow = tuple[str, str, str]
"""(node, or * for all of them; field; value)"""

MOST_TOLD = 8
_NO_RDMA = "no RDMA device (/sys/class/infiniband)"


@dataclass(frozen=True)
class Agreement:
    """`problem` is "" where the nodes agree; `differing` says which are unlike the others, and in what."""

    problem: str = ""
    differing: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    image: str = ""
    """The identity that all have."""
    rdma_expected: bool = False
    rows: list[FactRow] = field(default_factory=list)


def agree_on_image(images: Mapping[str, str], nodes: Sequence[str], digest: str, cont: str) -> Agreement:
    """Compare identities: one tag can name different images. `digest` is the set's image, "" before there is one."""
    found = {node: images.get(node) or "none" for node in nodes}
    best = digest or usual(found.values())
    others = {node: image for node, image in found.items() if image != best}
    differing = {node: f"{cont} is {image} there and {best} elsewhere" for node, image in others.items()}
    problems = [f"{cont} is {image} on {node} and {best} elsewhere" for node, image in others.items()]
    return Agreement(problems[0], differing) if problems else Agreement(image=best)


# ---- network ----


def agree_on_network(reports: Mapping[str, Report], nodes: Sequence[str], settings: Settings) -> Agreement:
    """Compare what the nodes use between them. `rdma_expected` says whether runs use RDMA."""
    if settings.fabric == "none" or len(nodes) < 2:
        return Agreement()
    told = {node: reports[node].network or "off" if node in reports else "off" for node in nodes}
    troubles = _Troubles(nodes)
    for node in nodes:
        for text in reports[node].troubles if node in reports else ():
            troubles.add(node, f": {text}", text)
    lack = [node for node in nodes if told[node] == "none"]
    have = [node for node in nodes if told[node] not in ("off", "none")]
    warnings = []
    if lack and not have:
        text = f"no node has an RDMA device {_NO_RDMA.partition('device ')[2]}"
        if settings.network_rdma == "required":
            return Agreement(f"{text}, and the site says network.rdma: required", troubles.differing())
        warnings.append(
            f"{text} although the fabric of {settings.system} is {settings.fabric}: RCCL will use TCP sockets, many times "
            "slower (network.rdma: off in the site file says that this is meant)"
        )
    elif lack:
        troubles.lack(lack, have[0], len(told[have[0]].split()))
    elif have:
        _compare_networks(told, troubles)
    allowed = settings.network_differences == "allow"
    return troubles.agreement(allowed, warnings, rdma_expected=bool(have) and not lack)


class _Troubles:
    """What is wrong with the networks: one sentence each, and of each node its own."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.rank_of = {node: rank for rank, node in enumerate(nodes)}
        self.sentences: list[str] = []
        self.own: dict[str, list[str]] = {}

    def add(self, node: str, words: str, own: str) -> None:
        self.sentences.append(f"node {node} (rank {self.rank_of[node]}){words}")
        self.own.setdefault(node, []).append(f"network: {own}")

    def lack(self, nodes: list[str], other: str, devices: int) -> None:
        self.sentences.append(f"{_NO_RDMA} on {' '.join(nodes)}; {other} has {devices}")
        self.own.update({node: [f"{_NO_RDMA}, unlike {other}"] for node in nodes})

    def differing(self) -> dict[str, str]:
        return {node: "; ".join(texts) for node, texts in self.own.items()}

    def agreement(self, allowed: bool, warnings: list[str], *, rdma_expected: bool) -> Agreement:
        if not self.sentences:
            return Agreement(warnings=warnings, rdma_expected=rdma_expected)
        shown = _shown(self.sentences, ", see nodes/*/network.json")
        if allowed:
            warnings = [*warnings, f"network: {shown} (allowed by the site)"]
            return Agreement(warnings=warnings, rdma_expected=rdma_expected)
        text = f"network: {shown} (network.allow_differences: true in the site file starts the set all the same)"
        return Agreement(text, self.differing(), warnings, rdma_expected=rdma_expected)


def _shown(sentences: list[str], where: str = "") -> str:
    shown = "; ".join(sentences[:MOST_TOLD])
    return shown + (f"; and {len(sentences) - MOST_TOLD} more{where}" if len(sentences) > MOST_TOLD else "")


def _compare_networks(told: Mapping[str, str], troubles: _Troubles) -> None:
    """Every node that is not like the most frequent kind of node, and in what."""
    most = usual(told.values())
    reference = next(node for node, summary in told.items() if summary == most)
    theirs = _ports(most)
    for node, summary in told.items():
        text = "" if summary == most else _network_difference(_ports(summary), theirs)
        if text:
            troubles.add(node, f" is not like {reference}: {text}", text)


def _ports(summary: str) -> dict[str, list[str]]:
    """Port -> rate, link layer, GID index; a `-` for what is not told."""
    ports = {}
    for word in summary.split():
        port, *rest = word.split(",")
        ports[port] = (rest + ["-"] * 3)[:3]
    return ports


def _network_difference(mine: Mapping[str, list[str]], theirs: Mapping[str, list[str]]) -> str:
    missing = [port for port in theirs if port not in mine]
    only = [port for port in mine if port not in theirs]
    alike: dict[str, list[str]] = {}
    for port in theirs:
        for what, own, other in zip(("Gb/s", "link layer", "GID index"), mine.get(port, ()), theirs[port]):
            # A node tells itself when a port has no GID at all.
            if own != other and "-" not in (own, other):
                alike.setdefault(f"{what} {own} instead of {other}", []).append(port)
    texts = [f"no {' '.join(missing)}"] if missing else []
    texts += [f"but {' '.join(only)}"] if only else []
    return "; ".join([*texts, *(f"{','.join(ports)}: {what}" for what, ports in alike.items())])


# ---- facts ----


def agree_on_facts(reports: Mapping[str, Report], nodes: Sequence[str], settings: Settings) -> Agreement:
    """Compare kernel, driver, firmware, settings: one set is one experiment."""
    rows, found = compare_facts(reports, nodes)
    if not found:
        return Agreement(rows=rows)
    rank_of = {node: rank for rank, node in enumerate(nodes)}
    shown = _shown([f"node {node} (rank {rank_of[node]}): {text}" for node, text in found])
    if settings.tuning_differences == "allow":
        return Agreement(warnings=[f"the nodes differ: {shown} (allowed by the site)"], rows=rows)
    differing: dict[str, list[str]] = {}
    for node, text in found:
        differing.setdefault(node, []).append(text)
    problem = f"the nodes differ: {shown} (tuning.allow_differences: true in the site file starts the set all the same)"
    return Agreement(problem, {node: "; ".join(texts) for node, texts in differing.items()}, rows=rows)


def compare_facts(reports: Mapping[str, Report], nodes: Sequence[str]) -> tuple[list[FactRow], list[tuple[str, str]]]:
    """Return the rows of start.tsv, where * has the value of most nodes, and (node, what differs) of the others."""
    facts = [reports[node].facts if node in reports else {} for node in nodes]
    if all(one == facts[0] for one in facts):
        return [("*", name, value) for name, value in (facts[0] if facts else {}).items()], []
    rows, found = [], []
    # Nodes that all tell something else must not cost the square of their number.
    for name in islice(dict.fromkeys(name for one in facts for name in one), MOST_FACTS):
        values = [one.get(name, "-") for one in facts]
        # A node without the image is a matter of the check of images.
        counted = [value for value in values if value != "-"] if name == "image" else values
        most = usual(counted)
        rows.append(("*", name, most))
        alike = values.count(most) == len(values)
        for node, value in () if alike else zip(nodes, values):
            if value != most and (name, value) != ("image", "-"):
                rows.append((node, name, value))
                found.append((node, f"{name} is {value}, elsewhere {most}"))
    return rows, found


# ---- all of it ----


def agree(reports: Mapping[str, Report], nodes: Sequence[str], settings: Settings, image: str | None) -> Agreement:
    """Compare image, network and facts, up to the first in which the nodes differ. `image` is the set's ("" before it has one).

    With None images are not compared: no container has started yet.
    """
    first = Agreement()
    if image is not None:
        images = {node: reports[node].image for node in nodes if node in reports}
        first = agree_on_image(images, nodes, image, settings.cont)
    if first.problem:
        return first
    network = agree_on_network(reports, nodes, settings)
    if network.problem:
        return network
    facts = agree_on_facts(reports, nodes, settings)
    warnings = [*network.warnings, *facts.warnings]
    return Agreement(facts.problem, facts.differing, warnings, first.image, network.rdma_expected, facts.rows)
