"""What ends an attempt that goes on: it hangs, or it does not use RDMA where the site requires it. Rules: docs/set-folder.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..events import NetworkUse, Pulse
from ..settings import Settings

LEAST_S = 600
"""Nothing shorter is a hang, unless the site says so: as long as torch's own collectives wait."""
_COLLECTIVE = re.compile(r"(?i)nccl|all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|broadcast|barrier|synchronize")
_HELD = ("gone", "stopped", "blocked")
"""How the words of a node begin whose processes are in a state that nobody waits in."""


def hung(pulses: Mapping[str, Pulse], settings: Settings) -> str:
    """Return why a run counts as hung, "" as long as it does not. A single line of output on any node is a sign of life."""
    if settings.hang_multiple < 1 or not pulses:
        return ""
    quiet_s = min(one.quiet_ms for one in pulses.values()) / 1000
    interval_s = max(one.interval_ms for one in pulses.values()) / 1000
    unknown_s = settings.hang_multiple * settings.hang_s
    least_s = min(LEAST_S, unknown_s)
    limit_s: float
    if any(one.stopped for one in pulses.values()):
        limit_s, words = least_s, "after run_stop"
    elif not any(one.began for one in pulses.values()):
        limit_s, words = settings.hang_start_s, "before run_start"
    elif interval_s:
        limit_s = max(least_s, settings.hang_multiple * interval_s)
        words = f"its evaluations came {interval_s:.0f} s apart at most"
    else:
        limit_s, words = unknown_s, "no evaluation interval is known yet"
    return (
        f"hung: no output of any node for {quiet_s:.0f} s (limit {limit_s:.0f} s: {words})"
        if quiet_s >= limit_s
        else ""
    )


def stands_out(ranks: Sequence[str], quiet_ms: Mapping[str, int], doing: Mapping[str, str]) -> tuple[str, str]:
    """Return the one node of a hung run that is unlike all others, and how; ("", "") where none is.

    In this order: its processes are gone, stopped or blocked in the kernel; it is not in a collective; it does something else than
    all others do alike; its last output is older, where that of the others ended together.
    """
    if len(ranks) < 2:
        return "", ""
    told = [doing.get(node, "") for node in ranks]
    held = [words for words in told if words.startswith(_HELD)]
    busy = [words for words in told if words and not _COLLECTIVE.search(words)]
    odd = [words for words in told if words and told.count(words) == 1 and len(set(told)) == 2 and len(ranks) > 2]
    for found in (held, busy if all(told) else [], odd if all(told) else []):
        if len(found) == 1 and doing.keys() >= set(ranks):
            return ranks[told.index(found[0])], found[0]
    ages = sorted((quiet_ms[node], node) for node in ranks if node in quiet_ms)
    if len(ages) == len(ranks) > 2:
        (youngest, _), (second, _), (oldest, node) = ages[0], ages[-2], ages[-1]
        # Where one node logs for all, the others are quiet since the start: that tells nothing.
        if oldest - second > 2 * (second - youngest) + 5000:
            return node, f"its last output is {(oldest - second) // 1000} s older than that of the others"
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
    return f"RCCL does not use RDMA although the site says network.rdma: required ({found})" if found else ""
