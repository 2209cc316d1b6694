"""The watch over a running attempt, which may hang or use sockets, and evidence of a hang."""

from __future__ import annotations

from ..kernel.flow import Flow
from ..kernel.settings import Settings
from ..policy.hang import LEAST_S, Silence, on_sockets, silence, unwanted_sockets
from .attempt_reports import AttemptReports
from .group import Group

EVIDENCE_S = 60.0
"""Nodes take 45 s at most (agent/evidence.py)."""
PING_S = 30.0
PULSE_S = 60.0
"""Interval of recorded `pulse` events. A change of the silence's stage is recorded at once."""


def ping_interval_s(settings: Settings) -> float:
    """Return the interval in which nodes are asked for their pulse."""
    intervals = [PING_S, settings.node_silence_s / 4]
    if settings.hang_multiple > 0:
        unknown_s = settings.hang_multiple * settings.hang_s
        intervals.append(min(LEAST_S, unknown_s, settings.hang_start_s) / 4)
    return max(0.2, min(intervals))


class HangWatch:
    """The watch over one attempt. `ended`: why it is ended before its time, or ""."""

    def __init__(self, group: Group, reports: AttemptReports) -> None:
        self.ended = ""
        self.sockets: list[str] = []
        """The nodes without RDMA, if that ends it."""
        self._group, self._reports = group, reports
        self._stage: tuple[int, ...] | None = None
        """Of the attempt's silence, as last recorded."""
        self._pulse_due = 0.0
        """Time of the next `pulse` (World.now)."""

    def check(self, left: list[str], now: float) -> Flow:
        """Decide whether to end the attempt, which still runs on `left`; record the decision."""
        reports, group = self._reports, self._group
        if reason := unwanted_sockets(reports.transports, group.settings):
            detail = {node: list(use) for node, use in reports.transports.items()}
            group.record.note("sockets", detail={"told": detail, "reason": reason})
            self.sockets = [node for node, use in reports.transports.items() if use.other]
            self.ended = reason
        elif not reports.exits:  # else the others end soon; often only the first has printed
            self.ended = yield from self._check_silence(left, now)

    def _check_silence(self, left: list[str], now: float) -> Flow:
        group, reports = self._group, self._reports
        pulses = {node: reports.pulses[node] for node in left if node in reports.pulses}
        quiet = silence(pulses, group.settings, len(left) - len(pulses))
        self._record(quiet, now)
        reason = quiet.verdict
        if not reason:
            return ""
        detail = {node: list(pulse) for node, pulse in pulses.items()}
        group.record.note("hung", detail={"pulses": detail, "reason": reason})
        run, attempt = group.last
        group.job.log(f"run {run} attempt {attempt} {reason}; asking the nodes what they do")
        yield from self._gather(left)
        layout = group.job.layout
        folder = layout.hang(run, attempt, "NODE").relative_to(layout.root)
        return f"{reason}; evidence in {folder}"

    def _record(self, quiet: Silence, now: float) -> None:
        """Record the silence about once a minute: readers show it, and see the loop alive."""
        if quiet.stage != self._stage or now >= self._pulse_due:
            self._stage, self._pulse_due = quiet.stage, now + PULSE_S
            self._group.record.note("pulse", detail=quiet.detail(self._reports.id))

    def _gather(self, left: list[str]) -> Flow:
        """Have the nodes write evidence of their activity."""
        group, reports = self._group, self._reports
        group.step.send({"do": "evidence", "id": reports.id})
        now = group.job.world.now
        deadline = now() + EVIDENCE_S
        while now() < deadline and not group.job.ending and group.step.is_alive:
            group.step.check_ended()
            answered = reports.doing.keys() | reports.exits.keys()
            if all(node in answered or group.record.is_gone(node) for node in left):
                return
            yield group.step.next_check(deadline)

    def remark(self) -> str:
        """Return a remark about RCCL on TCP sockets despite RDMA, or ""."""
        if self.ended or not self._group.rdma_expected:
            return ""
        nodes = on_sockets(self._reports.transports)
        return f"RCCL used TCP sockets although the nodes have RDMA ({nodes})" if nodes else ""
