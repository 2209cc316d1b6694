"""Every kind of part in every renderer: terminal, Markdown, page."""

from __future__ import annotations

import math
from typing import get_args

import pytest

from orchestrator.frozen import Frozen
from orchestrator.views import markdown, parts
from orchestrator.views.figures import MINUTES, MISSING, plain
from orchestrator.views.markup import Safe
from orchestrator.views.page import render, rendered
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
        Headline("no valid score", "bad", ["the first sentence"], ["a reason"]),
        ["no valid score", "the first sentence", "a reason"],
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
        short="h",
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


EVIL = "\x1b]0;owned\x07\x9b2J\u202e\ud800\r\n\tforged"


@pytest.mark.parametrize(
    "part",
    [
        Headline(EVIL, "bad", [EVIL], [EVIL]),
        Heading(EVIL),
        Paragraph(EVIL),
        Sentences([EVIL, Cell(EVIL, code=True)]),
        Bullets([EVIL, Cell(EVIL)], EVIL),
        FactList([(EVIL, EVIL)]),
        Table(EVIL, (EVIL, EVIL), [(EVIL, Cell(EVIL))], states=(1,), remark=EVIL, below=[EVIL]),
        Details(EVIL, Table(EVIL, (EVIL,), [(EVIL,)], legend={EVIL: EVIL})),
        Steps([Step(EVIL, (EVIL,))]),
    ],
    ids=lambda part: type(part).__name__,
)
@pytest.mark.parametrize("width", [None, 80, 20])
def test_hostile_text_never_reaches_a_terminal(part: Part, width: int | None) -> None:
    for line in lines([part], Screen(width, signs="unicode")):
        assert line.isprintable(), ascii(line)


def shown_by_all(part: Part) -> tuple[str, str, str]:
    return "\n".join(lines([part])), markdown.rendered([part]), rendered([part])


def test_columns_of_one_name_keep_their_values() -> None:
    table = Table("t", ("name", "side", "side"), [("rate", "left", "right")])
    for text in shown_by_all(table):
        assert "left" in text and "right" in text


def test_the_column_of_remarks_has_its_name() -> None:
    table = Table("t", ("run", "state"), [(1, "failed")], remark="reason", below=["it broke"])
    assert lines([table])[0].split() == ["RUN", "STATE", "REASON"]
    assert "| run | state | reason |" in markdown.rendered([table])
    assert lines([table.replace(below=())]) == ["RUN  STATE", "1    failed"]


def test_states_have_a_sign_in_every_renderer() -> None:
    table = Table("t", ("run", "state"), [(1, "failed"), (2, "success")], states=(1,))
    assert lines([table], Screen(80, signs="unicode"))[1:] == ["1    ✗ failed", "2    ✓ success"]
    _, pasted, page = shown_by_all(table)
    assert "| 1 | ✗ failed |" in pasted and "| 2 | ✓ success |" in pasted
    assert '<td class="bad">✗ failed</td>' in page and '<td class="good">✓ success</td>' in page


def test_groups_of_digits_are_joined_and_the_text_of_others_stays() -> None:
    path = "a\u202fb"
    table = Table("t", ("file", "samples"), [(path, plain(3168)), (path, path)], numeric=(1,))
    assert lines([table])[1:] == [f"{path}      3168", f"{path}       {path}"]


def test_a_number_that_is_none_has_no_unit() -> None:
    assert MINUTES.full(math.nan) == MINUTES.full(None) == MISSING


def test_a_column_of_names_moves_under_its_row_in_its_turn() -> None:
    table = Table("t", ("run", "seed", "file"), [(1, "4" * 9, "f" * 20)], under=("file",))
    table = table.replace(leave=("seed", "file"))
    assert lines([table], Screen(30)) == ["RUN  FILE", f"1    {'f' * 20}"]
    assert lines([table], Screen(22)) == ["RUN", "1", f"    {'f' * 20}"]


def test_parts_cannot_be_changed() -> None:
    for part, _ in EACH:
        assert isinstance(part, Frozen)
    with pytest.raises(AttributeError, match=r"Heading\.text was set when"):
        Heading("a").text = "b"  # type: ignore[misc]
    assert parts.Paragraph("a").replace(text="b").text == "b"
