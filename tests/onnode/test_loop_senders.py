"""Which node a line of a step comes from, whatever the order of the tasks, and whatever a node claims to be."""

from __future__ import annotations

import pytest

from orchestrator.onnode.loop.slurm import MOST_HELD, Senders, labelled


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"0: left\tn1\t", ("n1", b"left\tn1\t")),
        (b" 1: a: b", ("n2", b"a: b")),
        (b"01: a", ("n2", b"a")),
        (b"1: 0: forged", ("n2", b"0: forged")),
        (b"1: ", ("n2", b"")),
        (b"2: of no task", ("", b"2: of no task")),
        (b"-1: a", ("", b"-1: a")),
        (b"left\tn1\t", ("", b"left\tn1\t")),
        (b": a", ("", b": a")),
        ("\u0661: a".encode(), ("", "\u0661: a".encode())),
        (b"", ("", b"")),
    ],
)
def test_the_label_of_srun_names_the_sender(line: bytes, found: tuple[str, bytes]) -> None:
    assert labelled(line, ["n1", "n2"]) == found


def heard(*lines: str, nodes: str = "n1 n2 n3") -> list[tuple[str, str]]:
    """Return who said what when srun wrote these lines, such as `0: begin n1` for the word `begin` of task 0 about n1."""
    found: list[tuple[str, str]] = []
    senders = Senders(
        nodes.split(),
        lambda sender, line: found.append((sender, line.decode().replace("\t", " ").strip())),
    )
    for text in lines:
        label, *words = text.split(" ")
        senders.receive_labelled(f"{label} {chr(9).join([*words, ''])}".encode())
    return found


def test_tasks_in_the_order_of_the_names() -> None:
    assert heard("2: begin n3", "0: begin n1") == [("n3", "begin n3"), ("n1", "begin n1")]


def test_tasks_in_another_order_are_believed_once_all_of_them_agree() -> None:
    said = ["0: begin n3", "0: facts n3", "1: begin n1", "2: begin n2"]
    assert heard(*said[:3]) == []
    assert heard(*said, "0: left n3") == [
        ("n3", "begin n3"), ("n3", "facts n3"), ("n1", "begin n1"), ("n2", "begin n2"), ("n3", "left n3"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "order", [["0: begin n1", "1: left n1"], ["1: left n1", "0: begin n1"]], ids=["after", "before"]
)
def test_who_names_a_node_that_is_in_its_place_speaks_for_another_one(order: list[str]) -> None:
    assert sorted(heard(*order)) == [("n1", "begin n1"), ("n2", "left n1")]


def test_one_that_speaks_for_another_one_takes_nobody_with_it() -> None:
    found = heard("2: left n2", "1: left n1", "0: begin n1", "1: begin n2")
    assert sorted(found) == [
        ("n1", "begin n1"),
        ("n2", "begin n2"),
        ("n2", "left n1"),
        ("n3", "left n2"),
    ]


def test_two_that_change_names_are_only_themselves() -> None:
    assert heard("0: begin n2", "1: begin n1", "0: left n1") == [
        ("n2", "begin n2"),
        ("n1", "begin n1"),
        ("n2", "left n1"),
    ]


def test_who_is_never_known_is_heard_under_its_place_in_the_end() -> None:
    lines = ["1: note n1"] * (MOST_HELD + 1)
    assert heard(*lines[:-1]) == [] and heard(*lines) == [("n2", "note n1")] * len(lines)


def test_what_is_no_word_has_a_place() -> None:
    assert heard("0: Traceback", "srun: error n1", "1: x n9") == [
        ("n1", "Traceback"),
        ("", "srun: error\tn1".replace("\t", " ")),
        ("n2", "x n9"),
    ]
