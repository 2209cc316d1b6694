"""Every kind of part in every renderer: terminal, Markdown, page."""

from __future__ import annotations

from typing import get_args

import pytest

from orchestrator.frozen import Frozen
from orchestrator.views import markdown, parts
from orchestrator.views.markup import Safe
from orchestrator.views.page import render
from orchestrator.views.parts import (
    Bullets,
    Cell,
    Details,
    FactList,
    Figure,
    Heading,
    Headline,
    Paragraph,
    Part,
    Section,
    Sentences,
    Step,
    Steps,
    Table,
    with_commands,
)
from orchestrator.views.terminal import lines
from orchestrator.words import Screen

COMMAND = Cell("orchestrator score set_1", code=True)
EACH: list[tuple[Part, list[str]]] = [
    (
        Headline("valid score", "good", ["the first sentence"]),
        ["valid score", "the first sentence"],
    ),
    (Heading("Forecast"), ["Forecast"]),
    (Paragraph("Times are UTC."), ["Times are UTC."]),
    (Sentences(["why: it broke", COMMAND]), ["why: it broke", "score set"]),
    (Bullets(["a remark", COMMAND]), ["a remark", "score set"]),
    (Bullets(["an item"], "findings"), ["findings:", "an item"]),
    (FactList([("state", "complete")]), ["state", "complete"]),
    (
        Table("Runs", ("run", "state"), [(1, "failed")], remark="reason", below=["it broke"]),
        ["failed", "it broke"],
    ),
    (Details("More", Table("Nodes", ("node",), [("node1",)])), ["node1"]),
    (Steps([Step("Add up", ("1 + 2 = 3",), 3.0, "minutes")]), ["Add up", "1 + 2 = 3"]),
]


def test_every_kind_has_an_example() -> None:
    assert {type(part) for part, _ in EACH} | {Figure} == set(get_args(Part))


@pytest.mark.parametrize(("part", "texts"), EACH, ids=[type(part).__name__ for part, _ in EACH])
def test_every_renderer_shows_a_part(part: Part, texts: list[str]) -> None:
    page = render(
        "history.html.j2",
        title="t",
        headline="h",
        subtitle="s",
        sections=[Section("name", "title", [part])],
        patterns=Safe(""),
    )
    markdown_text = markdown.rendered([part]).replace("\\", "")
    shown = isinstance(part, Details)  # which Markdown leaves out
    for text in texts:
        assert text in "\n".join(lines([part])).replace("_", " ")
        assert text in page.replace("_", " ")
        assert shown or text in markdown_text.replace("_", " ")


def test_a_command_is_never_broken_and_sentences_are_folded_once() -> None:
    command = f"orchestrator resume {'x' * 60}"
    text = "why: " + "word " * 20
    shown = lines([with_commands([text.strip(), f"  {command}"])], Screen(40))
    assert shown[-1] == f"  {command}"
    assert all(len(line) <= 40 for line in shown[:-1])
    assert all(line.startswith("  word") for line in shown[1:-1])
    assert len(shown) == 4


def test_remarks_follow_their_part_and_lists_stand_alone() -> None:
    shown = lines([Heading("A"), Bullets(["remark"]), Bullets(["x"], "list"), Bullets([], "none")])
    assert shown == ["A", "remark", "", "list:", "  x"]


def test_a_time_in_a_heading_keeps_its_unit() -> None:
    assert lines([Table("t", ("within 24h", "GB/s"), [])]) == ["WITHIN 24h  GB/S"]


def test_an_entry_in_a_heading_keeps_its_letters() -> None:
    entry = "MI325X_08x08x32:flux1:6.0"
    assert lines([Table("t", ("name", entry), [])]) == [f"NAME  {entry}"]


def test_texts_move_under_their_row_in_order_and_commands_stay_whole() -> None:
    command, reason = "orchestrator resume set_1", "the node went silent twice"
    rows = [("node1", Cell(command, code=True), reason)]
    table = Table("t", ("node", "fix", "reason"), rows, under=("fix", "reason"))
    assert lines([table]) == [
        f"NODE   {'FIX':{len(command)}}  REASON",
        f"node1  {command}  {reason}",
    ]
    assert lines([table], Screen(40)) == ["NODE   REASON", f"node1  {reason}", f"    {command}"]
    assert lines([table], Screen(20)) == [
        "NODE",
        "node1",
        f"    {command}",
        "    the node went",
        "    silent twice",
    ]


def test_parts_cannot_be_changed() -> None:
    for part, _ in EACH:
        assert isinstance(part, Frozen)
    with pytest.raises(AttributeError, match=r"Heading\.text was set when"):
        Heading("a").text = "b"  # type: ignore[misc]
    assert parts.Paragraph("a").replace(text="b").text == "b"
