"""What ends an attempt that goes on: it hangs, or it does not use RDMA where the site requires it. Rules: docs/set-folder.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..kernel.events import UNIT, Event, NetworkUse, Pulse, number

if TYPE_CHECKING:
    from ..kernel.settings import Settings

LEAST_S = 600
"""Nothing shorter is a hang, unless the site says so: as long as torch's own collectives wait."""
_COLLECTIVE = re.compile(
    r"(?i)nccl|all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|broadcast|barrier|synchronize"
)
_HELD = ("gone", "stopped", "blocked")
"""How the words of a node begin whose processes are in a state that nobody waits in."""


class Silence(NamedTuple):
    """How long a run has printed nothing on any node, and when it is ended as hung."""

    pulse: Pulse
    """Of the whole run: the shortest silence and the longest interval of all nodes."""
    limit_ms: int
    """0: no limit applies."""
    unheard: int = 0
    """Nodes that have sent no pulse in this attempt. No limit applies before all have."""

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
        """Half of the limit has passed: people are shown how long the rest is."""
        return 0 < self.limit_ms <= 2 * self.pulse.quiet_ms

    @property
    def stage(self) -> tuple[int, ...]:
        """What the verdict depends on, without the seconds that pass."""
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
        """Why the run counts as hung, "" as long as it does not."""
        return f"hung: {self.text}" if self.hangs else ""

    def detail(self, attempt: str) -> str:
        """Return the detail of the `pulse` event of an attempt (`3.1`)."""
        return UNIT.join(map(str, (attempt, self.limit_ms, self.unheard, *self.pulse)))


def recorded(event: Event) -> tuple[str, Silence] | None:
    """Return the attempt (`3.1`) and the silence in a `pulse` event; None if it is damaged."""
    attempt, *parts = event.parts
    numbers = [value for part in parts if (value := number(part)) is not None and value >= 0]
    if len(parts) != 6 or len(numbers) != 6:
        return None
    limit_ms, unheard, *pulse = numbers
    return attempt, Silence(Pulse(*pulse), limit_ms, unheard)


def silence(pulses: Mapping[str, Pulse], settings: Settings, unheard: int = 0) -> Silence:
    """Return how long a run is silent and which limit applies now.

    A single line of output on any node is a sign of life. `unheard`: nodes without a pulse so far.
    """
    if not pulses:
        return Silence(Pulse(0, 0, 0, 0), 0, unheard)
    quiet, began, interval, stopped = zip(*pulses.values(), strict=True)
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
    """Return why the limit is what it is."""
    if run.stopped:
        return "after run_stop"
    if not run.began:
        return "before run_start"
    if run.interval_ms:
        return f"its evaluations came {run.interval_ms / 1000:.0f} s apart at most"
    return "no evaluation interval is known yet"


def hung(pulses: Mapping[str, Pulse], settings: Settings) -> str:
    """Return why a run counts as hung, "" as long as it does not."""
    return silence(pulses, settings).verdict


def stands_out(
    ranks: Sequence[str], quiet_ms: Mapping[str, int], doing: Mapping[str, str]
) -> tuple[str, str]:
    """Return the one node of a hung run that is unlike all others, and how; ("", "") where none is.

    In this order: its processes are gone, stopped or blocked in the kernel; it is not in a collective; it does something else than
    all others do alike; its last output is older, where that of the others ended together.
    """
    if len(ranks) < 2:
        return "", ""
    told = [doing.get(node, "") for node in ranks]
    held = [words for words in told if words.startswith(_HELD)]
    busy = [words for words in told if words and not _COLLECTIVE.search(words)]
    odd = [
        words
        for words in told
        if words and told.count(words) == 1 and len(set(told)) == 2 and len(ranks) > 2
    ]
    for found in (held, busy if all(told) else [], odd if all(told) else []):
        if len(found) == 1 and doing.keys() >= set(ranks):
            return ranks[told.index(found[0])], found[0]
    ages = sorted((quiet_ms[node], node) for node in ranks if node in quiet_ms)
    if len(ages) == len(ranks) > 2:
        (youngest, _), (second, _), (oldest, node) = ages[0], ages[-2], ages[-1]
        # Where one node logs for all, the others are quiet since the start: that tells nothing.
        if oldest - second > 2 * (second - youngest) + 5000:
            return (
                node,
                f"its last output is {(oldest - second) // 1000} s older than that of the others",
            )
    return "", ""


def on_sockets(told: Mapping[str, NetworkUse]) -> str:
    """Return what is wrong with how RCCL reaches other nodes, "" where every rank that said it uses RDMA."""
    found = [(node, one) for node, one in sorted(told.items()) if one.other]
    if not found:
        return ""
    node, first = found[0]
    more = f" and {len(found) - 1} more nodes" if len(found) > 1 else ""
    return f"{node}{more}, {first.other} of {first.rdma + first.other} processes: {first.line}"


def unwanted_sockets(told: Mapping[str, NetworkUse], settings: Settings) -> str:
    """Return why an attempt is ended where the site requires RDMA, or ""."""
    found = on_sockets(told) if settings.network_rdma == "required" else ""
    return (
        f"RCCL does not use RDMA although the site says network.rdma: required ({found})"
        if found
        else ""
    )
