"""The nodes of a group, held for the life of the job: checked, chosen, made ready, renewed, let go."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from ..kernel.events import UNIT, Event, EventLog, Pulse, clean, number, parse_pong, parse_word
from ..kernel.layout import group_name
from ..kernel.records import replace as replace_file
from ..policy import place
from ..policy.judge import Agreement, agree, agree_on_facts, judge_checks
from ..policy.pull import lacking, next_to_pull
from ..policy.said import OUTCOMES, Check
from ..policy.verdict import Row, table
from .host import JobStep
from .nodes import Flow, node_command
from .work import Work

LET_GO_S = 20.0
PULL_GRACE_S = 60.0
MAX_GARBLED = 100
MAX_SAID = 256 << 10
"""Bytes of one node between two attempts, WORD_BYTES more for each line. A node that sends more is broken, and would fill the
disk with its events: a sound one sends 10 KB or so, and 60 KB if it has 512 facts (policy/said.py)."""
SAID_AGAIN = 64 << 10
"""The same of a node that has sent too much in this job and is used again for lack of another one."""
MAX_COMPLAINTS = 1 << 20
"""Characters that are kept of the standard error of a group's nodes and srun."""
WORD_BYTES = 32
"""What an event takes besides its text, so that many short lines count, too."""
BEHIND_S = 0.5
NO_PYTHON = re.compile(r"slurmstepd(?:-([\w.-]+))?: error: execve\(\): (.*)|orchestrator: \S+ on ([\w.-]+) is Python")
OTHER_PYTHON = "name another interpreter (`python:` in the site file, PYTHON=... for this bundle)"


class Listener(Protocol):
    def take(self, event: Event) -> None: ...

    def take_pulse(self, node: str, attempt: str, pulse: Pulse) -> None: ...


class Group:
    """Nodes that work together on one run at a time. Everything that they say and what is decided goes through `note`."""

    def __init__(self, job: Work, allocated: Sequence[str], number: int = 1, events: EventLog | None = None) -> None:
        """`events` is the event file of a group; the job's own where there is only one."""
        self.job, self.settings, self.number, self.events = job, job.settings, number, events or job.events
        self.now, self.files = job.world.now, job.world.files
        self.name = group_name(job.job_id, number)
        self.standing = place.Standing()
        self.at = 0, 0
        """The last run and attempt that began."""
        self.known = frozenset(allocated)
        self.step: JobStep | None = None
        self.attempt: Listener | None = None
        """The run that is going on, which hears what its nodes say."""
        self.said: dict[str, int] = {}
        """node -> how many bytes, since the last attempt began."""
        self._distrusted: set[str] = set()
        """Nodes that have broken the protocol in this job."""
        self.broken: dict[str, str] = {}
        """Node of the present hold -> how it breaks the protocol."""
        self.heard: dict[str, float] = {}
        """node -> when it last said something (World.now)."""
        self.problem = ""
        """Why the nodes could not be made ready."""
        self.too_few = False
        self.rows = job.rows
        self.image = ""
        self.hopeless = False
        """A node cannot do at all what a run needs."""
        self._noted: set[str] = set()
        self.rdma_expected = False
        self.choosing = False
        self.step_started_ms = self._garbled = self._complained = 0
        self._last_words: list[str] = []
        self._named: dict[str, tuple[float, str]] = {}
        """Nodes that the step's own words name -> when that counts, and the words."""
        self._cancelled = False
        self._pulled_by: dict[str, float] = {}
        """Nodes that pull the image -> when that must be over (World.now)."""
        self.marker = self.marker_text = ""
        settings = {**vars(self.settings), "data": {}}  # what decisions are made from, without the site's folders
        del settings["side_by_side"]  # a group's decisions are its own
        about = {"allocated": list(allocated), "need": self.settings.nnodes, "settings": settings}
        self.note("begin", detail=about)

    # ---- what is said and what is decided ----

    def note(self, word: str, node: str = "", detail: str | dict[str, Any] = "", source: str = "loop") -> None:
        """Put an event on record and let it count."""
        place.apply(self.standing, self.events.append(source, word, node, detail))

    @property
    def is_at_work(self) -> bool:
        return self.attempt is not None

    def fail(self, node: str, kind: str, reason: str) -> None:
        if node not in self.standing.failed:
            self.note("fail", node, f"{kind}{UNIT}{reason}")

    def _keep_garbled(self, sender: str, line: bytes) -> None:
        if sender and self._is_too_much(sender, len(line)):
            return
        self._garbled += 1
        if self._garbled <= MAX_GARBLED:
            about = clean(line[:200].decode("utf-8", "replace"), 200)
            place.apply(self.standing, self.events.append("node", "garbled", sender, about))

    def take(self, sender: str, line: bytes) -> None:
        """Take in one line that comes from the node `sender`; "" if that is not known, and nothing is believed then."""
        if sender in self.broken:
            return
        pong = parse_pong(line)
        if pong is not None and pong[0] == sender:  # no event: there are a great many
            self.heard[sender] = self.now()
            if pong[2] is not None and self.attempt is not None:
                self.attempt.take_pulse(sender, pong[1], pong[2])
            return
        said = parse_word(line, self.known)
        if said is None or not sender:
            return self._keep_garbled(sender, line)
        word, node, detail = said
        if node != sender:
            return self._refuse(sender, node, line)
        self.heard[node] = self.now()
        if self._is_too_much(node, len(line)):
            return
        event = self.events.append("node", word, node, detail)
        place.apply(self.standing, event)
        if word in ("note", "trouble"):
            if event.detail not in self._noted:  # what all nodes say is told once, of the first
                self._noted.add(event.detail)
                self.job.log(f"{'network of ' if word == 'trouble' else ''}node {node}: {event.detail}")
        elif word == "checked":
            self._look_at_clock(event)
        elif self.attempt is not None:
            self.attempt.take(event)

    def _is_too_much(self, node: str, size: int) -> bool:
        """Count what a node has sent; True, and it is given up, if that is too much."""
        self.said[node] = self.said.get(node, 0) + size + WORD_BYTES
        limit = SAID_AGAIN if node in self._distrusted else MAX_SAID
        if self.said[node] <= limit:
            return False
        self._give_up(node, f"it sends too much: more than {limit >> 10} KB since the last run began")
        return True

    def _refuse(self, sender: str, node: str, line: bytes) -> None:
        """Do not believe a line that is about another node than the one that it comes from."""
        self.note("forged", sender, clean(line[:200].decode("utf-8", "replace"), 200))
        self._give_up(sender, f"it sends lines in the name of node {node}")

    def _give_up(self, node: str, reason: str) -> None:
        """Take no more from a node of this hold that breaks the protocol."""
        self._distrusted.add(node)
        self.broken[node] = reason
        self._ended(node, reason, "protocol")

    def send(self, message: dict[str, Any]) -> None:
        """Give all nodes of the step one line; none when it is gone, which shows elsewhere."""
        if self.step is not None:
            self.step.send(message)

    def _look_at_clock(self, event: Event) -> None:
        told = number(event.part(0))
        if told is not None:
            # It said so after its step had started and before now: the delay of a message is no difference of the clocks.
            off = told - event.ms if told > event.ms else min(0, told - self.step_started_ms)
            self.note("clock", event.node, str(off))

    def _complain(self, sender: str, line: bytes) -> None:
        """Keep what the step says about itself, and look for a node whose process has ended.

        What comes from a node (`sender`) is believed about that node alone; "" is srun itself.
        """
        text = clean(line.decode("utf-8", "replace"), 500)
        self._last_words = [*self._last_words[-4:], text]
        self._keep_complaint(f"{sender}: {text}" if sender else text)
        if self._cancelled:  # srun ends all the others then, and says so
            return
        self._cancelled = not sender and "launch failed" in text
        if told := NO_PYTHON.match(text):  # the cause, which comes before or after its consequence
            reason = (
                text if told[3] else f"cannot start {told[2]}; install python3 (3.9 or newer) there, or {OTHER_PYTHON}"
            )
            name = sender or told[1] or (told[3] or "").partition(".")[0]
            self._named[name] = (self.now() + BEHIND_S, reason)
            return
        # Not `Node failure on n1`: its slurmd is silent, and the run may still be well; a node that is dead does not answer a ping.
        for one, several in re.findall(r"on node ([\w.-]+)|(?:^|[^\w.\[\],-])([\w.,\[\]-]+): tasks? ", text):
            names = [sender] * (one == sender) if sender else self.job.scheduler.names(one or several)
            for name in names:
                # Its own last words come another way, and may be behind.
                self._named.setdefault(name, (self.now() + BEHIND_S, f"its step ended: {text}"))

    def _keep_complaint(self, text: str) -> None:
        """Write it to hold.log, up to MAX_COMPLAINTS."""
        before, self._complained = self._complained, self._complained + len(text) + 1
        if before <= MAX_COMPLAINTS:
            more = "" if self._complained <= MAX_COMPLAINTS else " (later lines are not kept)"
            self.job.append_to(self.job.layout.nodes / "hold.log", text + more)

    def _ended(self, node: str, reason: str, kind: str = "silent") -> None:
        report = self.standing.reports.get(node)
        if report is not None and "left" not in report.words and node not in self.standing.silent:
            self.note("silent", node)
            self.fail(node, kind, reason)

    def look_for_ended(self) -> None:
        """Put on record which nodes have ended without `left`."""
        now = self.now()
        for node in self.step.ended_nodes() if self.step else ():
            self._ended(node, f"its step ended: {' '.join(self._last_words) or 'without a word'}")
        # Of a step that is over all words have come, and the others may have been ended with the one that it named first.
        first = next(iter(self._named), "") if self.step is not None and not self.step.alive else ""
        for node in [node for node, (due, _) in self._named.items() if due <= now or node == first]:
            self._ended(node, self._named.pop(node)[1])

    def look_again(self, at_latest: float) -> float:
        """Return when `look_for_ended` is to be called again."""
        return min([at_latest, *(due for due, _ in self._named.values())])

    def is_gone(self, node: str) -> bool:
        """Whether nothing more is to be expected from a node of this step."""
        return not self.still_there([node])

    def still_there(self, nodes: Iterable[str]) -> list[str]:
        """Return those of `nodes` that are not gone."""
        silent, reports = self.standing.silent, self.standing.reports
        return [node for node in nodes if node not in silent and "left" not in reports[node].words]

    def hear(self, word: str, nodes: Sequence[str]) -> Flow:
        """Wait until each of `nodes` has said `word` or has failed; False when the set is ending or the step has ended.

        The limit counts from the moment at which no node has to pull the image any more.
        """
        limit_s = self.settings.container_start_s + 30
        until = self.now()
        deadline = until + limit_s
        while not self.job.ending:
            now = self.now()  # once: this process may stand still at any step
            deadline += self.missed_s(until, now)
            self.look_for_ended()
            if self._has_pulls():
                deadline = now + limit_s
            reports, failed = self.standing.reports, self.standing.failed
            silent = [node for node in nodes if word not in reports[node].words and node not in failed]
            if not silent:
                return True
            if now >= deadline:
                for node in silent:
                    self.fail(node, "silent", f"no word within {limit_s} s")
            elif self.step is None or not self.step.alive:
                words = f"the step ended without a word from {' '.join(silent)}: {' '.join(self._last_words)}"
                self.problem = self._tell_failed(nodes) or words
                return False
            else:
                until = self.look_again(min(deadline, now + 1))
                yield until
        return False

    @staticmethod
    def missed_s(until: float, now: float) -> float:
        """Return for how long this process itself stood still that wanted to look again at `until`: no node is late for that."""
        late_s = now - until
        return late_s if late_s > 1 else 0.0

    def _has_pulls(self) -> bool:
        """Let the next nodes pull the image; whether one still has to get it."""
        pulls, standing = self.job.pulls, self.standing
        at_once = self.settings.pull_at_once - sum(pulls.values()) + pulls.get(self.number, 0)
        for node in next_to_pull(standing, at_once):
            self.note("pull", node, str(at_once))
            self.send({"do": "pull", "nodes": [node]})
            self._pulled_by[node] = self.now() + 60 * self.settings.pull_minutes + PULL_GRACE_S
            self.job.log(f"node {node} pulls the image {self.settings.cont}")
        for node in lacking(standing):
            if self.now() >= self._pulled_by.get(node, float("inf")):
                self.fail(node, "image", f"its pull did not end within {self.settings.pull_minutes} minutes")
        pulls[self.number] = sum(node in standing.pulling for node in lacking(standing))
        return bool(lacking(standing))

    # ---- having nodes ready ----

    def have_ready(self) -> Flow:
        """Have as many nodes ready as the system has; who is not fit is set aside as long as others can take its rank.

        True, or False: `problem` says why not.
        """
        again = True
        while True:
            self._ask_for_lost()
            self._reinforce()
            found = place.candidates(self.standing)
            if isinstance(found, place.Pause):
                self.too_few, self.problem = True, found.reason
                return False
            before = len(self.standing.aside), dict(self.standing.blamed)
            if (yield from self._hold(found)):
                return True
            self._record_checks()
            # Without any node too many, the set says what is wrong and ends.
            if self.job.learns_of_end() or not self.job.has_spares:
                return False
            ended = self.step is None or not self.step.alive
            self._set_failed_aside()
            if (len(self.standing.aside), self.standing.blamed) == before:
                # The step ended, and nothing tells whose fault it was: once more before the set has to stop.
                if not (ended and again):
                    return False
                again = False
                self.job.log(f"{self.problem}; once more")
            yield from self.release()

    def _ask_for_lost(self) -> None:
        lost = self.job.scheduler.lost(self.standing.allocated)
        for node in self.standing.allocated:
            if node in lost and self.standing.lost.get(node) != lost[node]:
                self.note("lost", node, lost[node], "slurm")
            elif node in self.standing.lost and node not in lost:
                self.note("back", node, source="slurm")

    def _reinforce(self) -> None:
        """Take nodes that are left for all groups, as long as there are too few here."""
        while self.job.pool and len(place.of_good_repute(self.standing)) < self.settings.nnodes:
            node = self.job.pool.pop(0)
            self.known |= {node}
            self.note("joined", node)
            self._ask_for_lost()

    def _hold(self, nodes: Sequence[str]) -> Flow:
        """Start the step that holds the nodes, and get those ready that are chosen."""
        first = self.standing.generation == 0
        self.problem, deep = "", self.settings.preflight_deep == 1 and first
        self.note("hold", detail={"generation": self.standing.generation + 1, "nodes": list(nodes)})
        self.choosing = len(nodes) > self.settings.nnodes or deep
        if not self.choosing:
            self._use(nodes)
        self.start(nodes, node_command(self.settings.python, self.job.bundle, "hold"))
        if self.choosing and not (yield from self._choose(nodes, first, deep)):
            return False
        return (yield from self._get_ready(nodes))

    def _choose(self, nodes: Sequence[str], first: bool, deep: bool) -> Flow:
        """Hear and compare the nodes, and choose among them; False: `problem` says why that cannot be."""
        if not (yield from self.hear("waits", nodes)):
            return False
        yield from self._judge(nodes)
        self.problem = self._compare([node for node in nodes if node not in self.standing.failed])
        if self.problem:
            return False
        if deep and not (yield from self._measure([node for node in nodes if node not in self.standing.failed])):
            return False
        if self._use(nodes, first=first, tell=True):
            if self.standing.failed and not self.job.learns_of_end():
                self._set_failed_aside()
            return True
        self.problem = self._tell_failed(nodes)
        return False

    def start(self, nodes: Sequence[str], argv: Sequence[str]) -> None:
        """Start the step that holds `nodes`, or only checks them."""
        self._begin_checks()
        job, ranks = self.job, self.standing.workers or list(nodes)
        master = job.scheduler.master(ranks)
        own = {
            "ORCH_SET_DIR": str(job.layout.root),
            "ORCH_JOB_ID": job.job_id,
            "ORCH_GENERATION": str(self.standing.generation),
            "ORCH_GROUP": self.name,
            "ORCH_CHOOSE": "1" if self.choosing else "0",
            "ORCH_NODES": " ".join(ranks),
            "ORCH_MARKER": self.marker,
            "ORCH_MARKER_TEXT": self.marker_text,
            "MASTER_ADDR": master,
            # The first node has no way to itself; it looks at the way to the second.
            "ORCH_PEER": ranks[1] if job.scheduler.name == "slurm" and len(ranks) > 1 else master,
        }
        self.step_started_ms, self._last_words, self._named, self._cancelled = job.world.wall_ms(), [], {}, False
        self.heard, self.said, self._pulled_by, self.broken = {}, {}, {}, {}
        environment, nodes = {**job.environment, **own}, job.scheduler.in_step(nodes)
        commands = job.scheduler.commands(nodes, argv)
        self.step = job.world.start(job.reactor, nodes, commands, environment, self.take, self._complain)

    def _use(self, nodes: Sequence[str], *, first: bool = False, tell: bool = False) -> bool:
        """Give the ranks to some of `nodes`; False when there are too few."""
        placement = place.choose(self.standing, nodes, first=first)
        if placement is None:
            return False
        for old, new in zip(self.standing.ranks, placement.ranks):
            if old and old != new:
                self.job.log(f"node {new} takes the place of node {old}")
        self.note("placed", detail={**place.as_json(placement), "from": list(nodes), "first": first})
        if tell:
            self.send({"do": "use", "nodes": list(placement.ranks)})
            if placement.waiting:
                self.job.log(f"nodes {' '.join(placement.ranks)}; waiting: {' '.join(placement.waiting)}")
        self.job.write()
        return True

    def _get_ready(self, nodes: Sequence[str]) -> Flow:
        """Wait for the nodes in use. One that fails now gives its rank to a node that waits, if there is one."""
        while True:
            workers = self.standing.workers
            if not (yield from self.hear("ready", workers)):
                return False
            if not self.choosing:
                if self.settings.preflight_run == 1 and not (yield from self.hear("checked", workers)):
                    return False
                yield from self._judge(workers)
            if not self._any_failed(workers):
                yield from self.job.meet(self.number)
                if self._agree(workers):
                    break
                if not self._any_failed(workers):  # nobody can be replaced, or nobody in particular is to blame
                    return False
            self.problem = self._tell_failed(nodes)
            if not self.choosing or self.job.learns_of_end():
                return False
            self._set_failed_aside()
            if not self._use(nodes, tell=True):
                return False
            self.problem = ""
        self._record_checks()
        self.put_in_order()
        return True

    def meeting(self) -> dict[str, Any]:
        """Return where the nodes in use meet: `master` (MASTER_ADDR), and `hosts`, lines of /etc/hosts where those are wanted."""
        ranks, settings = self.standing.workers, self.settings
        told = {node: self.standing.reports[node] for node in ranks}
        master = self.job.scheduler.master(ranks)
        if settings.launch_master == "address" and len(ranks) > 1:
            master = told[ranks[0]].address or master
        lines = []
        for node, one in told.items():
            full = node if one.host.startswith("localhost") else one.host or node  # which is everybody's own name
            lines += [" ".join(dict.fromkeys((one.address, full, node)))] if one.address else []
        return {"master": master, "hosts": lines if settings.launch_hosts else []}

    def put_in_order(self) -> None:
        """Number the nodes as torchrun does, so that our rank 0 is its rank 0."""
        before, ranks = self.standing.workers, place.in_order(self.standing)
        if len(ranks) > 1:
            self.note("ordered", detail={"ranks": ranks})
        if ranks != before:
            self.job.log(f"ranks, in the order of the host names: {' '.join(ranks)}")
            self.job.write()

    def _any_failed(self, nodes: Sequence[str]) -> bool:
        return any(node in self.standing.failed for node in nodes)

    # ---- judging them ----

    def _begin_checks(self) -> None:
        """Leave a file on shared storage for the nodes to find."""
        self.marker = ""
        if self.settings.preflight_run != 1:
            return
        folder = self.job.layout.preflight
        marker = folder / f".seen-{self.name}-{self.standing.generation}"
        self.marker_text = self.job.world.token()
        try:
            self.files.make_folder(folder, exist_ok=True)
            self.files.write(marker, f"{self.marker_text}\n".encode())
            self.marker = str(marker)
        except OSError as error:
            cannot = f"cannot write {marker} ({error.strerror})"
            self.job.log(f"WARNING: {cannot}; the nodes' view of shared storage is not checked")

    def see_markers(self, nodes: Sequence[str]) -> Flow:
        """What each node wrote on shared storage can be seen here too, within the limit of a check."""
        if not self.marker:
            return
        deadline = self.now() + self.settings.preflight_check_s
        told = {node: self.standing.reports[node].checks.get("log_dir") for node in nodes}
        missing = [node for node, row in told.items() if row and row.verdict == "pass"]
        while missing and not self.job.ending:
            with suppress(OSError):
                self.files.names(self.job.layout.preflight)  # a listing makes NFS look again
            missing = [node for node in missing if not self._sees(node)]
            if not missing or self.now() >= deadline:
                break
            yield self.now() + 0.1
        for node in missing:
            self.note("unseen", node)
        self.clear_markers()

    def _sees(self, node: str) -> bool:
        try:
            text, _ = self.files.read_with_time(f"{self.marker}.{node}", 100)
        except OSError:
            return False
        return text.partition(b"\n")[0].strip() == self.marker_text.encode()

    def clear_markers(self) -> None:
        if self.marker:
            folder, name = os.path.split(self.marker)
            with suppress(OSError):
                for found in self.files.names(folder):
                    if found.startswith(name):
                        self.files.remove(os.path.join(folder, found))
            self.marker = ""

    def _judge(self, nodes: Sequence[str]) -> Flow:
        """Compare what the checks of the nodes said, and fail those that are not fit."""
        if self.settings.preflight_run == 1:
            yield from self.see_markers(nodes)
            judged = judge_checks({node: self.standing.reports[node] for node in nodes}, self.settings, rdma=False)
            self.note("judged", detail={"nodes": list(nodes), "failed": judged.failed})
            for node, rows in judged.rows.items():
                kept = {name: row for name, row in self.rows.get(node, {}).items() if name in OUTCOMES}
                self.rows[node] = {**{row.name: row for row in rows}, **kept}
            for warning in judged.warnings:
                self.job.warn(warning)
            for node, reason in judged.failed.items():
                self.fail(node, "check", reason)

    def _compare(self, nodes: Sequence[str]) -> str:
        """Before anybody is chosen: who is not like the others is no candidate. Return what stops the set, or ""."""
        if self.settings.nnodes < 2 or len(nodes) < 2:
            return ""
        found = agree(self.standing.reports, nodes, self.settings, None)
        self._differ(found)
        return "" if found.differing else found.problem

    def _agree(self, nodes: Sequence[str]) -> bool:
        """Whether the nodes in use, those of other groups included, are one experiment: the same image, network and facts."""
        found, others = agree(self.standing.reports, nodes, self.settings, self.image), self.job.others(self.number)
        if others:
            everyone = [node for node in self.job.scheduler.allocated if node in others or node in nodes]
            among = agree({**self.standing.reports, **others}, everyone, self.settings, self.image or self.job.image)
            own = {node: text for node, text in among.differing.items() if node in nodes}
            problem = "; ".join(f"node {node}: {text}" for node, text in own.items())
            if self.number in self.job.behind:  # runs have begun without it, so most are not asked
                problem = problem or among.problem
            if not problem:  # like the others, or these have a problem of their own that hides this one
                problem, own = found.problem, found.differing
            image = "" if problem else found.image
            found = replace(
                found, problem=problem, differing=own, image=image, warnings=among.warnings or found.warnings
            )
        self.problem = found.problem
        self.image, self.rdma_expected = found.image or self.image, found.rdma_expected
        self.job.image = self.image or self.job.image
        self._differ(found)
        return not found.problem

    def _differ(self, found: Agreement) -> None:
        for warning in found.warnings:
            self.job.warn(warning)
        if self.choosing or self.job.pool:  # where nodes can be replaced, one that is not like the others is
            for node, text in found.differing.items():
                self.fail(node, "versions", text)

    def facts_now(self, nodes: Sequence[str]) -> list[tuple[str, str, str]]:
        """Return (node or *, field, value) of what the nodes are now."""
        return agree_on_facts(self.standing.reports, nodes, self.settings).rows

    def _tell_failed(self, nodes: Sequence[str]) -> str:
        return place.tell_failed(self.standing, nodes)

    def _measure(self, nodes: Sequence[str]) -> Flow:
        """Measure the bandwidth between the nodes. Slow ones get a rank last, and none where others can take all."""
        if "deep" in self.settings.preflight_skip or not nodes:
            return True
        from ..deep.loop import measure

        verdict = yield from measure(self.job, nodes, self.job.layout.bandwidth(self.name))
        if self.job.ending:
            return False
        self.job.log(f"deep: {verdict.summary}")
        for node, row in verdict.rows.items():
            check = Check("deep", row[0], verdict.ms, row[1], row[2])
            self.note("deep", node, UNIT.join((check.name, check.verdict, str(check.ms), check.text, check.remedy)))
            self.rows.setdefault(node, {})["deep"] = check
        fast = [node for node in nodes if node not in verdict.slow]
        for node in verdict.slow:
            self.note("slow", node)
            reason = f"check deep: {self.rows[node]['deep'].words}"
            if len(fast) >= self.settings.nnodes and "deep" not in self.settings.preflight_warn:
                self.blame(node, "deep", reason)
            else:
                self.job.warn(f"{reason} ({node})")
        return True

    def _record_checks(self) -> None:
        """Write the rows of all nodes, for the report and for people."""
        if self.rows:
            try:
                self.files.make_folder(self.job.layout.preflight, exist_ok=True)
                rows = [Row(node, *vars(row).values()) for node, own in self.rows.items() for row in own.values()]
                path = self.job.layout.checks(self.job.job_id)
                replace_file(path, table(rows).encode(), sync=False, files=self.files)
            except OSError as error:
                self.job.log(f"error: cannot write the checks: {error.strerror}")

    # ---- who is out ----

    def _set_failed_aside(self) -> None:
        """Put those that failed aside, on record."""
        failed = dict(self.standing.failed)
        for node, (kind, reason) in failed.items():
            if node not in self.standing.aside:
                self.note("aside", node, UNIT.join((kind, reason, *map(str, self.at))))
                self.job.put_aside(node, kind, reason, self.at)
                name = "verdict" if kind == "check" else "tunables" if kind == "tunables" else "container"
                self.rows.setdefault(node, {})[name] = Check(name, "fail", 0, reason)
        self.job.write()

    def blame(self, node: str, kind: str, reason: str) -> bool:
        """A run died there, or nearly so; True when the attempt that it cost is free."""
        if not self.job.has_spares:
            return False
        if node not in self.standing.blamed:
            self.job.put_aside(node, kind, reason, self.at)
        self.note("blamed", node, UNIT.join((kind, reason, *map(str, self.at))))
        self._reinforce()
        if not place.is_free(self.standing, node):
            return False
        self.note("free", node)
        return True

    def repeats(self) -> bool:
        """Whether all has died alike so far, so that the next run would as well."""
        found = place.is_repeated(self.standing, self.settings.max_attempts)
        if found:
            self.note("repeated")
        return found

    # ---- letting go ----

    def release(self) -> Flow:
        """End the containers and put the settings back; by force when that takes too long. A dead node is not waited for."""
        step = self.step
        if step is None:
            return
        self.note("release")
        if self.job.ending:
            self.send({"do": "end"})
        self.job.pulls.pop(self.number, None)
        step.end_input()
        deadline = self.now() + LET_GO_S
        while step.alive and self.now() < deadline:
            if all(map(self.is_gone, step.nodes)):  # the step itself needs a moment
                deadline = min(deadline, self.now() + 2)
            yield min(deadline, self.now() + 0.2)
        if step.running:
            if not all(map(self.is_gone, step.nodes)):
                self.job.log(f"the nodes did not let go within {LET_GO_S:.0f} s; ending their step by force")
            step.signal(signal.SIGTERM)
            deadline = self.now() + 2
            while step.running and self.now() < deadline:
                yield deadline
        step.kill()
        self.step = None
        for warning in place.revert_problems(self.standing):
            self.job.warn(warning)
