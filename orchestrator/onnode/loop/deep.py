"""The deep step on the batch host: has the nodes measure what policy/search.py wants, and writes their table."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional, Protocol

from ..events import UNIT, clean, number
from ..policy.search import DeepVerdict, GroupResult, Round, Search


class Step(Protocol):
    """`node deep` on all nodes of a search. `send` and `close` do nothing when it is gone, or closed."""

    words: deque[tuple[str, str, str]]
    """(word, node, detail) of the lines that arrived."""

    @property
    def alive(self) -> bool: ...
    @property
    def last_words(self) -> str:
        """The end of its log."""

    def send(self, request: dict[str, Any]) -> None:
        """Send one line of JSON to all its nodes."""

    def close(self) -> None:
        """End the input of its nodes, and so the nodes."""


Heard = Generator[float, None, Optional[tuple[str, str, list[str]]]]


def deep_step(
    step: Step,
    search: Search,
    table: Path,
    clock: Callable[[], float] = time.monotonic,
    ended: Callable[[], bool] = lambda: False,
) -> Generator[float, None, DeepVerdict]:
    """Measure until the search is over, and return its verdict. Yields times of `clock`.

    It wants to be resumed when a word came, when the step or the set ended, and at that time. On return the input of the step is
    closed and its nodes had ten seconds to let go; where `step.alive` is still true they have to be ended by force.
    """
    began, driver = clock(), _Driver(step, search, table, clock, ended)
    try:
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text("round\tnodes\tway\tbytes\tseconds\tbusbw_gbps\twrong\tnote\n")
    except OSError as error:
        verdict = search.skipped(f"cannot write to {table.parent}: {error.strerror}")
    else:
        yield from driver.hear_ready()
        deadline = began + _given("BUDGET_S", 900)
        while step.alive and not ended() and clock() < deadline and (wanted := search.next_round()):
            yield from driver.measure(wanted)
        verdict = search.verdict()
    step.close()
    deadline = clock() + 10
    while step.alive and clock() < deadline:
        step.words.clear()
        yield deadline
    return replace(verdict, ms=round((clock() - began) * 1000))


def _given(name: str, default: int) -> int:
    return number(os.environ.get(f"ORCH_DEEP_{name}", ""), 9) or default


class _Driver:
    def __init__(
        self, step: Step, search: Search, table: Path, clock: Callable[[], float], ended: Callable[[], bool]
    ) -> None:
        self.step, self.search, self.table, self.clock, self.ended = step, search, table, clock, ended
        # RCCL's first meeting over many nodes takes tens of seconds.
        self.limit_s, self.bytes = _given("LIMIT_S", 120), _given("BYTES", 512 << 20)
        self.start_s = _given("START_S", 120) + search.settings.container_start_s
        # The nodes keep the limit of a measurement themselves; what comes on top of it is for nodes that are gone.
        self.grace_s = _given("GRACE_S", 15)
        self.address: dict[str, str] = {}
        self.tcp_port: dict[str, int] = {}
        self.torch_port: dict[str, int] = {}
        self.id = 0
        self.results: list[GroupResult] = []

    def next_word(self, deadline: float) -> Heard:
        """Return the next word of a node that makes sense, with its fields; None when there will be none in time.

        An image may print what it likes when it starts.
        """
        while not self.ended():
            while self.step.words:
                word, node, detail = self.step.words.popleft()
                fields = detail.split(UNIT)
                if node not in self.search.nodes:
                    continue
                if word == "failed":
                    self.search.lost(node, clean(" ".join(fields[1:] or fields), 900).replace(UNIT, " "))
                if word == "failed" or _makes_sense(word, fields):
                    return word, node, fields
            if not self.step.alive or self.clock() >= deadline:
                return None
            yield deadline
        return None

    def hear_ready(self) -> Generator[float, None, None]:
        """Wait until every node has said what it can measure with."""
        deadline, missing = self.clock() + self.start_s, set(self.search.nodes)
        while missing and (heard := (yield from self.next_word(deadline))):
            word, node, fields = heard
            if word == "deep":
                continue
            missing.discard(node)
            if word == "deep-ready":
                self.search.ready(node, int(fields[0]), fields[1] == "1")
                self.address[node] = fields[2]
                self.tcp_port[node], self.torch_port[node] = int(fields[3]), int(fields[4])
        reason = f"no word from its measuring container within {self.start_s} s"
        for node in sorted(missing):
            self.search.lost(node, reason if self.step.alive else f"the step ended before a word of it: {self.end()}")

    def end(self) -> str:
        return clean(self.step.last_words, 300).replace(UNIT, " ")

    def measure(self, wanted: Round) -> Generator[float, None, None]:
        """Measure all groups of a round at the same time, and tell the search."""
        self.id += 1
        self.results = [GroupResult() for _ in wanted.groups]
        limit = (self.limit_s + 1) // 2 if wanted.short else self.limit_s
        ports = self.tcp_port if wanted.way == "tcp" else self.torch_port
        groups = [[[node, self.address[node], ports[node]] for node in group] for group in wanted.groups]
        request = {"do": "measure", "id": self.id, "way": wanted.way, "limit": limit, "bytes": self.bytes}
        self.step.send({**request, "groups": groups})
        missing = {node: index for index, group in enumerate(wanted.groups) for node in group}
        deadline = self.clock() + limit + self.grace_s
        while missing and (heard := (yield from self.next_word(deadline))):
            word, node, fields = heard
            if node in missing and (word == "failed" or (word == "deep" and fields[0] == str(self.id))):
                self.take_answer(wanted, missing.pop(node), word, node, fields)
        if self.ended():
            return
        reason = f"no answer to a measurement within {limit + self.grace_s} s"
        if not self.step.alive:
            reason = f"the step ended in the middle of a measurement: {self.end()}"
        for node, index in missing.items():
            self.search.lost(node, reason)
            self.broken(wanted, index, f"{node}: {self.search.silent[node]}")
        self.record(wanted)
        self.search.take(self.results)

    def take_answer(self, wanted: Round, index: int, word: str, node: str, fields: list[str]) -> None:
        """Take a node's answer. The first node of a group tells its bandwidth."""
        if word == "failed":
            self.broken(wanted, index, f"{node}: {self.search.silent[node]}")
            return
        self.torch_port[node] = int(fields[7])
        if fields[1] != "ok":
            self.broken(wanted, index, f"{node}: {fields[8] if fields[8:] else 'no reason given'}")
        elif node == wanted.groups[index][0]:
            size, microseconds, mbps, wrong = map(int, fields[3:7])
            why = f"{wrong} wrong values in the sum" if wrong else self.results[index].why
            self.results[index] = GroupResult(size, microseconds, mbps, wrong, why)

    def broken(self, wanted: Round, index: int, reason: str) -> None:
        """Give a group up: the first reason counts, and the rest of the group need not wait for its limit."""
        if not self.results[index].why:
            self.results[index] = replace(self.results[index], why=reason)
            self.step.send({"do": "cancel", "id": self.id, "nodes": wanted.groups[index]})

    def record(self, wanted: Round) -> None:
        lines = (
            f"{wanted.name}\t{','.join(group)}\t{wanted.way}\t{one.bytes}\t{one.microseconds // 10**6}."
            f"{one.microseconds % 10**6:06}\t{one.mbps // 1000}.{one.mbps % 1000:03}\t{one.wrong}\t{one.why}\n"
            for group, one in zip(wanted.groups, self.results)
        )
        try:
            with open(self.table, "a") as file:
                file.writelines(lines)
        except OSError:  # a full disk does not change what was measured
            pass


def _makes_sense(word: str, fields: list[str]) -> bool:
    """Whether a line is whole, and what must be numbers are."""
    if word == "deep-ready":
        return len(fields) >= 5 and _are_numbers(fields[:2] + fields[3:5])
    return word == "deep" and len(fields) >= 8 and _are_numbers(fields[3:8])


def _are_numbers(texts: list[str]) -> bool:
    return all(text.isascii() and text.isdigit() and len(text) <= 15 for text in texts)
