"""From what the nodes said to rows, who is not fit, and are they alike: image, network, facts.

Rules: docs/preflight.md, docs/network.md, docs/tuning.md. Nodes are compared with what most of them have, so the price of it
grows with their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from ..kernel.events import number
from .reports import MOST_FACTS, OUTCOMES, Check, NodeReport, check_order, line

if TYPE_CHECKING:
    from ..kernel.settings import Settings

Rows = dict[str, dict[str, Check]]
FactRow = tuple[str, str, str]
"""(node, or * for all of them; field; value)"""

MOST_TOLD = 8
_NO_RDMA = "no RDMA device (/sys/class/infiniband)"


def usual(values: Iterable[str]) -> str:
    """Return the value that most have, of several the first one; "" without any."""
    times = Counter(values)
    return max(times, key=times.__getitem__, default="")


# ---- the checks ----


@dataclass(frozen=True)
class Judgement:
    """`rows` are the final ones of each node, `failed` says why a node is not fit, `warnings` are for the job's record."""

    rows: dict[str, list[Check]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def judge_checks(reports: Mapping[str, NodeReport], settings: Settings, *, rdma: bool) -> Judgement:
    """Return the judgement on the nodes that are compared with each other.

    A set leaves the network to `agree`, which knows what the site allows; what only the check `rdma` finds (all ports alike are
    slower than the fabric) is a warning there. With `rdma` a failure of that check is one of the node.
    """
    rows = {node: dict(report.checks) for node, report in reports.items()}
    if settings.preflight_run == 1:
        _markers(rows, reports, settings)
        _unlike_others(rows, "gpu_count", settings)
        _unlike_others(rows, "rdma", settings)
        _data(rows, reports)
        _clocks(rows, reports, settings)
    names = sorted({name for own in rows.values() for name in own}, key=check_order)
    order = {name: at for at, name in enumerate(names)}
    ordered = {
        node: sorted(own.values(), key=lambda row: order[row.name]) for node, own in rows.items()
    }
    if settings.preflight_run != 1:
        return Judgement(ordered)
    # The deep step and what became of a node are judged elsewhere.
    elsewhere = {*OUTCOMES, "deep", *(() if rdma else ("rdma",))}
    failed = {}
    for node, own in ordered.items():
        first = next(
            (row for row in own if row.verdict == "fail" and row.name not in elsewhere), None
        )
        if first is not None:
            failed[node] = f"check {first.name}: {first.sentence}"
    return Judgement(ordered, failed, _warnings(ordered))


def failing(name: str, text: str, remedy: str, settings: Settings) -> dict[str, Check]:
    """Return the judge's row for a check that fails, as the site has it: none where it is switched off."""
    if name in settings.preflight_skip:
        return {}
    return {
        name: Check(
            name, "warn" if name in settings.preflight_warn else "fail", 0, line(text), remedy
        )
    }


def _verdict(own: Mapping[str, Check], name: str) -> str:
    return own[name].verdict if name in own else ""


def _markers(rows: Rows, reports: Mapping[str, NodeReport], settings: Settings) -> None:
    text = (
        f"what it writes to {settings.logdir or 'the log directory'} is not seen on the batch host"
    )
    for node, report in reports.items():
        if report.unseen and _verdict(rows[node], "log_dir") == "pass":
            rows[node].update(
                failing("log_dir", text, "mount the same shared storage on both", settings)
            )


def _unlike_others(rows: Rows, name: str, settings: Settings) -> None:
    """What no node can tell is a warning; where others can, it is the node's failure."""
    told = [node for node, own in rows.items() if _verdict(own, name) in ("pass", "fail")]
    for own in rows.values() if told else ():
        if _verdict(own, name) == "warn":
            own.update(
                failing(name, f"{own[name].sentence} (unlike node {told[-1]})", "", settings)
            )


def _data(rows: Rows, reports: Mapping[str, NodeReport]) -> None:
    """A node with other data than most has a warning."""
    values = {
        node: report.same["data"] for node, report in reports.items() if report.same.get("data")
    }
    most = usual(values.values())
    text = "the data folders differ in names, sizes or times from those of most nodes"
    for node, value in values.items():
        if value != most and _verdict(rows[node], "data") == "pass":
            rows[node]["data"] = Check(
                "data", "warn", 0, text, "compare the folders, or prepare the data anew"
            )


def _clocks(rows: Rows, reports: Mapping[str, NodeReport], settings: Settings) -> None:
    limit_ms = (number(settings.preflight_clock_s) or 0) * 1000
    remedy = "synchronise it (chronyc makestep, or systemctl restart systemd-timesyncd)"
    for node, report in reports.items():
        if abs(report.clock_off_ms) > limit_ms:
            text = f"its clock differs by {report.clock_off_ms} ms from the batch host's"
            rows[node].update(failing("clock", text, remedy, settings))


def _warnings(rows: Mapping[str, list[Check]]) -> list[str]:
    """Each once, with the checks and the nodes that it is about."""
    checks: dict[str, set[str]] = {}
    nodes: dict[str, list[str]] = {}
    for node, own in rows.items():
        # What all networks lack, `agree` says once; and whoever is slow, the deep step.
        for row in own:
            if row.verdict == ("fail" if row.name == "rdma" else "warn") and row.name != "deep":
                checks.setdefault(row.sentence, set()).add(row.name)
                nodes.setdefault(row.sentence, []).append(node)
    found = []
    for words in sorted(checks, key=lambda words: min(map(check_order, checks[words]))):
        about = dict.fromkeys(nodes[words])
        who = "all nodes" if len(about) == len(rows) > 1 else " ".join(about)
        found.append(f"check {' '.join(sorted(checks[words], key=check_order))}: {words} ({who})")
    return found


# ---- are they alike? `nodes` are in rank order ----


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


def agree(
    reports: Mapping[str, NodeReport], nodes: Sequence[str], settings: Settings, image: str | None
) -> Agreement:
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
    return replace(facts, warnings=warnings, image=first.image, rdma_expected=network.rdma_expected)


def agree_on_image(
    images: Mapping[str, str], nodes: Sequence[str], digest: str, cont: str
) -> Agreement:
    """Compare identities: one tag can name different images. `digest` is the set's image, "" before there is one."""
    found = {node: images.get(node) or "none" for node in nodes}
    best = digest or usual(found.values())
    others = [node for node, image in found.items() if image != best]
    if not others:
        return Agreement(image=best)
    problem = f"{cont} is {found[others[0]]} on {others[0]} and {best} elsewhere"
    return Agreement(
        problem, {node: f"{cont} is {found[node]} there and {best} elsewhere" for node in others}
    )


def agree_on_network(
    reports: Mapping[str, NodeReport], nodes: Sequence[str], settings: Settings
) -> Agreement:
    """Compare what the nodes use between them. `rdma_expected` says whether runs use RDMA."""
    if settings.fabric == "none" or len(nodes) < 2:
        return Agreement()
    told = {node: reports[node].network or "off" if node in reports else "off" for node in nodes}
    lack = [node for node in nodes if told[node] == "none"]
    have = [node for node in nodes if told[node] not in ("off", "none")]
    troubles = [
        (node, f": {text}", text)
        for node in nodes
        if node in reports
        for text in reports[node].troubles
    ]
    if have and not lack:
        troubles += _unlike_most(told)
    rank_of = {node: rank for rank, node in enumerate(nodes)}
    sentences = [f"node {node} (rank {rank_of[node]}){words}" for node, words, _ in troubles]
    own = _by_node((node, f"network: {text}") for node, _, text in troubles)
    warnings = []
    if lack and have:
        sentences.append(
            f"{_NO_RDMA} on {' '.join(lack)}; {have[0]} has {len(told[have[0]].split())}"
        )
        own.update(dict.fromkeys(lack, f"{_NO_RDMA}, unlike {have[0]}"))
    elif lack:
        text = f"no node has an RDMA device {_NO_RDMA.partition('device ')[2]}"
        if settings.network_rdma == "required":
            return Agreement(f"{text}, and the site says network.rdma: required", own)
        warnings.append(
            f"{text} although the fabric of {settings.system} is {settings.fabric}: RCCL will use TCP sockets, many times "
            "slower (network.rdma: off in the site file says that this is meant)"
        )
    found = _differing(
        "network",
        sentences,
        own,
        settings.network_differences,
        "network",
        ", see nodes/*/network.json",
    )
    return replace(
        found, warnings=[*warnings, *found.warnings], rdma_expected=bool(have) and not lack
    )


def _by_node(texts: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return what is said of each node as one text."""
    found: dict[str, list[str]] = {}
    for node, text in texts:
        found.setdefault(node, []).append(text)
    return {node: "; ".join(own) for node, own in found.items()}


def _differing(
    what: str, sentences: list[str], own: dict[str, str], allowed: str, option: str, where: str = ""
) -> Agreement:
    """Return what the sentences mean: a warning where the site allows differences, a problem otherwise."""
    if not sentences:
        return Agreement()
    more = f"; and {len(sentences) - MOST_TOLD} more{where}" if len(sentences) > MOST_TOLD else ""
    text = f"{what}: {'; '.join(sentences[:MOST_TOLD])}{more}"
    if allowed == "allow":
        return Agreement(warnings=[f"{text} (allowed by the site)"])
    return Agreement(
        f"{text} ({option}.allow_differences: true in the site file starts the set all the same)",
        own,
    )


def _unlike_most(told: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (node, words with whom it was compared, in what it differs) of those unlike the most frequent kind of node."""
    most = usual(told.values())
    reference, theirs = (
        next(node for node, summary in told.items() if summary == most),
        _ports(most),
    )
    found = [
        (node, _network_difference(_ports(mine), theirs))
        for node, mine in told.items()
        if mine != most
    ]
    return [(node, f" is not like {reference}: {text}", text) for node, text in found if text]


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
        for what, own, other in zip(
            ("Gb/s", "link layer", "GID index"), mine.get(port, ()), theirs[port]
        ):
            # A node tells itself when a port has no GID at all.
            if own != other and "-" not in (own, other):
                alike.setdefault(f"{what} {own} instead of {other}", []).append(port)
    texts = [f"no {' '.join(missing)}"] if missing else []
    texts += [f"but {' '.join(only)}"] if only else []
    return "; ".join([*texts, *(f"{','.join(ports)}: {what}" for what, ports in alike.items())])


def agree_on_facts(
    reports: Mapping[str, NodeReport], nodes: Sequence[str], settings: Settings
) -> Agreement:
    """Compare kernel, driver, firmware, settings: one set is one experiment."""
    rows, found = compare_facts(reports, nodes)
    rank_of = {node: rank for rank, node in enumerate(nodes)}
    sentences = [f"node {node} (rank {rank_of[node]}): {text}" for node, text in found]
    differing = _differing(
        "the nodes differ", sentences, _by_node(found), settings.tuning_differences, "tuning"
    )
    return replace(differing, rows=rows)


def compare_facts(
    reports: Mapping[str, NodeReport], nodes: Sequence[str]
) -> tuple[list[FactRow], list[tuple[str, str]]]:
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
