"""Judge nodes: their checks, and whether image, network and facts are alike.

Rules: docs/preflight.md, docs/network.md, docs/tuning.md. Images are compared with the set's, facts
and networks with most nodes, undecided checks with other nodes; at linear cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ..kernel.events import number
from ..kernel.node_names import by_text, fold, ranked, subject
from .check_names import OUTCOMES
from .experiment import MOST_TOLD, usual
from .reports import MOST_FACTS, Check, NodeReport, check_order, line

if TYPE_CHECKING:
    from ..kernel.settings import Settings

Rows = dict[str, dict[str, Check]]
FactRow = tuple[str, str, str]
"""(node, or * for all; field; value)"""

_NO_RDMA = "no RDMA device (/sys/class/infiniband)"
_OTHER_ID = (
    " (Docker's containerd image store gives pulled and loaded images different ids: "
    "pull it on all nodes, or load it on all)"
)


# ---- the checks ----


@dataclass(frozen=True)
class Judgement:
    """`warnings`: for the job's record."""

    rows: dict[str, list[Check]] = field(default_factory=dict)
    """Node -> final checks."""
    failed: dict[str, str] = field(default_factory=dict)
    """Unfit node -> reason."""
    warnings: list[str] = field(default_factory=list)


def judge_checks(reports: Mapping[str, NodeReport], settings: Settings, *, rdma: bool) -> Judgement:
    """Judge nodes, compared with each other. `rdma`: its failure makes a node unfit; else `agree`
    judges the network."""
    rows = {node: dict(report.checks) for node, report in reports.items()}
    if settings.preflight_run == 1:
        _markers(rows, reports, settings)
        _unlike_others(rows, "gpu_count", settings)
        _unlike_others(rows, "rdma", settings)
        _data(rows, reports)
        _clocks(rows, reports, settings)
    names = sorted({name for checks in rows.values() for name in checks}, key=check_order)
    order = {name: index for index, name in enumerate(names)}
    ordered = {
        node: sorted(checks.values(), key=lambda check: order[check.name])
        for node, checks in rows.items()
    }
    if settings.preflight_run != 1:
        return Judgement(ordered)
    # Judged elsewhere.
    elsewhere = {*OUTCOMES, "deep", *(() if rdma else ("rdma",))}
    failed = {}
    for node, checks in ordered.items():
        failures = [check for check in checks if check.verdict == "fail"]
        for check in failures:
            if check.name not in elsewhere:
                failed[node] = f"check {check.name}: {check.sentence}"
                break
    return Judgement(ordered, failed, _warnings(ordered))


def failing(name: str, text: str, remedy: str, settings: Settings) -> dict[str, Check]:
    """Return a failing check, or a warning by the site's rules; {} if skipped."""
    if name in settings.preflight_skip:
        return {}
    verdict = "warn" if name in settings.preflight_warn else "fail"
    return {name: Check(name, verdict, 0, line(text), remedy)}


def _verdict(checks: Mapping[str, Check], name: str) -> str:
    return checks[name].verdict if name in checks else ""


def _markers(rows: Rows, reports: Mapping[str, NodeReport], settings: Settings) -> None:
    folder = settings.logdir or "the log directory"
    text = f"what it writes to {folder} is not seen on the batch host"
    remedy = "mount the same shared storage on both"
    for node, report in reports.items():
        if report.unseen and _verdict(rows[node], "log_dir") == "pass":
            rows[node].update(failing("log_dir", text, remedy, settings))


def _unlike_others(rows: Rows, name: str, settings: Settings) -> None:
    """Fail nodes that could not decide a check (a warning) that others decided."""
    decided = [node for node, checks in rows.items() if _verdict(checks, name) in ("pass", "fail")]
    for checks in rows.values() if decided else ():
        if _verdict(checks, name) == "warn":
            text = f"{checks[name].sentence} (unlike node {decided[-1]})"
            checks.update(failing(name, text, "", settings))


def _data(rows: Rows, reports: Mapping[str, NodeReport]) -> None:
    """Warn about data unlike that of most nodes."""
    values = {}
    for node, report in reports.items():
        if report.same.get("data"):
            values[node] = report.same["data"]
    most = usual(values.values())
    text = "the data folders differ in names, sizes or times from those of most nodes"
    remedy = "compare the folders, or prepare the data anew"
    for node, value in values.items():
        if value != most and _verdict(rows[node], "data") == "pass":
            rows[node]["data"] = Check("data", "warn", 0, text, remedy)


def _clocks(rows: Rows, reports: Mapping[str, NodeReport], settings: Settings) -> None:
    limit_ms = (number(settings.preflight_clock_s) or 0) * 1000
    remedy = "synchronise it (chronyc makestep, or systemctl restart systemd-timesyncd)"
    for node, report in reports.items():
        if abs(report.clock_off_ms) > limit_ms:
            text = f"its clock differs by {report.clock_off_ms} ms from the batch host's"
            rows[node].update(failing("clock", text, remedy, settings))


def _warnings(rows: Mapping[str, list[Check]]) -> list[str]:
    names: dict[str, set[str]] = {}
    nodes: dict[str, list[str]] = {}
    for node, checks in rows.items():
        for check in checks:
            # `agree` reports missing RDMA, the bandwidth test slow nodes.
            level = "fail" if check.name == "rdma" else "warn"
            if check.verdict == level and check.name != "deep":
                names.setdefault(check.sentence, set()).add(check.name)
                nodes.setdefault(check.sentence, []).append(node)
    warnings = []
    for text in sorted(names, key=lambda text: min(map(check_order, names[text]))):
        some = dict.fromkeys(nodes[text])
        subject = "all nodes" if len(some) == len(rows) > 1 else fold(some)
        checked = " ".join(sorted(names[text], key=check_order))
        warnings.append(f"check {checked}: {text} ({subject})")
    return warnings


# ---- agreement: `nodes` are in rank order ----


@dataclass(frozen=True)
class Agreement:
    """`problem`, "" if nodes are alike, stops the set, unless spares can replace the `differing`
    nodes (loop/checks.py)."""

    problem: str = ""
    differing: dict[str, str] = field(default_factory=dict)
    """Node -> difference."""
    warnings: list[str] = field(default_factory=list)
    image: str = ""
    rdma_expected: bool = False
    rows: list[FactRow] = field(default_factory=list)


def agree(
    reports: Mapping[str, NodeReport], nodes: Sequence[str], settings: Settings, image: str | None
) -> Agreement:
    """Compare image, network and facts, up to the first difference.

    `image`: the set's, or ""; None: not compared.
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
    """Compare identities. `digest`: the set's image, or ""."""
    identities = {node: images.get(node) or "none" for node in nodes}
    best = digest or usual(identities.values())
    others = {node: image for node, image in identities.items() if image != best}
    if not others:
        return Agreement(image=best)
    node, image = next(iter(others.items()))
    hint = "" if "none" in (image, best) else _OTHER_ID
    problem = f"{cont} is {image} on {node} and {best} elsewhere{hint}"
    differing = {
        node: f"{cont} is {image} there and {best} elsewhere" for node, image in others.items()
    }
    return Agreement(problem, differing)


def agree_on_network(
    reports: Mapping[str, NodeReport], nodes: Sequence[str], settings: Settings
) -> Agreement:
    """Compare the inter-node network. `rdma_expected`: by the runs."""
    if settings.fabric == "none" or len(nodes) < 2:
        return Agreement()
    networks = {
        node: reports[node].network or "off" if node in reports else "off" for node in nodes
    }
    lack = [node for node in nodes if networks[node] == "none"]
    have = [node for node in nodes if networks[node] not in ("off", "none")]
    differences = [
        NetworkDifference(node, f": {text}", text)
        for node in nodes
        if node in reports
        for text in reports[node].troubles
    ]
    if have and not lack:
        differences += _unlike_most(networks)
    sentences = _sentences(((node, clause) for node, clause, _ in differences), nodes)
    differing = _by_node((node, f"network: {text}") for node, _, text in differences)
    warnings = []
    if lack and have:
        count = len(networks[have[0]].split())
        sentences.append(f"{_NO_RDMA} on {fold(lack)}; {have[0]} has {count}")
        differing.update(dict.fromkeys(lack, f"{_NO_RDMA}, unlike {have[0]}"))
    elif lack:
        text = f"no node has an RDMA device {_NO_RDMA.partition('device ')[2]}"
        if settings.network_rdma == "required":
            return Agreement(f"{text}, and the site says network.rdma: required", differing)
        warnings.append(
            f"{text} although the fabric of {settings.system} is {settings.fabric}: "
            "RCCL will use TCP sockets, many times slower "
            "(network.rdma: off in the site file says that this is meant)"
        )
    agreement = _agreement(
        sentences,
        differing,
        subject="network",
        allowed=settings.network_differences,
        option="network",
        see=", see nodes/*/network.json",
    )
    return replace(
        agreement,
        warnings=[*warnings, *agreement.warnings],
        rdma_expected=bool(have) and not lack,
    )


def _sentences(clauses: Iterable[tuple[str, str]], nodes: Sequence[str]) -> list[str]:
    sentences, ranks = [], ranked(nodes)
    for clause, some in by_text(clauses).items():
        verb = clause.replace(" is ", " are ", 1) if len(some) > 1 else clause
        clause = verb if clause.startswith(" is ") else clause
        sentences.append(f"{subject(some, len(nodes), ranks)}{clause}")
    return sentences


def _by_node(texts: Iterable[tuple[str, str]]) -> dict[str, str]:
    grouped: dict[str, list[str]] = {}
    for node, text in texts:
        grouped.setdefault(node, []).append(text)
    return {node: "; ".join(some) for node, some in grouped.items()}


def _agreement(
    sentences: list[str],
    differing: dict[str, str],
    *,
    subject: str,
    allowed: str,
    option: str,
    see: str = "",
) -> Agreement:
    if not sentences:
        return Agreement()
    more = f"; and {len(sentences) - MOST_TOLD} more{see}" if len(sentences) > MOST_TOLD else ""
    text = f"{subject}: {'; '.join(sentences[:MOST_TOLD])}{more}"
    if allowed == "allow":
        return Agreement(warnings=[f"{text} (allowed by the site)"])
    hint = f"({option}.allow_differences: true in the site file starts the set all the same)"
    return Agreement(f"{text} {hint}", differing)


class NetworkDifference(NamedTuple):
    """`clause` continues a sentence about the node."""

    node: str
    clause: str
    text: str


def _unlike_most(networks: Mapping[str, str]) -> list[NetworkDifference]:
    most = usual(networks.values())
    reference = next(node for node, summary in networks.items() if summary == most)
    ports = _ports(most)
    differences = []
    for node, summary in networks.items():
        text = _port_differences(_ports(summary), ports) if summary != most else ""
        if text:
            clause = f" is not like {reference}: {text}"
            differences.append(NetworkDifference(node, clause, text))
    return differences


def _ports(summary: str) -> dict[str, list[str]]:
    """Return port -> [rate, link layer, GID index]; `-`: unknown."""
    ports = {}
    for word in summary.split():
        port, *rest = word.split(",")
        ports[port] = (rest + ["-"] * 3)[:3]
    return ports


def _port_differences(ports: Mapping[str, list[str]], usual_ports: Mapping[str, list[str]]) -> str:
    missing = [port for port in usual_ports if port not in ports]
    additional = [port for port in ports if port not in usual_ports]
    alike: dict[str, list[str]] = {}
    for port, expected in usual_ports.items():
        properties = zip(("Gb/s", "link layer", "GID index"), ports.get(port, ()), expected)
        for name, value, other in properties:
            # A port without GID is reported by its node.
            if value != other and "-" not in (value, other):
                alike.setdefault(f"{name} {value} instead of {other}", []).append(port)
    texts = []
    if missing:
        texts.append(f"no {' '.join(missing)}")
    if additional:
        texts.append(f"but {' '.join(additional)}")
    return "; ".join([*texts, *(f"{','.join(some)}: {text}" for text, some in alike.items())])


def agree_on_facts(
    reports: Mapping[str, NodeReport], nodes: Sequence[str], settings: Settings
) -> Agreement:
    """Compare kernel, driver, firmware, settings."""
    rows, differences = compare_facts(reports, nodes)
    sentences = _sentences(((node, f": {text}") for node, text in differences), nodes)
    agreement = _agreement(
        sentences,
        _by_node(differences),
        subject="the nodes differ",
        allowed=settings.tuning_differences,
        option="tuning",
    )
    return replace(agreement, rows=rows)


def compare_facts(
    reports: Mapping[str, NodeReport], nodes: Sequence[str]
) -> tuple[list[FactRow], list[tuple[str, str]]]:
    """Return the rows of start.tsv (`*`: most nodes), and (node, difference)."""
    facts = [reports[node].facts if node in reports else {} for node in nodes]
    if all(some == facts[0] for some in facts):
        return [("*", name, value) for name, value in (facts[0] if facts else {}).items()], []
    rows, differences = [], []
    # Bounded: different facts would cost the square of the nodes.
    for name in islice(dict.fromkeys(name for some in facts for name in some), MOST_FACTS):
        values = [some.get(name, "-") for some in facts]
        # A missing image is reported by its check.
        counted = [value for value in values if value != "-"] if name == "image" else values
        most = usual(counted)
        rows.append(("*", name, most))
        if values.count(most) == len(values):
            continue
        for node, value in zip(nodes, values):
            if value != most and (name, value) != ("image", "-"):
                rows.append((node, name, value))
                differences.append((node, f"{name} is {value}, elsewhere {most}"))
    return rows, differences
