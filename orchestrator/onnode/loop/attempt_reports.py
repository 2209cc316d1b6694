"""Reports of an attempt's nodes, and the watch for hangs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..kernel.events import Event, NetworkUse, Pulse, number
from ..kernel.layout import CONTENT_PARTS
from ..kernel.node_names import by_text, ranked, subject
from ..kernel.settings import Settings
from ..kernel.waiting import Flow
from ..policy.hang import LEAST_S, Silence, on_sockets, silence, stands_out, unwanted_sockets
from ..policy.outcome import ENDED_BY_US
from ..policy.reports import line
from .group import Group

_HELP = "; run as root, give the site a sudo prefix, or set clear_caches: false"


class Gate:
    """The nodes' replies to `prepare` (settings verified, caches dropped), and later failures."""

    def __init__(self, run: int, ranks: Sequence[str]) -> None:
        self.run, self.ranks = run, tuple(ranks)
        self.prepared: dict[str, list[str]] = {}
        """Node -> time it was ready (ms), KiB in its caches before and after."""
        self.failed: dict[str, str] = {}
        """Node -> its reason to give up, such as its storage."""
        self.cannot_drop: set[str] = set()
        """Nodes that cannot drop their caches, in any container."""
        self._refused: dict[str, str] = {}
        self._waits_for_all = True
        """False: nodes without a reply lacked time."""

    def take(self, event: Event) -> None:
        node, parts = event.node, event.parts
        if event.word in ("failed", "gone", "left"):
            self._refused.setdefault(node, event.part(1) or event.part(0) or "its agent ended")
            if event.word == "failed":
                self.failed[node] = self._refused[node]
        elif event.word == "prepared" and len(parts) == 4:
            self.prepared[node] = parts[1:]
        elif event.word in ("refused", "kept") and len(parts) == 2:
            self._refused[node] = self.failed[node] = parts[1]
            if event.word == "kept":
                self.cannot_drop.add(node)

    def take_ended(self, reasons: Mapping[str, str]) -> None:
        """Nodes that failed before this run."""
        self._refused = dict(reasons)

    def take_gone(self, reasons: Mapping[str, str]) -> None:
        """Dead nodes: the gate closes; nodes without a reply are not to blame."""
        self._refused = {**reasons, **self._refused}
        self._waits_for_all = False

    def unanswered(self) -> list[str]:
        return [
            node for node in self.ranks if node not in self.prepared and node not in self._refused
        ]

    def refusals(self, *more: str) -> str:
        """Return a sentence per reason, in rank order, and `more`."""
        return "; ".join([*self._sentences(), *more])

    def _sentences(self) -> Iterable[str]:
        clauses = []
        for node in self.ranks:
            reason = self._refused.get(node, "")
            if node in self.cannot_drop:
                clauses.append((node, f" {reason}{_HELP}"))
            elif reason:
                clauses.append((node, f": {reason}"))
        ranks = ranked(self.ranks)
        for clause, nodes in by_text(clauses).items():
            yield f"{subject(nodes, len(ranks), ranks)}{clause}"

    def not_ready(self) -> dict[str, str]:
        reasons = {}
        for node, reason in self._refused.items():
            subject = " it" if node in self.cannot_drop else ":"
            reasons[node] = f"before run {self.run}{subject} {reason}"
        if self._waits_for_all:
            late = f"it did not answer before run {self.run}"
            reasons.update(dict.fromkeys(self.unanswered(), late))
        return reasons


class AttemptReports:
    """`ranks`: the attempt's nodes; `id`: `3.1` of run 3."""

    def __init__(self, run: int, number: int, ranks: Sequence[str]) -> None:
        self.id, self.ranks = f"{run}.{number}", tuple(ranks)
        self.gate = Gate(run, ranks)
        self.exits: dict[str, int] = {}
        self.stops: dict[str, str] = {}
        """Node -> status of the last run_stop in its log, or ""."""
        self.lasted: dict[str, int] = {}
        """Milliseconds by the node's clock."""
        self.pulses: dict[str, Pulse] = {}
        self.transports: dict[str, NetworkUse] = {}
        self.doing: dict[str, str] = {}
        """Node -> activity of its processes in a hang, or ""."""
        self.inside: dict[str, dict[str, str]] = {}
        """Node -> part -> hash: its container's content at the end."""
        self.was_signalled = False
        """Ended by others, such as Slurm, before the loop."""
        self._members = frozenset(ranks)
        self._is_stopped = False
        self._has_news = True

    def take(self, event: Event) -> None:
        """Ignore incomplete messages, and those of other attempts."""
        if event.node not in self._members:
            return
        self._has_news = True
        if event.word in ("failed", "gone", "left"):
            self.gate.take(event)
        elif event.parts[0] == self.id:
            self._take_part(event, event.parts)
            self.gate.take(event)

    def _take_part(self, event: Event, parts: Sequence[str]) -> None:
        node, word, size = event.node, event.word, len(parts)
        if word == "transport" and size == 4:
            counts = _numbers(parts[1:3])
            if counts:
                self.transports[node] = NetworkUse(counts[0], counts[1], line(parts[3], 200))
        elif word == "evidence" and size == 2:
            self.doing[node] = line(parts[1], 300)
        elif word == "inside":
            pairs = [part.partition("=") for part in parts[1 : 1 + len(CONTENT_PARTS)]]
            self.inside[node] = {
                part: sha[:64] for part, _, sha in pairs if part in CONTENT_PARTS and sha.isalnum()
            }
        elif word == "exit" and size == 5:
            self._take_exit(node, *parts[1:])

    def _take_exit(self, node: str, status: str, began: str, ended: str, stop: str) -> None:
        code = number(status, 3)
        if code is None or code < 0:
            return
        self.exits[node], self.stops[node] = code, stop
        if code == ENDED_BY_US and not self._is_stopped:
            self.was_signalled = True
        began_ms, ended_ms = number(began), number(ended)
        if began_ms is not None and ended_ms is not None:
            self.lasted[node] = max(0, ended_ms - began_ms)

    def take_pulse(self, node: str, attempt: str, pulse: Pulse) -> None:
        if attempt == self.id and node in self._members:
            self.pulses[node] = pulse
            self._has_news = True

    def has_news(self) -> bool:
        """Return whether anything arrived since the last call."""
        news, self._has_news = self._has_news, False
        return news

    def stop(self) -> None:
        """The loop causes the next exits."""
        self._is_stopped = True

    @property
    def has_result(self) -> bool:
        return any(self.stops.values())


def _numbers(texts: Sequence[str]) -> list[int]:
    if not all(text.isascii() and text.isdigit() and len(text) <= 15 for text in texts):
        return []
    return list(map(int, texts))


EVIDENCE_S = 60.0
"""Nodes take at most 45 s (agent/evidence.py)."""
PING_S = 30.0
MOST_LOOKS = 3
"""Looks at silences before a hang, per attempt."""
RESUMED_S = 120.0
"""After output for this long a silent run continues; failing runs print last lines."""
PULSE_S = 60.0
"""Interval of `pulse` events; new stages of silence are recorded at once."""


def ping_interval_s(settings: Settings) -> float:
    intervals = [PING_S, settings.node_silence_s / 4]
    if settings.hang_multiple > 0:
        unknown_s = settings.hang_multiple * settings.hang_s
        intervals.append(min(LEAST_S, unknown_s, settings.hang_start_s) / 4)
    return max(0.2, min(intervals))


class Look:
    """Evidence of a silence that may become a hang."""

    def __init__(self, group: Group, reports: AttemptReports) -> None:
        self._group, self._reports = group, reports
        self._count = 0
        self._asked: float | None = None
        """World.now."""
        self._resumed: float | None = None
        """Since when output has come (World.now)."""
        self._is_recorded = False

    @property
    def is_open(self) -> bool:
        """The run has been silent since the evidence."""
        return self._asked is not None

    def check(self, quiet: Silence, left: list[str], now: float) -> None:
        """Ask for evidence of an odd silence; record the answers until output resumes."""
        if self._asked is None:
            if quiet.is_odd and self._count < MOST_LOOKS:
                self._ask(now)
            return
        answered = all(node in self._reports.doing for node in left)
        if not self._is_recorded and (answered or now >= self._asked + EVIDENCE_S):
            self._note(quiet)
        if quiet.quiet_s >= now - self._asked:
            self._resumed = None
        elif self._resumed is None:
            self._resumed = now
        elif now >= self._resumed + RESUMED_S:
            self._asked = self._resumed = None
            self._reports.doing.clear()

    def _ask(self, now: float) -> None:
        self._count, self._asked, self._is_recorded = self._count + 1, now, False
        self._reports.doing.clear()
        self._group.step.send({"do": "evidence", "id": self._reports.id})

    def _note(self, quiet: Silence) -> None:
        reports, group = self._reports, self._group
        self._is_recorded = True
        ages = {node: pulse.quiet_ms for node, pulse in reports.pulses.items()}
        node, activity = stands_out(reports.ranks, ages, reports.doing)
        about = {"quiet": ages, "doing": dict(reports.doing), "ranks": list(reports.ranks)}
        group.record.note("look", node, {**about, "id": reports.id, "activity": activity})
        who = f"; node {node} (rank {reports.ranks.index(node)}): {activity}" if node else ""
        run, attempt = group.record.last
        group.job.log(f"run {run} attempt {attempt} is silent for {quiet.quiet_s:.0f} s{who}")


class HangWatch:
    """Watches an attempt. `stop_reason`: why it ends early, or ""."""

    def __init__(self, group: Group, reports: AttemptReports) -> None:
        self.stop_reason = ""
        self.sockets: list[str] = []
        """Nodes without RDMA that end it."""
        self._group, self._reports = group, reports
        self._stage: tuple[int, ...] | None = None
        """As last recorded."""
        self._pulse_due = 0.0
        """World.now."""
        self._look = Look(group, reports)

    def check(self, left: list[str], now: float) -> Flow:
        """Decide whether to end the attempt, still running on `left`; record the decision."""
        reports, group = self._reports, self._group
        if reason := unwanted_sockets(reports.transports, group.settings):
            detail = {node: list(use) for node, use in reports.transports.items()}
            group.record.note("sockets", detail={"told": detail, "reason": reason})
            self.sockets = [node for node, use in reports.transports.items() if use.other]
            self.stop_reason = reason
        elif not reports.exits:  # else the others end soon; often only the first has printed
            self.stop_reason = yield from self._check_silence(left, now)

    def _check_silence(self, left: list[str], now: float) -> Flow:
        group, reports = self._group, self._reports
        pulses = {node: reports.pulses[node] for node in left if node in reports.pulses}
        quiet = silence(pulses, group.settings, len(left) - len(pulses))
        self._note_pulse(quiet, now)
        self._look.check(quiet, left, now)
        reason = quiet.verdict
        if not reason:
            return ""
        detail = {node: list(pulse) for node, pulse in pulses.items()}
        group.record.note("hung", detail={"pulses": detail, "reason": reason})
        run, attempt = group.record.last
        group.job.log(f"run {run} attempt {attempt} {reason}; asking the nodes what they do")
        yield from self._gather(left)
        layout = group.job.layout
        folder = layout.hang(run, attempt, "NODE").relative_to(layout.root)
        return f"{reason}; evidence in {folder}"

    def _note_pulse(self, quiet: Silence, now: float) -> None:
        """About once a minute, which also shows that the loop lives."""
        if quiet.stage != self._stage or now >= self._pulse_due:
            self._stage, self._pulse_due = quiet.stage, now + PULSE_S
            self._group.record.note("pulse", detail=quiet.detail(self._reports.id))

    def _gather(self, left: list[str]) -> Flow:
        group, reports = self._group, self._reports
        reports.doing.clear()
        group.step.send({"do": "evidence", "id": reports.id})
        now = group.job.world.now
        deadline = now() + EVIDENCE_S
        while now() < deadline and not group.job.ending.state and group.step.is_alive:
            group.step.check_ended()
            answered = reports.doing.keys() | reports.exits.keys()
            if all(node in answered or group.record.is_gone(node) for node in left):
                return
            yield group.step.next_check(deadline)

    @property
    def evidence(self) -> Mapping[str, str]:
        """Node -> activity in the silence that ended the run."""
        return self._reports.doing if self.stop_reason or self._look.is_open else {}

    def remark(self) -> str:
        """Describe a run on TCP sockets despite RDMA, or without a sign of required RDMA."""
        if self.stop_reason or not self._group.comparison.rdma_expected:
            return ""
        transports = self._reports.transports
        if not transports and self._group.settings.network_rdma == "required":
            return "neither log nor RCCL's files show whether RDMA was used (docs/network.md)"
        nodes = on_sockets(transports)
        return f"RCCL used TCP sockets although the nodes have RDMA ({nodes})" if nodes else ""
