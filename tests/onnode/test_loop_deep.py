"""The driver of the deep step with a step and a clock of the test: limits, words of nodes, the table. tests/deep has real ones."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st
from policy_parts import settings, unit

from orchestrator.onnode.kernel.world import World
from orchestrator.onnode.loop.deep import deep_step
from orchestrator.onnode.policy.bandwidth import DeepVerdict, Search

FOUR = ["n1", "n2", "n3", "n4"]
READY = unit(1, 0, "10.0.0.1", 4000, "")
Answer = Callable[[str, "dict[str, Any]"], "tuple[float, str, str] | None"]


class VirtualStep:
    """Nodes that answer by a rule, after seconds of a clock that only this test moves."""

    def __init__(self, nodes: list[str], answer: Answer) -> None:
        self.messages: deque[tuple[str, str, str]] = deque()
        self.now, self.alive, self.closed = 0.0, True, False
        self.last_text = "srun: error"
        self.sent: list[dict[str, Any]] = []
        self._nodes, self._answer = nodes, answer
        self._coming: list[tuple[float, tuple[str, str, str]]] = []
        self._ask({"do": "start"})

    def _ask(self, request: dict[str, Any]) -> None:
        for node in self._nodes:
            if (answer := self._answer(node, request)) is not None:
                self._coming.append((self.now + answer[0], (answer[1], node, answer[2])))

    def send(self, request: dict[str, Any]) -> None:
        self.sent.append(request)
        self._ask(request)

    def end_input(self) -> None:
        self.closed, self.alive = True, False

    def pass_time(self, deadline: float) -> None:
        """Go on to what happens next."""
        self._coming.sort(key=lambda one: one[0])
        if self._coming and self._coming[0][0] <= deadline:
            self.now, word = self._coming.pop(0)
            self.messages.append(word)
        else:
            self.now = deadline


class Virtual(World):
    """This machine, with the clock of a step."""

    def __init__(self, step: VirtualStep) -> None:
        self._step = step

    def now(self) -> float:
        return self._step.now


def usual(node: str, request: dict[str, Any], mbps: int = 1000) -> tuple[float, str, str] | None:
    if request["do"] == "start":
        return 1, "deep-ready", READY
    if request["do"] == "measure" and any(
        node == member[0] for group in request["groups"] for member in group
    ):
        return (
            1,
            "deep",
            unit(request["id"], "ok", request["way"], 1 << 20, 1048, mbps, 0, 5000, ""),
        )
    return None


def drive(
    step: VirtualStep,
    table: Path,
    nodes: list[str] = FOUR,
    ended: Callable[[], bool] = lambda: False,
) -> DeepVerdict:
    search = Search(nodes, settings(container_start_s=20))
    found: list[DeepVerdict] = []

    def driver() -> Iterator[float]:
        found.append((yield from deep_step(step, search, table, Virtual(step), ended)))

    for count, deadline in enumerate(driver()):
        assert deadline > step.now and count < 1000
        step.pass_time(deadline)
    assert step.closed
    return found[0]


def rows(table: Path) -> list[dict[str, str]]:
    with table.open() as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_what_stands_in_the_table(tmp_path: Path) -> None:
    table = tmp_path / "preflight/deep-7.tsv"
    step = VirtualStep(FOUR, usual)

    found = drive(step, table)

    assert found.ms == 5000
    assert {row[0] for row in found.rows.values()} == {"pass"}
    assert rows(table)[0] == {
        "round": "all",
        "nodes": "n1,n2,n3,n4",
        "way": "torch",
        "bytes": "1048576",
        "seconds": "0.001048",
        "busbw_gbps": "1.000",
        "wrong": "0",
        "note": "",
    }
    assert [one["round"] for one in rows(table)] == [
        "all",
        *["pairs1"] * 2,
        *["pairs2"] * 2,
        *["pairs3"] * 2,
    ]
    assert step.sent[0] == {
        "do": "measure",
        "id": 1,
        "way": "torch",
        "limit": 120,
        "bytes": 512 << 20,
        "groups": [[[node, "10.0.0.1", 4000] for node in FOUR]],
    }


def test_a_silent_node_costs_its_limit_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_DEEP_LIMIT_S", "30")

    def answer(node: str, request: dict[str, Any]) -> tuple[float, str, str] | None:
        return None if node == "n3" and request["do"] != "start" else usual(node, request)

    step = VirtualStep(FOUR, answer)
    found = drive(step, tmp_path / "deep.tsv")

    assert found.slow == ["n3"]
    assert found.rows["n3"][1] == "no answer to a measurement within 45 s"
    assert {row[0] for node, row in found.rows.items() if node != "n3"} == {"pass"}
    assert step.now < 60
    assert "n3: no answer" in rows(tmp_path / "deep.tsv")[0]["note"]
    assert {"do": "cancel", "id": 1, "nodes": tuple(FOUR)} in step.sent
    assert all("n3" not in one["nodes"] for one in rows(tmp_path / "deep.tsv")[1:])


def test_a_node_that_never_starts_is_left_out(tmp_path: Path) -> None:
    step = VirtualStep(FOUR, lambda node, request: None if node == "n1" else usual(node, request))

    found = drive(step, tmp_path / "deep.tsv")

    assert found.rows["n1"][:2] == ("fail", "no word from its measuring container within 140 s")
    assert "over 3 nodes" in found.summary


def test_a_failure_ends_the_round_of_its_group(tmp_path: Path) -> None:
    def answer(node: str, request: dict[str, Any]) -> tuple[float, str, str] | None:
        if request["do"] == "cancel":
            return (
                (0.5, "deep", unit(request["id"], "error", "torch", 0, 0, 0, 0, 5000, "given up"))
                if node != "n2"
                else None
            )
        if node == "n2" and request["do"] == "measure":
            return 1, "failed", unit("container", "the measurement ended (status 3): it\x07broke")
        return (
            usual(node, request)
            if request["do"] == "start" or node != "n1" or request["id"] > 1
            else None
        )

    found = drive(VirtualStep(FOUR, answer), tmp_path / "deep.tsv")

    assert found.rows["n2"][:2] == ("fail", "the measurement ended (status 3): it broke")
    assert found.slow == ["n2"]
    assert found.ms < 20_000, "nobody waited for a limit"


def test_wrong_sums_are_not_fast(tmp_path: Path) -> None:
    def answer(node: str, request: dict[str, Any]) -> tuple[float, str, str] | None:
        if request["do"] == "measure" and any(
            "n4" in (m[0] for m in group) and node in (m[0] for m in group)
            for group in request["groups"]
        ):
            return 1, "deep", unit(request["id"], "ok", "torch", 1 << 20, 1000, 9000, 3, 5000, "")
        return usual(node, request)

    found = drive(VirtualStep(FOUR, answer), tmp_path / "deep.tsv")

    assert found.slow == ["n4"]
    assert found.rows["n4"][1] == "no all-reduce with it succeeds: 3 wrong values in the sum"
    whole = rows(tmp_path / "deep.tsv")[0]
    assert (whole["busbw_gbps"], whole["wrong"], whole["note"]) == (
        "9.000",
        "3",
        "3 wrong values in the sum",
    )


def test_the_budget_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_DEEP_BUDGET_S", "2")
    monkeypatch.setenv("ORCH_DEEP_BYTES", "junk")
    step = VirtualStep(FOUR, usual)

    found = drive(step, tmp_path / "deep.tsv")

    assert [one["round"] for one in rows(tmp_path / "deep.tsv")] == ["all"]
    assert {row[0] for row in found.rows.values()} == {"pass"}
    assert step.sent[0]["bytes"] == 512 << 20


def test_a_set_that_ends_ends_the_step(tmp_path: Path) -> None:
    step = VirtualStep(FOUR, usual)

    found = drive(step, tmp_path / "deep.tsv", ended=lambda: step.now >= 2.5)

    assert step.now < 200 and [one["round"] for one in rows(tmp_path / "deep.tsv")] == ["all"]
    assert found.slow == []


def test_a_step_that_ended_says_why(tmp_path: Path) -> None:
    step = VirtualStep(FOUR, lambda node, request: None)
    step.alive = False

    found = drive(step, tmp_path / "deep.tsv")

    assert set(found.rows.values()) == {
        ("skip", "the step ended before a word of it: srun: error", "")
    }


def test_a_table_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "preflight").write_text("")
    step = VirtualStep(FOUR, usual)

    found = drive(step, tmp_path / "preflight/deep.tsv")

    assert found.data is None
    assert found.summary.startswith(f"bandwidth not measured: cannot write to {tmp_path}/preflight")
    assert step.sent == []


DETAIL = st.one_of(
    st.text("09ok é-\t\x07\x1f", max_size=40),
    st.lists(
        st.one_of(st.text("0-é²\x07", max_size=3), st.integers(-5, 10**20).map(str), st.just("ok")),
        max_size=10,
    ).map(lambda parts: unit(*parts)),
)


@settings_of_hypothesis(max_examples=40)
@given(st.data())
def test_no_word_of_a_node_raises(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    def answer(node: str, request: dict[str, Any]) -> tuple[float, str, str] | None:
        word = data.draw(
            st.sampled_from(["usual", "usual", "deep", "deep-ready", "failed", "left", ""])
        )
        return usual(node, request) if word == "usual" else (1, word, data.draw(DETAIL))

    nodes = ["n1", "n2", "n3"]
    found = drive(VirtualStep(nodes, answer), tmp_path_factory.mktemp("deep") / "deep.tsv", nodes)

    assert list(found.rows) == nodes
    assert all(
        "\t" not in text and "\n" not in text and "\x1f" not in text
        for row in found.rows.values()
        for text in row
    )
