"""Which nodes make an all-reduce slow: what to measure next, and the verdict on every node. docs/deep.md has the rules.

A ring is as fast as its slowest member, so one good pair clears both of its nodes. Pairs are disjoint and measured at the same
time: with any number of nodes it takes two rounds of pairs (up to six nodes: all pairs there are), and one in which each node that
was in no good pair meets one that was.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..settings import Settings

ENOUGH_PERCENT = 60
"""Of the reference: below that the fit nodes together are slow."""
LOG_PLACE = "nodes/<node>/deep.log in the set"


@dataclass(frozen=True)
class Round:
    """Groups of nodes, no node in two of them, to be measured at the same time in one way: torch, rccl-tests or tcp."""

    name: str
    way: str
    groups: tuple[tuple[str, ...], ...]
    short: bool = False
    """Half of the time limit is enough: two nodes meet faster than all, and a node that hangs costs every round its limit."""


@dataclass(frozen=True)
class GroupResult:
    """One all-reduce: bytes, microseconds, bus bandwidth in MB/s, wrong values in the sum; `why` it failed, "" where it did not."""

    bytes: int = 0
    microseconds: int = 0
    mbps: int = 0
    wrong: int = 0
    why: str = ""

    @property
    def good_mbps(self) -> int:
        """What gives wrong sums is not fast."""
        return 0 if self.why else self.mbps


@dataclass(frozen=True)
class DeepVerdict:
    """`rows`: (verdict, text, remedy) by node, verdict pass, warn, fail or skip; `slow`: slow, wrong or silent, in rank order."""

    rows: dict[str, tuple[str, str, str]]
    slow: list[str]
    summary: str
    data: dict[str, Any] | None
    """The same for programs; None where nothing was measured. Bandwidths in MB/s."""
    ms: int = 0
    """How long all of it took."""


Rounds = Generator[Round, "list[int]", None]


class Search:
    """Say what each node can (`ready`, `lost`), then `next_round` and `take` in turn until None, then `verdict`.

    `nodes` are in rank order, at least one. A search that is broken off is judged by what was measured.
    """

    def __init__(self, nodes: list[str], settings: Settings) -> None:
        self.nodes, self.settings = nodes, settings
        self.gpus: dict[str, int] = {}
        self.tests: dict[str, bool] = {}
        self.silent: dict[str, str] = {}
        """Nodes that do not answer (any more), and why."""
        self.bad: dict[str, str] = {}
        """Nodes that are named, and why."""
        self.way = self.skip = self.halves = ""
        self.whole = self.whole_nodes = self.fit = self.fit_nodes = self.bytes = self.level = self.alone = 0
        self.whole_why = ""
        self.good: set[str] = set()
        self.met: dict[str, int] = {}
        self.failure: dict[str, str] = {}
        self.short = False
        self.last: list[GroupResult] = []
        self._rounds: Rounds | None = None
        self._wanted: Round | None = None

    def ready(self, node: str, gpus: int, rccl_tests: bool) -> None:
        """Take what a node can measure with: GPUs that torch sees, and whether it has rccl-tests."""
        self.gpus[node], self.tests[node] = gpus, rccl_tests

    def lost(self, node: str, reason: str) -> None:
        """Take that a node does not answer; the first reason counts."""
        self.silent.setdefault(node, reason)

    @property
    def live(self) -> list[str]:
        """The nodes that are neither lost nor named, in rank order."""
        return [node for node in self.nodes if node not in self.silent and node not in self.bad]

    def next_round(self) -> Round | None:
        """Return what to measure next, None when the search is over. The same again until `take` was called."""
        if self._rounds is None:
            self._choose_way()
            self._rounds = self._search()
            self._wanted = next(self._rounds, None)
        return self._wanted

    def take(self, results: list[GroupResult]) -> None:
        """Take the results of the round, one for each of its groups."""
        self.last = results
        assert self._rounds
        try:
            self._wanted = self._rounds.send([one.good_mbps for one in results])
        except StopIteration:
            self._wanted = None

    def _choose_way(self) -> None:
        live = self.live
        counts = {self.gpus.get(node, 0) for node in live}
        # Ranks are counted in GPUs, so all nodes need the same number of them.
        gpus = counts.pop() if len(counts) == 1 else 0
        if not live:
            self.skip = f"no node can measure ({self.nodes[0]}: {self.silent[self.nodes[0]]})"
        elif gpus > 0 and (len(live) > 1 or gpus > 1):
            self.way = "torch"
        elif len(live) == 1:
            self.skip = "one node, and torch sees no two GPUs in it: nothing to measure"
        else:
            self.way = "tcp"

    def _search(self) -> Rounds:
        """Measure the whole, name the slow ones, and measure the whole without them."""
        if not self.way:
            return
        if self.way == "torch" and self.gpus[self.live[0]] > 1:
            yield from self._each_alone()
        live = self.live
        if len(live) < 2:
            if live == self.nodes:  # one node: what it reached by itself is the whole
                self.whole = self.fit = self.alone
                self.whole_nodes = self.fit_nodes = 1
            return
        yield from self._together("all")
        self.whole, self.whole_nodes, self.short = self.fit, self.fit_nodes, self.fit == 0
        if len(self.live) < 3:
            return
        yield from self._pairs()
        yield from self._confirm()
        live = self.live
        # A whole that failed though no node is to blame gets another chance.
        if (self.bad or self.silent or not self.whole) and len(live) > 1:
            yield from self._together("rest")
        live = self.live
        if (self.fit == 0 or self.fit < self._floor()) and len(live) > 3:
            # No node is slow, but together they are: is it the way from one half to the other?
            half = len(live) // 2
            one, other = yield self._round("halves", [live[:half], live[half:]])
            self.halves = f"the halves alone reach {gbps(one)} and {gbps(other)} GB/s"

    def _round(self, name: str, groups: list[list[str]], way: str = "") -> Round:
        return Round(name, way or self.way, tuple(map(tuple, groups)), self.short)

    def _together(self, name: str) -> Rounds:
        live = self.live
        [self.fit] = yield self._round(name, [live])
        self.fit_nodes, self.bytes, self.whole_why = len(live), self.last[0].bytes, self.last[0].why

    def _each_alone(self) -> Rounds:
        """Measure every node by itself: its GPUs and the links between them. Who is slow has another try."""
        suspects, why = self.live, {}
        way = "rccl-tests" if all(self.tests[node] for node in suspects) else "torch"
        for again in (1, 2):
            rates = yield self._round(f"alone{again}", [[node] for node in suspects], way)
            if upper_quartile(rates) > self.alone:
                self.alone, self.bytes = upper_quartile(rates), self.last[0].bytes
            asked, suspects = suspects, []
            for node, rate, result in zip(asked, rates, self.last):
                if node in self.silent or (not result.why and self._good(rate, self.alone)):
                    continue
                why[node] = (
                    f"its own GPUs: {result.why}"
                    if result.why
                    else (f"slow by itself: {gbps(rate)} GB/s between its GPUs, other nodes {gbps(self.alone)}")
                )
                suspects.append(node)
            if not suspects:
                break
        self.bad.update((node, why[node]) for node in suspects)
        if len(self.nodes) == 1:
            self.way = way

    def _good(self, rate: int, level: int) -> bool:
        return not too_slow(rate, level, self.way)

    def _pairs(self) -> Rounds:
        """Measure disjoint pairs: what good ones reach is the level, and clears both of their nodes."""
        found: list[tuple[int, list[str]]] = []
        count = len(self.live)
        for number in range(2 if count > 6 else count - 1 + count % 2):
            pairs = matching(self.live, number)
            if not pairs:
                break
            rates = yield self._round(f"pairs{number + 1}", pairs)
            self.level = max(self.level, upper_quartile(rates))
            found += zip(rates, pairs)
            self._remember(pairs, rates)
        self.good = {node for rate, pair in found if rate and self._good(rate, self.level) for node in pair}

    def _remember(self, pairs: list[list[str]], rates: list[int]) -> None:
        """Keep the best that each node of a pair reached, and its last failure."""
        for pair, rate, result in zip(pairs, rates, self.last):
            for node in pair:
                if result.why:
                    self.failure[node] = result.why
                if rate:
                    self.met[node] = max(rate, self.met.get(node, 0))

    def _confirm(self) -> Rounds:
        """Let each node that was in no good pair meet a good one; name those that are slow with it, too."""
        suspects = [node for node in self.live if node not in self.good]
        while suspects:
            good = [node for node in self.live if node in self.good]
            # Without a good pair nobody can be told from the others.
            if not good:
                return
            meetings = [[one, suspect] for one, suspect in zip(good, suspects)]
            suspects = suspects[len(meetings) :]
            beside = good[len(meetings) : len(meetings) + 2]
            # A pair of good ones beside them, so that a moment in which everything is slower names nobody.
            rates = yield self._round("confirm", meetings + ([beside] if len(beside) == 2 else []))
            level = min([self.level, *filter(None, rates[len(meetings) :])])
            self._remember(meetings, rates)
            for (_, node), rate in zip(meetings, rates):
                if rate == 0 or not self._good(rate, level):
                    self.bad[node] = self._slow_text(node, level)

    def _slow_text(self, node: str, level: int) -> str:
        if node not in self.met:
            return f"no all-reduce with it succeeds: {self.failure.get(node, 'no reason given')}"
        return f"slow: pairs with it reach {gbps(self.met[node])} GB/s at best, others {gbps(level)}"

    def reference(self) -> tuple[int, str]:
        """Return what the whole should reach in MB/s, 0 where that is not known, and who says so.

        All NICs of a node together carry its share of every ring, so that is the most that the bus bandwidth can be.
        """
        given = re.fullmatch(r"(\d{1,9})(?:\.(\d+))?", self.settings.preflight_deep_gbps, re.ASCII)
        if given:
            return int(given[1]) * 1000 + int(((given[2] or "") + "000")[:3]), "deep_gbps of the site"
        if self.way == "torch" and self.settings.network_rdma != "off" and len(self.nodes) > 1:
            devices, each = self.settings.fabric_devices, self.settings.fabric_gbps
            return each * devices * 1000 // 8, f"{devices} NICs of {each} Gb/s"
        return 0, ""

    def _floor(self) -> int:
        return self.reference()[0] * ENOUGH_PERCENT // 100

    def skipped(self, reason: str) -> DeepVerdict:
        """Return the verdict on nodes that were not measured."""
        rows = dict.fromkeys(self.nodes, ("skip", reason, ""))
        return DeepVerdict(rows, [], f"bandwidth not measured: {reason}", None)

    def verdict(self, ending: str = "") -> DeepVerdict:
        """Return the verdict on every node. `ending` is why it was broken off."""
        if len(self.silent) == len(self.nodes):
            # It is not a node then, but the image or the engine.
            return self.skipped(self.skip or self.silent[self.nodes[0]])
        # A site can make this check a warning.
        fail = "warn" if "deep" in self.settings.preflight_warn else "fail"
        verdict, text, remedy = self._together_row(fail, ending)
        rows, slow = {}, []
        for node in self.nodes:
            if node in self.silent:
                rows[node] = (fail, self.silent[node], f"look at {LOG_PLACE}")
            elif node in self.bad:
                advice = f"leave {node} out; look at its GPUs, network card, cable and switch port"
                rows[node] = (fail, self.bad[node], advice)
            else:
                rows[node] = (verdict, text, remedy)
                if verdict != "fail":
                    continue
            slow.append(node)
        summary = text + (f"; slow or silent: {' '.join(slow)}" if slow else "")
        data = {
            "way": self.way,
            "nodes": self.fit_nodes,
            "busbw_mbps": self.fit,
            "all_mbps": self.whole,
            "reference_mbps": self.reference()[0],
            "bytes": self.bytes,
            "slow": slow,
            "summary": summary,
        }
        return DeepVerdict(rows, slow, summary, data)

    def _together_row(self, fail: str, ending: str) -> tuple[str, str, str]:
        """Return (verdict, text, remedy) of the nodes that are neither lost nor named."""
        if not self.way:
            return "skip", self.skip, ""
        if not self.fit_nodes:
            return "skip", f"not measured: {ending or 'no time or no nodes left'}", ""
        if not self.fit:
            why = self.whole_why or "no reason given"
            remedy = f"look at {LOG_PLACE}, NCCL_SOCKET_IFNAME and NCCL_IB_HCA"
            return fail, f"the all-reduce over {self.fit_nodes} nodes failed: {why}", remedy
        if self.fit < self._floor():
            remedy = (
                "no node is slower than the others: look at the switches between them and at network.tsv of the nodes"
            )
            return "warn", self._whole_text(), remedy
        return "pass", self._whole_text(), ""

    def _whole_text(self) -> str:
        size = f"{self.bytes >> 20} MiB" if self.bytes >= 1 << 20 else f"{self.bytes >> 10} KiB"
        plural = "" if self.fit_nodes == 1 else "s"
        text = f"bus bandwidth {gbps(self.fit)} GB/s over {self.fit_nodes} node{plural} ({size}, {self.way})"
        reference, origin = self.reference()
        if reference:
            text += f", {self.fit * 100 // reference} % of {gbps(reference)} ({origin})"
        if self.whole and self.fit_nodes != self.whole_nodes:
            text += f"; {gbps(self.whole)} GB/s over all {self.whole_nodes}"
        return text + (f"; {self.halves}" if self.halves else "")


def matching(nodes: list[str], number: int) -> list[list[str]]:
    """Return disjoint pairs of `nodes`; rounds 0, 1, ... differ in all their pairs."""
    count = len(nodes)
    if count > 6:
        if number == 0:  # neighbours, which mostly share a switch
            return [nodes[i : i + 2] for i in range(0, count - 1, 2)]
        # One half with the other. With an odd number, not the node that rested before.
        half, first = count // 2, count % 2
        return [[nodes[first + i], nodes[first + i + half]] for i in range(half)]
    # All pairs, as a tournament plays them; with an odd number one node rests.
    even = count + count % 2
    places = [((number - i) % (even - 1), (number + i) % (even - 1) if i else even - 1) for i in range(even // 2)]
    return [[nodes[a], nodes[b]] for a, b in places if max(a, b) < count]


MARGIN = {"torch": 85, "rccl-tests": 85, "tcp": 50}
"""Good is what reaches so many per cent of the others' bandwidth; sockets share their hosts with everything else."""
Rate = TypeVar("Rate", int, float)


def upper_quartile(rates: Iterable[Rate]) -> Rate:
    """Return what good ones reach; slow ones do not pull it down as long as more than a quarter is good. 0 without any."""
    ordered = sorted(rates)
    return ordered[(3 * (len(ordered) - 1) + 2) // 4] if ordered else 0


def too_slow(rate: float, good: float, way: str) -> bool:
    """Return whether a bandwidth is that of a slow node; both in the same unit."""
    return rate * 100 < good * MARGIN.get(way, 85)


def gbps(mbps: int) -> str:
    """Return MB/s as GB/s for people."""
    if mbps < 10_000:
        return f"{mbps // 1000}.{mbps % 1000:03}"
    return f"{(mbps + 50) // 1000}.{(mbps + 50) % 1000 // 100}"
