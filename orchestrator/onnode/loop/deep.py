"""The bandwidth test on the batch host: nodes measure the rounds of policy/bandwidth.py."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ..kernel.events import UNIT, clean, number, parse_word
from ..kernel.plural import count
from ..kernel.waiting import Flow
from ..kernel.world import THIS, World
from ..policy.bandwidth import DeepVerdict, GroupResult, Round, Search
from .batch_job import BatchJob
from .host import StepProcesses
from .step import MAX_SAID, WORD_BYTES

Moments = Generator[float, None, None]
Take = Callable[[str, str, "list[str]"], bool]
"""Takes a message, its node and fields; returns whether it answers."""
NUMBERS = {"deep-ready": (0, 1, 3), "deep": (3, 4, 5, 6, 7)}
"""Message -> indices of its numeric fields."""


class DeepStep:
    """A process on each node; their messages form a queue."""

    def __init__(self, job: BatchJob, nodes: Sequence[str]) -> None:
        self.messages: deque[tuple[str, str, str]] = deque()
        self.last_text = ""
        self._known = frozenset(nodes)
        self._sent: dict[str, int] = {}
        """Node -> bytes."""
        environment = {
            **job.environment,
            "ORCH_SET_DIR": str(job.layout.root),
            "ORCH_JOB_ID": job.job_id,
            "MASTER_ADDR": nodes[0],
            "ORCH_DEEP_PEERS": " ".join(nodes[:2]) if job.allocation.spans_hosts else "",
        }
        argv = job.program.command(job.settings.python, "node", "deep")
        tasks = job.allocation.in_step(nodes)
        commands = job.allocation.commands(tasks, argv)
        step = StepProcesses(tasks, commands, environment, self._take, self._complain)
        self.step = job.world.start(job.reactor, step)
        self.send, self.end_input = self.step.send, self.step.end_input

    def _take(self, sender: str, line: bytes) -> None:
        self._sent[sender] = self._sent.get(sender, 0) + len(line) + WORD_BYTES
        if self._sent[sender] > MAX_SAID:  # it counts as silent
            return
        message = parse_word(line, self._known)
        if message is not None and message[1] == sender:  # about itself alone
            self.messages.append(message)

    def _complain(self, sender: str, line: bytes) -> None:
        self.last_text = (self.last_text + " " + line.decode("utf-8", "replace"))[-400:].strip()

    @property
    def alive(self) -> bool:
        return self.step.alive


def measure(job: BatchJob, nodes: Sequence[str], table: Path | None = None) -> Flow:
    """Value: the DeepVerdict."""
    step, search = DeepStep(job, nodes), Search(list(nodes), job.settings)
    table = table or job.layout.bandwidth(job.job_id)
    try:
        return (
            yield from deep_step(
                step, search, table, job.world, ended=lambda: bool(job.ending.state)
            )
        )
    finally:
        step.step.kill()


def deep_step(
    step: DeepStep,
    search: Search,
    table: Path,
    world: World = THIS,
    ended: Callable[[], bool] = lambda: False,
) -> Generator[float, None, DeepVerdict]:
    """Measure until the search is over. Value: its verdict.

    Resume it also after messages and at the end of step or set. Kill the step afterwards: its nodes
    had ten seconds to end.
    """
    clock = world.now
    began = clock()
    driver = _Driver(step, search, table, world, ended)
    try:
        world.files.make_folder(table.parent, exist_ok=True)
        world.files.write(table, b"round\tnodes\tway\tbytes\tseconds\tbusbw_gbps\twrong\tnote\n")
    except OSError as error:
        verdict = search.skipped(f"cannot write to {table.parent}: {error.strerror}")
    else:
        yield from driver.await_ready()
        deadline = began + _given("BUDGET_S", 900)
        while step.alive and not ended() and clock() < deadline and (wanted := search.next_round()):
            yield from driver.measure(wanted)
        verdict = search.verdict()
    step.end_input()
    deadline = clock() + 10
    while step.alive and clock() < deadline:
        step.messages.clear()
        yield deadline
    return replace(verdict, ms=round((clock() - began) * 1000))


def _given(name: str, default: int) -> int:
    return number(os.environ.get(f"ORCH_DEEP_{name}", ""), 9) or default


class _Driver:
    def __init__(
        self, step: DeepStep, search: Search, table: Path, world: World, ended: Callable[[], bool]
    ) -> None:
        self.step, self.search, self.table, self.ended = step, search, table, ended
        self.clock, self.files = world.now, world.files
        self.address: dict[str, str] = {}
        self.port: dict[str, int] = {}
        self.id = 0

    def collect(
        self, nodes: Iterable[str], seconds: int, late: str, cut: str, take: Take
    ) -> Moments:
        """Pass messages of `nodes` to `take` until each has answered.

        The others are lost: `late`, or the step ended (`cut`). Images may print anything: invalid
        messages are skipped.
        """
        deadline, missing = self.clock() + seconds, list(nodes)
        while missing and not self.ended():
            if self.step.messages:
                word, node, detail = self.step.messages.popleft()
                fields = detail.split(UNIT)
                if word == "failed" and node in self.search.nodes:
                    reason = clean(" ".join(fields[1:] or fields), 900).replace(UNIT, " ")
                    self.search.lost(node, reason)
                counts = node in missing and (word == "failed" or _is_valid(word, fields))
                if counts and take(word, node, fields):
                    missing.remove(node)
            elif self.step.alive and self.clock() < deadline:
                yield deadline
            else:
                reason = f"{late} within {seconds} s"
                if not self.step.alive:
                    end = clean(self.step.last_text, 300).replace(UNIT, " ")
                    reason = f"{cut}: {end}"
                for node in missing:
                    self.search.lost(node, reason)
                    take("failed", node, [])
                return

    def await_ready(self) -> Moments:
        seconds = _given("START_S", 120) + self.search.settings.container_start_s
        late, cut = "no word from its measuring container", "the step ended before a word of it"
        yield from self.collect(self.search.nodes, seconds, late, cut, self.take_ready)

    def take_ready(self, word: str, node: str, fields: list[str]) -> bool:
        if word == "deep-ready":
            note = fields[4] if fields[4:] else ""
            self.search.ready(node, int(fields[0]), rccl_tests=fields[1] == "1", note=note)
            self.address[node] = fields[2]
            self.port[node] = int(fields[3])
        return word != "deep"

    def measure(self, wanted: Round) -> Moments:
        self.id += 1
        self.wanted = wanted
        self.results = [GroupResult() for _ in wanted.groups]
        # Node -> index of its group.
        self.place = {node: index for index, group in enumerate(wanted.groups) for node in group}
        # RCCL's first meeting of many nodes takes tens of seconds.
        limit = _given("LIMIT_S", 120)
        limit = (limit + 1) // 2 if wanted.short else limit
        groups = [
            [[node, self.address[node], self.port[node]] for node in group]
            for group in wanted.groups
        ]
        request = {
            "do": "measure",
            "id": self.id,
            "way": wanted.way,
            "limit": limit,
            "groups": groups,
        }
        self.step.send({**request, "bytes": _given("BYTES", 512 << 20)})
        # Nodes keep the limit; GRACE_S detects dead nodes.
        seconds = limit + _given("GRACE_S", 15)
        late, cut = "no answer to a measurement", "the step ended in the middle of a measurement"
        yield from self.collect(self.place, seconds, late, cut, self.take_answer)
        if not self.ended():
            self.write_rows()
            self.search.take(self.results)

    def take_answer(self, word: str, node: str, fields: list[str]) -> bool:
        """A group's first node has its bandwidth."""
        index = self.place[node]
        if word == "failed":
            self.give_up(index, f"{node}: {self.search.silent[node]}")
            return True
        if word != "deep" or fields[0] != str(self.id):
            return False
        self.port[node] = int(fields[7])
        if fields[1] != "ok":
            self.give_up(index, f"{node}: {fields[8] if fields[8:] else 'no reason given'}")
        elif node == self.wanted.groups[index][0]:
            size, microseconds, mbps, wrong = map(int, fields[3:7])
            why = f"{count(wrong, 'wrong value')} in the sum" if wrong else self.results[index].why
            self.results[index] = GroupResult(size, microseconds, mbps, wrong, why)
        return True

    def give_up(self, index: int, reason: str) -> None:
        """The first reason counts; the group's nodes stop waiting."""
        if not self.results[index].why:
            self.results[index] = replace(self.results[index], why=reason)
            self.step.send({"do": "cancel", "id": self.id, "nodes": self.wanted.groups[index]})

    def write_rows(self) -> None:
        lines = []
        for group, result in zip(self.wanted.groups, self.results):
            cells = (
                self.wanted.name,
                ",".join(group),
                self.wanted.way,
                str(result.bytes),
                f"{result.microseconds / 1e6:.6f}",
                f"{result.mbps / 1000:.3f}",
                str(result.wrong),
                result.why,
            )
            lines.append("\t".join(cells) + "\n")
        try:
            self.files.append(self.table, "".join(lines).encode())
        except OSError:  # the results stand
            pass


def _is_valid(word: str, fields: list[str]) -> bool:
    places = NUMBERS.get(word, ())
    if not places or len(fields) <= places[-1]:
        return False
    return all(
        text.isascii() and text.isdigit() and len(text) <= 15
        for text in (fields[place] for place in places)
    )
