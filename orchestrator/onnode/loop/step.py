"""A group's processes on its nodes, and their messages."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..kernel.events import Event, Pulse, clean, number, parse_pong, parse_word
from ..kernel.waiting import Flow
from .batch_job import BatchJob, GroupRecord
from .host import JobStep, StepProcesses
from .slurm import step_message

MAX_COMPLAINTS = 64 << 10
"""Characters kept per node. A driver's warnings in a whole job are fewer."""
MAX_STEP_COMPLAINTS = 1 << 20
"""For the step itself, which reports the ends of all nodes."""
BEHIND_S = 0.5
"""A node's last messages may follow its end's report within this time."""
_LAST_LINES = 5


class Complaints:
    """The standard error of a group's steps. `names` expands `n[1-3]`; `keep` gets lines to
    keep."""

    def __init__(
        self,
        now: Callable[[], float],
        names: Callable[[str], list[str]],
        keep: Callable[[str], None],
    ) -> None:
        self._now, self._names, self._keep = now, names, keep
        self._taken: dict[str, int] = {}
        """Sender -> characters."""
        self.begin()

    def begin(self) -> None:
        self._last: list[str] = []
        self._ended: dict[str, tuple[float, str]] = {}
        """Ended node -> when that counts (World.now), and why."""
        self._checked = self._now()
        self._cancelled = False

    @property
    def last_lines(self) -> str:
        return " ".join(self._last)

    def take(self, sender: str, line: bytes) -> None:
        """`sender`: a node, or "" for the step itself."""
        text = clean(line[:2000].decode("utf-8", "replace"), 500)
        if sender and not self._keep_some(sender, f"{sender}: {text}"):
            return
        if not sender:
            self._keep_some("", text)
        message = step_message(sender, text, self._names)
        if not message.is_harmless:
            self._last = [*self._last[1 - _LAST_LINES :], text]
        if self._cancelled:
            return
        self._cancelled = message.cancels
        due = self._now() + BEHIND_S
        for node, reason in message.ended.items():
            if message.is_cause or node not in self._ended:
                self._ended[node] = due, reason

    def _keep_some(self, sender: str, text: str) -> bool:
        """False beyond the sender's limit."""
        limit = MAX_COMPLAINTS if sender else MAX_STEP_COMPLAINTS
        before = self._taken.get(sender, 0)
        if before > limit:
            return False
        self._taken[sender] = before + len(text) + 1
        is_last = self._taken[sender] > limit
        whose = f"later lines of {sender or 'the step'} are not kept"
        self._keep(f"{text} ({whose})" if is_last else text)
        return True

    def ended_nodes(self, *, is_over: bool) -> list[tuple[str, str]]:
        """Return newly ended nodes with the reason.

        `is_over`: all lines of the step have come; the first end may have caused the others.
        """
        first = next(iter(self._ended), "") if is_over else ""
        due = [
            node
            for node, (when, _) in self._ended.items()
            if when <= self._checked or node == first
        ]
        return [(node, self._ended.pop(node)[1]) for node in due]

    def next_check(self, at_latest: float) -> float:
        """Return when to call `ended_nodes` again (World.now), after reading all lines: this
        process may stand still, or wait for the scheduler, while a node's last ones are unread."""
        self._checked = self._now()
        return min([at_latest, *(when for when, _ in self._ended.values())])


RELEASE_S = 20.0
"""Time for nodes to end; containers get 5 s (agent/container.py)."""
MAX_GARBLED = 100
MAX_SAID = 256 << 10
"""Bytes of a node between the starts of attempts, with WORD_BYTES per line: more would fill the
disk. A healthy node sends about 10 KB, or 60 KB with 512 facts (policy/reports.py)."""
SAID_AGAIN = 64 << 10
"""MAX_SAID of a node used again after exceeding it."""
WORD_BYTES = 32
"""An event's size without its text, so that short lines count, too."""


class Listener(Protocol):
    def take(self, event: Event) -> None: ...

    def take_pulse(self, node: str, attempt: str, pulse: Pulse) -> None: ...


class GroupStep:
    """Processes on a group's nodes while the group holds them."""

    def __init__(self, job: BatchJob, record: GroupRecord, allocated: Iterable[str]) -> None:
        self.process: JobStep | None = None
        self.complaints = Complaints(job.world.now, job.node_names, self._keep_complaint)
        self.protocol_errors: dict[str, str] = {}
        """Node -> how it breaks the protocol."""
        self.started_ms = 0
        """World.wall_ms."""
        self._job, self._record = job, record
        self._known = frozenset(allocated)
        self._heard: dict[str, float] = {}
        """Node -> its last line (World.now)."""
        self._attempt: Listener | None = None
        self._sent: dict[str, int] = {}
        """Node -> bytes since the last attempt's start."""
        self._pings = 0
        self._pongs: dict[str, int] = {}
        """Node -> replies; more than pings count as messages."""
        self._garbled = 0
        self._distrusted: set[str] = set()
        """Nodes that have broken the protocol in this job."""
        self._logged: set[str] = set()

    # ---- its processes ----

    def start(
        self, nodes: Sequence[str], argv: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        """`environment`: additional variables. Raises OSError."""
        job = self._job
        self.set_start(job.world.wall_ms())
        self.complaints.begin()
        self._heard, self._sent, self.protocol_errors = {}, {}, {}
        self._pings, self._pongs = 0, {}
        tasks = job.allocation.in_step(nodes)
        commands = job.allocation.commands(tasks, argv)
        everything = {**job.environment, **environment}
        step = StepProcesses(tasks, commands, everything, self.take, self.complaints.take)
        self.process = job.world.start(job.reactor, step)

    def set_start(self, ms: int) -> None:
        """In a preflight the controller may have started the step."""
        self.started_ms = ms

    def add_node(self, node: str) -> None:
        self._known |= {node}

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.alive

    def send(self, message: dict[str, Any]) -> None:
        if self.process is not None:
            self._pings += message.get("do") == "ping"
            self.process.send(message)

    def release(self) -> Flow:
        """Let all nodes end, by force after RELEASE_S; await no dead nodes."""
        process, world = self.process, self._job.world
        if process is None:
            return
        process.end_input()
        deadline = world.now() + RELEASE_S
        while process.alive and world.now() < deadline:
            if not self._record.still_there(process.nodes):  # the step itself needs a moment
                deadline = min(deadline, world.now() + 2)
            yield min(deadline, world.now() + 0.2)
        if process.running:
            yield from self._end_by_force(process)
        process.kill()
        self.process = None

    def _end_by_force(self, process: JobStep) -> Flow:
        now = self._job.world.now
        if self._record.still_there(process.nodes):
            problem = f"the nodes did not release everything within {RELEASE_S:.0f} s"
            self._job.log(f"{problem}; ending their step by force")
        process.signal(signal.SIGTERM)
        deadline = now() + 2
        while process.running and now() < deadline:
            yield deadline

    # ---- messages of the nodes ----

    def start_attempt(self, attempt: Listener) -> None:
        """Pass messages on to an attempt; count each node's bytes anew."""
        self._attempt, self._sent = attempt, {}

    def end_attempt(self) -> None:
        self._attempt = None

    @property
    def is_at_work(self) -> bool:
        return self._attempt is not None

    def take(self, sender: str, line: bytes) -> None:
        """Take in a line. Of unknown origin (`sender` ""), it is garbled."""
        if sender in self.protocol_errors:
            return
        pong = parse_pong(line)
        if pong is not None and pong[0] == sender:  # not recorded: too many
            self._take_pong(sender, pong, len(line))
            return
        message = parse_word(line, self._known)
        if message is None or not sender:
            self._take_garbled(sender, line)
        elif message[1] != sender:
            self._refuse(sender, message[1], line)
        else:
            self._heard[sender] = self._job.world.now()
            if not self._is_too_much(sender, len(line)):
                self._take_event(self._record.note(message[0], sender, message[2], "node"))

    def _take_pong(self, sender: str, pong: tuple[str, str, Pulse | None], size: int) -> None:
        _, attempt, pulse = pong
        self._pongs[sender] = self._pongs.get(sender, 0) + 1
        if self._pongs[sender] > self._pings and self._is_too_much(sender, size):
            return
        self._heard[sender] = self._job.world.now()
        if pulse is not None and self._attempt is not None:
            self._attempt.take_pulse(sender, attempt, pulse)

    def _take_event(self, event: Event) -> None:
        if event.word in ("note", "trouble"):
            self._log_once(event)
        elif event.word == "checked":
            self._compare_clock(event)
        elif self._attempt is not None:
            self._attempt.take(event)

    def _log_once(self, event: Event) -> None:
        """Log equal remarks once."""
        if event.detail in self._logged:
            return
        self._logged.add(event.detail)
        origin = "network of node" if event.word == "trouble" else "node"
        self._job.log(f"{origin} {event.node}: {event.detail}")

    def _compare_clock(self, event: Event) -> None:
        """The node read its clock between the step's start and now."""
        clock_ms = number(event.part(0))
        if clock_ms is None:
            return
        ahead_ms = clock_ms - event.ms
        behind_ms = min(0, clock_ms - self.started_ms)
        self._record.note("clock", event.node, str(ahead_ms if ahead_ms > 0 else behind_ms))

    def _take_garbled(self, sender: str, line: bytes) -> None:
        if sender and self._is_too_much(sender, len(line)):
            return
        self._garbled += 1
        if self._garbled <= MAX_GARBLED:
            self._record.note("garbled", sender, _shown(line), "node")

    def _is_too_much(self, node: str, size: int) -> bool:
        """Count a node's bytes; if too many, give it up."""
        self._sent[node] = self._sent.get(node, 0) + size + WORD_BYTES
        limit = SAID_AGAIN if node in self._distrusted else MAX_SAID
        if self._sent[node] <= limit:
            return False
        reason = f"it sends too much: more than {limit >> 10} KB since the last run started"
        self._give_up(node, reason)
        return True

    def _refuse(self, sender: str, node: str, line: bytes) -> None:
        """Give up a node that reports about another node."""
        self._record.note("forged", sender, _shown(line))
        self._give_up(sender, f"it sends lines in the name of node {node}")

    def _give_up(self, node: str, reason: str) -> None:
        """Ignore the node until the next step."""
        self._distrusted.add(node)
        self.protocol_errors[node] = reason
        self._record.give_up(node, reason, "protocol")

    def _keep_complaint(self, text: str) -> None:
        self._job.append_to(self._job.layout.nodes / "hold.log", text)

    # ---- ended and silent nodes ----

    def check_ended(self) -> None:
        """Record nodes that ended without the message `left`."""
        last = self.complaints.last_lines or "without a word"
        for node in self.process.ended_nodes() if self.process else ():
            self._record.give_up(node, f"its step ended: {last}")
        is_over = self.process is not None and not self.process.alive
        for node, reason in self.complaints.ended_nodes(is_over=is_over):
            self._record.give_up(node, reason)

    def next_check(self, at_latest: float) -> float:
        """Return when to call `check_ended` again (World.now)."""
        return self.complaints.next_check(at_latest)

    def last_message(self, node: str) -> float:
        return self._heard[node]

    def reset_silence(self, nodes: Iterable[str]) -> None:
        self._heard.update(dict.fromkeys(nodes, self._job.world.now()))

    def excuse(self, stalled_s: float, silence_s: float) -> None:
        """Discount a stall of this process."""
        now = self._job.world.now()
        self._heard = {
            node: min(now, deferred(heard + silence_s, stalled_s, now) - silence_s)
            for node, heard in self._heard.items()
        }

    def silent(self, nodes: Iterable[str], since: float) -> list[str]:
        """Return nodes that have sent nothing `since` (World.now)."""
        return [node for node in nodes if self._heard[node] < since]


class NodeDeadline:
    """The end of a wait for nodes, without stalls of this process."""

    def __init__(self, step: GroupStep, clock: Callable[[], float], limit_s: float) -> None:
        self._step, self._clock, self._limit_s = step, clock, limit_s
        self.restart()

    def restart(self) -> None:
        self._check = self._clock()
        self._at = self._check + self._limit_s

    def is_over(self) -> bool:
        """Call it after each `next_check`."""
        now = self._clock()
        self._at = deferred(self._at, stalled_s(self._check, now), now)
        self._check = max(self._check, now)
        return now >= self._at

    def next_check(self) -> float:
        """Return when to check again (World.now): each second at least, to notice stalls."""
        self._check = self._step.next_check(min(self._at, self._clock() + 1))
        return self._check


ARRIVE_S = 5.0
"""Time for lines sent during a longer stall: the step may have stalled, too."""


def stalled_s(until: float, now: float) -> float:
    """Return how long this process stalled if it meant to resume at `until`."""
    late_s = now - until
    return late_s if late_s > 1 else 0.0


def deferred(deadline: float, stalled_s: float, now: float) -> float:
    """Return a node's deadline without a stall of this process."""
    deadline += stalled_s
    return max(deadline, now + ARRIVE_S) if stalled_s > ARRIVE_S else deadline


def _shown(line: bytes) -> str:
    return clean(line[:200].decode("utf-8", "replace"), 200)
