"""While an attempt goes on: whether it hangs or goes over sockets, and what its nodes tell about a hang before they end it."""

from __future__ import annotations

from ..kernel.settings import Settings
from ..policy.during import LEAST_S, Silence, silence, unwanted_sockets
from .going import Going
from .hold import Group
from .nodes import Flow

EVIDENCE_S = 60.0
"""Nodes take 45 s at most (agent/evidence.py)."""
_LOOK_S = 30.0
PULSE_S = 60.0
"""How often a `pulse` is recorded at least. A change of the silence's stage is recorded at once."""


def look_s(settings: Settings) -> float:
    """Return how often nodes are asked for their pulse, in seconds."""
    often = [_LOOK_S, settings.node_silence_s / 4]
    if settings.hang_multiple > 0:
        often += [min(LEAST_S, settings.hang_multiple * settings.hang_s, settings.hang_start_s) / 4]
    return max(0.2, min(often))


def why_end(group: Group, going: Going, left: list[str], now: float) -> Flow:
    """Return why the attempt is to be ended while `left` go on, "" where it is not; the decision is on record."""
    settings = group.settings
    if reason := unwanted_sockets(going.transports, settings):
        told = {node: list(one) for node, one in going.transports.items()}
        group.note("sockets", detail={"told": told, "reason": reason})
        going.sockets = [node for node, one in going.transports.items() if one.other]
        return reason
    if going.exits:  # the others end within end_grace_s; often only the first one to end has ever printed
        return ""
    pulses = {node: going.pulses[node] for node in left if node in going.pulses}
    quiet = silence(pulses, settings, len(left) - len(pulses))
    _record(group, going, quiet, now)
    reason = quiet.verdict
    if reason:
        group.note("hung", detail={"pulses": {node: list(one) for node, one in pulses.items()}, "reason": reason})
        group.job.log(f"run {going.run} attempt {going.number} {reason}; asking the nodes what they do")
        yield from _gather(group, going, left)
        where = group.job.layout.hang(going.run, going.number, "NODE").relative_to(group.job.layout.root)
        reason = f"{reason}; evidence in {where}"
    return reason


def _record(group: Group, going: Going, quiet: Silence, now: float) -> None:
    """Record how silent the run is, about once a minute: readers show it, and see the loop alive."""
    if quiet.stage != going.stage or now >= going.pulse_due:
        going.stage, going.pulse_due = quiet.stage, now + PULSE_S
        group.note("pulse", detail=quiet.detail(going.id))


def _gather(group: Group, going: Going, left: list[str]) -> Flow:
    """Have the nodes write what they know."""
    group.send({"do": "evidence", "id": going.id})
    now = group.job.world.now
    deadline = now() + EVIDENCE_S
    while now() < deadline and not group.job.ending and group.step is not None and group.step.alive:
        group.look_for_ended()
        if all(node in going.doing or node in going.exits or group.is_gone(node) for node in left):
            return
        yield group.look_again(deadline)
