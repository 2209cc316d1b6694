"""Search for nodes that slow an all-reduce down. Rules: docs/deep.md.

A ring is as fast as its slowest member, so a good pair clears both nodes. Disjoint pairs are
measured together, in two rounds (up to six nodes: all pairs), then each uncleared with a cleared
node.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..kernel.plural import count

if TYPE_CHECKING:
    from ..kernel.settings import Settings


ENOUGH_PERCENT = 60
"""Of the reference; below it, fit nodes are slow together."""
LOG_PLACE = "nodes/<node>/deep.log in the set"
Row = tuple[str, str, str]


@dataclass(frozen=True)
class Round:
    """Disjoint groups measured together; `way`: torch or rccl-tests."""

    name: str
    way: str
    groups: tuple[tuple[str, ...], ...]
    short: bool = False
    """Half the limit: a hung node costs it in each round."""


@dataclass(frozen=True)
class GroupResult:
    """`mbps`: bus bandwidth in MB/s; `wrong`: wrong values in the sum; `why`: why the measurement
    does not count."""

    bytes: int = 0
    microseconds: int = 0
    mbps: int = 0
    wrong: int = 0
    why: str = ""

    @property
    def good_mbps(self) -> int:
        """0 for a failure or wrong sums."""
        return 0 if self.why else self.mbps


@dataclass(frozen=True)
class DeepVerdict:
    """`ms`: duration."""

    rows: dict[str, Row]
    """node -> verdict (pass, warn, fail or skip), text, remedy."""
    slow: list[str]
    """Slow, wrong or silent, in rank order."""
    summary: str
    data: dict[str, Any] | None
    """For programs, in MB/s; None without a measurement."""
    ms: int = 0


Rounds = Generator[Round, "list[GroupResult]", None]


class Search:
    """Call `ready` or `lost` per node, `next_round` and `take` until None or sooner, then
    `verdict`. `nodes`: in rank order, not empty."""

    def __init__(self, nodes: list[str], settings: Settings) -> None:
        self.nodes, self.settings = nodes, settings
        self.gpus: dict[str, int] = {}
        """Node -> GPUs seen by torch."""
        self.notes: dict[str, str] = {}
        """Node -> why torch sees fewer."""
        self._rccl_tests: set[str] = set()
        self.silent: dict[str, str] = {}
        """Node -> reason."""
        self.bad: dict[str, str] = {}
        """Node -> reason."""
        self.way = self.skip = self.halves = ""
        self.wholes: list[tuple[int, GroupResult]] = []
        """(nodes, their all-reduce): round `all` first, `rest` last."""
        self.best: dict[str, int] = {}
        """Node -> best MB/s in pairs."""
        self.failure: dict[str, str] = {}
        self._rounds: Rounds | None = None
        self._wanted: Round | None = None

    def ready(self, node: str, gpus: int, *, rccl_tests: bool = False, note: str = "") -> None:
        self.gpus[node], self.notes[node] = gpus, note
        if rccl_tests:
            self._rccl_tests.add(node)

    def lost(self, node: str, reason: str) -> None:
        """The first reason counts."""
        self.silent.setdefault(node, reason)

    @property
    def live(self) -> list[str]:
        """Neither silent nor bad."""
        return [node for node in self.nodes if node not in self.silent and node not in self.bad]

    @property
    def fit(self) -> int:
        """MB/s of all fit nodes together."""
        return self.wholes[-1][1].good_mbps if self.wholes else 0

    def next_round(self) -> Round | None:
        """The same round until `take`; None at the end."""
        if self._rounds is None:
            self._rounds = self._search()
            self._wanted = next(self._rounds, None)
        return self._wanted

    def take(self, results: list[GroupResult]) -> None:
        try:
            self._wanted = self._rounds.send(results) if self._rounds else None
        except StopIteration:
            self._wanted = None

    def _search(self) -> Rounds:
        live = self.live
        if self._cannot(live):
            self.skip = self._cannot(live)
            return
        self.way = "torch"
        if self.gpus[live[0]] > 1:
            yield from self._each_alone()
        if len(self.live) < 2:
            return
        yield from self._together("all")
        if len(self.live) < 3:
            return
        yield from self._pairs()
        # Try again after a failure without a bad node.
        if (self.bad or self.silent or not self.fit) and len(self.live) > 1:
            yield from self._together("rest")
        live = self.live
        if self.fit < max(1, self._floor()) and len(live) > 3:
            # Slow together: is the link between the halves slow?
            half = len(live) // 2
            first, second = yield self._round("halves", [live[:half], live[half:]])
            self.halves = (
                f"the halves alone reach {gbps(first.good_mbps)} and {gbps(second.good_mbps)} GB/s"
            )

    def _cannot(self, live: list[str]) -> str:
        if not live:
            return f"no node can measure ({self.nodes[0]}: {self.silent[self.nodes[0]]})"
        fewest, most = (choice(live, key=lambda node: self.gpus[node]) for choice in (min, max))
        if self.gpus[fewest] == 0:
            return f"{fewest}: {self.notes[fewest] or 'torch sees no GPU'}"
        # Ranks count GPUs, so nodes need equal numbers.
        if self.gpus[fewest] != self.gpus[most]:
            seen = f"{count(self.gpus[fewest], 'GPU')} on {fewest}, {self.gpus[most]} on {most}"
            return f"torch sees {seen}"
        if len(live) == 1 and self.gpus[fewest] == 1:
            return "one node with one GPU: nothing to measure"
        return ""

    def _round(self, name: str, groups: list[list[str]], way: str = "") -> Round:
        whole_failed = bool(self.wholes) and not self.wholes[0][1].good_mbps
        return Round(name, way or self.way, tuple(map(tuple, groups)), whole_failed)

    def _together(self, name: str) -> Rounds:
        live = self.live
        [whole] = yield self._round(name, [live])
        self.wholes.append((len(live), whole))

    def _each_alone(self) -> Rounds:
        """Measure slow nodes twice."""
        suspects, level, first = self.live, 0, GroupResult()
        way = "rccl-tests" if self._rccl_tests.issuperset(suspects) else "torch"
        for name in ("alone1", "alone2"):
            results = yield self._round(name, [[node] for node in suspects], way)
            reached = upper_quartile(result.good_mbps for result in results)
            if reached > level:
                level, first = reached, results[0]
            slow: dict[str, str] = {}
            for node, result in zip(suspects, results):
                if result.why:
                    slow[node] = f"its own GPUs: {result.why}"
                elif too_slow(result.mbps, level):
                    rate = f"{gbps(result.mbps)} GB/s between its GPUs"
                    slow[node] = f"slow by itself: {rate}, other nodes {gbps(level)}"
            suspects = [node for node in slow if node not in self.silent]
            if not suspects:
                break
        self.bad.update((node, slow[node]) for node in suspects)
        if len(self.nodes) == 1:  # the whole
            self.way = way
            self.wholes += [(1, first)] if self.live else []

    def _meet(
        self, name: str, pairs: list[list[str]]
    ) -> Generator[Round, list[GroupResult], list[int]]:
        """Return MB/s of the pairs, 0 for failures."""
        results = yield self._round(name, pairs)
        for pair, result in zip(pairs, results):
            for node in pair:
                self.best[node] = max(result.good_mbps, self.best.get(node, 0))
                if result.why:
                    self.failure[node] = result.why
        return [result.good_mbps for result in results]

    def _pairs(self) -> Rounds:
        """Up to a third of the nodes may be slow."""
        measured: list[tuple[int, list[str]]] = []
        count = len(self.live)
        for number in range(2 if count > 6 else count - 1 + count % 2):
            pairs = matching(self.live, number)
            if not pairs:
                break
            rates = yield from self._meet(f"pairs{number + 1}", pairs)
            measured += zip(rates, pairs)
        level = upper_quartile(self.best.values())
        good = {
            node for rate, pair in measured if rate and not too_slow(rate, level) for node in pair
        }
        yield from self._confirm(good, level)

    def _confirm(self, cleared: set[str], usual: int) -> Rounds:
        """Pair uncleared with cleared nodes; a slow pair is bad."""
        suspects = [node for node in self.live if node not in cleared]
        # Without a good pair, slow nodes remain unknown.
        while suspects and (good := [node for node in self.live if node in cleared]):
            meetings = [[node, suspect] for node, suspect in zip(good, suspects)]
            suspects = suspects[len(meetings) :]
            # A good pair meanwhile: a slow moment blames nobody.
            reference = good[len(meetings) : len(meetings) + 2]
            rates = yield from self._meet(
                "confirm", meetings + ([reference] if len(reference) == 2 else [])
            )
            level = min([usual, *filter(None, rates[len(meetings) :])])
            for (_, node), rate in zip(meetings, rates):
                if not rate or too_slow(rate, level):
                    self.bad[node] = self._why_bad(node, level)

    def _why_bad(self, node: str, level: int) -> str:
        """`level`: MB/s of good pairs."""
        best = self.best[node]
        if best:
            return f"slow: pairs with it reach {gbps(best)} GB/s at best, others {gbps(level)}"
        reason = self.failure.get(node, "no reason given")
        return f"no all-reduce with it succeeds: {reason}"

    def reference(self) -> tuple[int, str]:
        """Return the expected MB/s of all nodes (0: unknown) and its source.

        NICs carry the node's share of every ring, which bounds the bus bandwidth.
        """
        settings = self.settings
        if re.fullmatch(r"\d{1,9}(\.\d+)?", settings.preflight_deep_gbps, re.ASCII):
            return round(float(settings.preflight_deep_gbps) * 1000), "deep_gbps of the site"
        if settings.network_rdma != "off" and len(self.nodes) > 1:
            devices, each = settings.fabric_devices, settings.fabric_gbps
            return each * devices * 1000 // 8, f"{devices} NICs of {each} Gb/s"
        return 0, ""

    def _floor(self) -> int:
        return self.reference()[0] * ENOUGH_PERCENT // 100

    def skipped(self, reason: str) -> DeepVerdict:
        rows = dict.fromkeys(self.nodes, ("skip", reason, ""))
        return DeepVerdict(rows, [], f"bandwidth not measured: {reason}", None)

    def verdict(self) -> DeepVerdict:
        if len(self.silent) == len(self.nodes):
            # Image or engine are at fault.
            return self.skipped(self.skip or self.silent[self.nodes[0]])
        # The site decides.
        fail = "warn" if "deep" in self.settings.preflight_warn else "fail"
        together = self._together_row(fail)
        rows = dict.fromkeys(self.nodes, together)
        for node, why in self.bad.items():
            rows[node] = (
                fail,
                why,
                f"leave {node} out; check its GPUs, network card, cable and switch port",
            )
        for node, why in self.silent.items():
            rows[node] = fail, why, f"check {LOG_PLACE}"
        slow = [
            node
            for node in self.nodes
            if node in self.silent or node in self.bad or together[0] == "fail"
        ]
        summary = together[1] + (f"; slow or silent: {' '.join(slow)}" if slow else "")
        if not self.wholes:
            return DeepVerdict(rows, slow, summary, None)
        _, whole = self.wholes[0]
        count, last = self.wholes[-1]
        data = {
            "way": self.way,
            "nodes": count,
            "busbw_mbps": last.good_mbps,
            "all_mbps": whole.good_mbps,
            "reference_mbps": self.reference()[0],
            "bytes": last.bytes,
            "slow": slow,
            "summary": summary,
        }
        return DeepVerdict(rows, slow, summary, data)

    def _together_row(self, fail: str) -> Row:
        if not self.wholes:
            return "skip", self.skip or "not measured: no time or no nodes left", ""
        if not self.fit:
            nodes, whole = self.wholes[-1]
            remedy = f"check {LOG_PLACE}, NCCL_SOCKET_IFNAME and NCCL_IB_HCA"
            text = f"the all-reduce over {count(nodes, 'node')} failed"
            return fail, f"{text}: {whole.why or 'no reason given'}", remedy
        if self.fit < self._floor():
            remedy = "check the switches between them, and network.tsv of the nodes"
            return "warn", self._whole_text(), f"no node is slower than the others: {remedy}"
        return "pass", self._whole_text(), ""

    def _whole_text(self) -> str:
        (whole_nodes, whole), (last_nodes, last) = self.wholes[0], self.wholes[-1]
        size = f"{last.bytes >> 20} MiB" if last.bytes >= 1 << 20 else f"{last.bytes >> 10} KiB"
        nodes = count(last_nodes, "node")
        text = f"bus bandwidth {gbps(self.fit)} GB/s over {nodes} ({size}, {self.way})"
        reference, origin = self.reference()
        if reference:
            text += f", {self.fit * 100 // reference} % of {gbps(reference)} ({origin})"
        if whole.good_mbps and last_nodes != whole_nodes:
            text += f"; {gbps(whole.good_mbps)} GB/s over all {whole_nodes}"
        return text + (f"; {self.halves}" if self.halves else "")


def matching(nodes: list[str], number: int) -> list[list[str]]:
    """Return disjoint pairs, different in each round `number` (0, 1, ...)."""
    count = len(nodes)
    if count > 6:
        if number == 0:  # neighbours mostly share a switch
            return [nodes[i : i + 2] for i in range(0, count - 1, 2)]
        # The halves with each other, and the node that rested.
        half, first = count // 2, count % 2
        return [[nodes[first + i], nodes[first + i + half]] for i in range(half)]
    # A round-robin tournament; of an odd number, a node rests.
    even = count + count % 2
    places = [
        ((number - i) % (even - 1), (number + i) % (even - 1) if i else even - 1)
        for i in range(even // 2)
    ]
    return [[nodes[a], nodes[b]] for a, b in places if max(a, b) < count]


MARGIN = 85
"""Per cent of the others' bandwidth."""
SOCKET_MARGIN = 50
"""For sockets (`tcp`) in older sets."""
Rate = TypeVar("Rate", int, float)


def upper_quartile(rates: Iterable[Rate]) -> Rate:
    """Return a rate that over a quarter reach, or 0."""
    ordered = sorted(rates)
    return ordered[(3 * (len(ordered) - 1) + 2) // 4] if ordered else 0


def too_slow(rate: float, good: float, way: str = "") -> bool:
    """Rates in the same unit. `way`: of old sets."""
    return rate * 100 < good * (SOCKET_MARGIN if way == "tcp" else MARGIN)


def gbps(mbps: int) -> str:
    """Convert MB/s for people."""
    return f"{mbps / 1000:.3f}" if mbps < 10_000 else f"{(mbps + 50) // 100 / 10:.1f}"
