"""Reasons to end a running attempt: a hang, or missing RDMA. Rules: docs/set-folder.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..kernel.events import UNIT, NetworkUse, Pulse
from ..kernel.plural import count

if TYPE_CHECKING:
    from ..kernel.settings import Settings

LEAST_S = 600
"""The shortest hang by default: torch's collectives wait as long."""
LOOK_S = 60
"""The shortest silence after which evidence is gathered."""
LOOK_TIMES = 3
"""Evidence is gathered after this many of the run's intervals."""
_COLLECTIVE = re.compile(
    r"(?i)nccl|all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|broadcast|barrier|synchronize"
)
_NUMBER = re.compile(r"rank \d+")
_HELD = ("gone", "stopped", "blocked")
"""First words of a node's activity if its processes do not even wait."""


class Silence(NamedTuple):
    """A run's silence on all its running nodes, and the limit for a hang."""

    pulse: Pulse
    """The shortest silence and the longest interval of all nodes."""
    limit_ms: int
    """0: no limit."""
    unheard: int = 0
    """Nodes without a pulse, which suspend the limit."""

    @property
    def quiet_s(self) -> float:
        return self.pulse.quiet_ms / 1000

    @property
    def limit_s(self) -> float:
        return self.limit_ms / 1000

    @property
    def hangs(self) -> bool:
        return 0 < self.limit_ms <= self.pulse.quiet_ms

    @property
    def is_long(self) -> bool:
        """Half of the limit has passed."""
        return 0 < self.limit_ms <= 2 * self.pulse.quiet_ms

    @property
    def is_odd(self) -> bool:
        """Unusual for this run: evidence may be gone later."""
        if not self.limit_ms:
            return False
        interval_ms = self.pulse.interval_ms
        usual_ms = LOOK_TIMES * interval_ms if interval_ms else self.limit_ms // 4
        return self.pulse.quiet_ms >= min(max(1000 * LOOK_S, usual_ms), self.limit_ms // 2)

    @property
    def stage(self) -> tuple[int, ...]:
        """The facts whose change is recorded as a `pulse`: without the passing seconds."""
        began, stopped = self.pulse.began, self.pulse.stopped
        return self.limit_ms, began, stopped, self.pulse.interval_ms > 0, self.is_long, self.hangs

    @property
    def text(self) -> str:
        """`no output of any node for 420 s (limit 600 s: after run_stop)`"""
        text = f"no output of any node for {self.quiet_s:.0f} s"
        if not self.limit_ms:
            return text
        return f"{text} (limit {self.limit_s:.0f} s: {_phase(self.pulse)})"

    @property
    def verdict(self) -> str:
        return f"hung: {self.text}" if self.hangs else ""

    def detail(self, attempt: str) -> str:
        return UNIT.join(map(str, (attempt, self.limit_ms, self.unheard, *self.pulse)))


def silence(pulses: Mapping[str, Pulse], settings: Settings, unheard: int = 0) -> Silence:
    """Any node's output ends the silence. `unheard`: nodes without a pulse."""
    if not pulses:
        return Silence(Pulse(0, 0, 0, 0), 0, unheard)
    quiet, began, interval, stopped = zip(*pulses.values())
    run = Pulse(min(quiet), max(began), max(interval), max(stopped))
    applies = settings.hang_multiple > 0 and not unheard
    return Silence(run, _limit_ms(run, settings) if applies else 0, unheard)


def _limit_ms(run: Pulse, settings: Settings) -> int:
    unknown_ms = 1000 * settings.hang_multiple * settings.hang_s
    least_ms = min(1000 * LEAST_S, unknown_ms)
    if run.stopped:
        return least_ms
    if not run.began:
        return 1000 * settings.hang_start_s
    if run.interval_ms:
        return max(least_ms, settings.hang_multiple * run.interval_ms)
    return unknown_ms


def _phase(run: Pulse) -> str:
    if run.stopped:
        return "after run_stop"
    if not run.began:
        return "before run_start"
    if run.interval_ms:
        return f"its evaluations came {run.interval_ms / 1000:.0f} s apart at most"
    return "no evaluation interval is known yet"


def stands_out(
    ranks: Sequence[str], quiet_ms: Mapping[str, int], doing: Mapping[str, str]
) -> tuple[str, str]:
    """Return a silent run's only node unlike the others, and how, or ("", ""); for a single node,
    its activity.

    In this order: its processes are gone, stopped or blocked in the kernel; it is in no collective;
    its activity differs; its last output is older, while the others' ended together.
    """
    if len(ranks) < 2:
        return next(((node, text) for node, text in doing.items() if text), ("", ""))
    if doing.keys() >= set(ranks):
        texts = [_NUMBER.sub("rank", doing[node]) for node in ranks]
        for odd in _odd_activities(texts):
            if len(odd) == 1:
                node = ranks[texts.index(odd[0])]
                return node, doing[node]
    ages = sorted((quiet_ms[node], node) for node in ranks if node in quiet_ms)
    if len(ages) == len(ranks) > 2:
        (youngest, _), (second, _), (oldest, node) = ages[0], ages[-2], ages[-1]
        # If a single node logs for all, the others are silent from the start.
        if oldest - second > 2 * (second - youngest) + 5000:
            older_s = (oldest - second) // 1000
            return node, f"its last output is {older_s} s older than that of the others"
    return "", ""


def _odd_activities(texts: Sequence[str]) -> Iterator[list[str]]:
    """A list per criterion."""
    yield [text for text in texts if text.startswith(_HELD)]
    if not all(texts):
        return
    yield [text for text in texts if not _COLLECTIVE.search(text)]
    if len(set(texts)) == 2 and len(texts) > 2:
        yield [text for text in texts if texts.count(text) == 1]


def on_sockets(transports: Mapping[str, NetworkUse]) -> str:
    """Name the nodes whose RCCL lacks RDMA; "" without any."""
    nodes = [(node, use) for node, use in sorted(transports.items()) if use.other]
    if not nodes:
        return ""
    node, first = nodes[0]
    more = f" and {count(len(nodes) - 1, 'more node')}" if len(nodes) > 1 else ""
    processes = count(first.rdma + first.other, "process")
    return f"{node}{more}, {first.other} of {processes}: {first.line}"


def unwanted_sockets(transports: Mapping[str, NetworkUse], settings: Settings) -> str:
    """Return why an attempt without required RDMA ends, or ""."""
    if settings.network_rdma != "required":
        return ""
    nodes = on_sockets(transports)
    if not nodes:
        return ""
    return f"RCCL does not use RDMA although the site says network.rdma: required ({nodes})"
