"""What the loop makes of the words of nodes in an attempt, and what of it is on record when the disk is full."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from policy_parts import unit

from orchestrator.evidence.events import read_events
from orchestrator.onnode.kernel.events import Event, EventLog, Pulse, parse_pong
from orchestrator.onnode.kernel.files import Appender
from orchestrator.onnode.kernel.world import THIS
from orchestrator.onnode.loop.attempt_reports import AttemptReports


def after(*words: tuple[str, str, str]) -> AttemptReports:
    """An attempt of run 3 on n0, n1, n2, whose nodes have said (node, word, detail)."""
    reports = AttemptReports(3, 1, ["n0", "n1", "n2"])
    for node, word, detail in words:
        reports.take(Event(1, "node", word, node, detail))
    return reports


def state(reports: AttemptReports) -> dict[str, object]:
    return {**vars(reports), "gate": vars(reports.gate)}


def test_the_gate_names_who_is_not_ready_and_why() -> None:
    reports = after(
        ("n0", "kept", unit("3.1", "cannot drop caches")),
        ("n1", "refused", unit("3.1", "cannot see k wanted 1")),
    )
    assert reports.gate.refusals("late") == (
        "node n0 (rank 0) cannot drop caches; run as root, give the site a sudo prefix, or set clear_caches: false; "
        "node n1 (rank 1): cannot see k wanted 1; late"
    )
    assert reports.gate.not_ready() == {
        "n0": "before run 3 it cannot drop caches",
        "n1": "before run 3: cannot see k wanted 1",
        "n2": "it did not answer before run 3",
    }


@pytest.mark.parametrize(
    ("word", "detail", "reason"),
    [
        ("failed", unit("storage", "disk full"), "disk full"),
        ("gone", "ended", "ended"),
        ("left", "", "its agent ended"),
    ],
)
def test_a_node_that_cannot_go_on_is_not_waited_for(word: str, detail: str, reason: str) -> None:
    reports = after(
        ("n0", "prepared", unit("3.1", 1, "-", "-")), ("n1", word, detail), ("n1", "left", "")
    )
    assert reports.gate.unanswered() == ["n2"]
    assert reports.gate.refusals() == f"node n1 (rank 1): {reason}"


@pytest.mark.parametrize(
    ("node", "word", "detail"),
    [
        ("n3", "exit", unit("3.1", 0, 1, 2, "success")),  # has no rank
        ("n0", "exit", unit("2.1", 0, 1, 2, "success")),  # of another attempt
        ("n0", "exit", unit("3.1", 0, 1, 2)),
        ("n0", "exit", unit("3.1", "x", 1, 2, "success")),
        ("n0", "exit", unit("3.1", -1, 1, 2, "success")),
        ("n0", "exit", unit("3.1", 99999, 1, 2, "success")),
        ("n0", "prepared", unit("3.1", 1)),
        ("n0", "refused", "3.1"),
        ("n0", "what", unit("3.1", 0)),
        ("n0", "transport", unit("3.1", 1, "")),
        ("n0", "transport", unit("3.1", "", 1, "line")),
        ("n0", "evidence", "3.1"),
        ("n0", "", ""),
    ],
)
def test_words_that_are_not_whole_or_of_others_change_nothing(
    node: str, word: str, detail: str
) -> None:
    assert state(after((node, word, detail))) == state(after())


@pytest.mark.parametrize(
    "detail",
    [
        unit(5, "2.1", 1, 0, 0, 0),  # of another attempt
        "5",
        unit(5, "3.1", 1, 0, "x", 0),
        unit(5, "3.1", -1, 0, 0, 0),
        unit(5, "3.1", 1, 0, 0),
        unit(5, "3.1", 1, 0, 0, 0, 0),
        unit(5, "3.1", 10**15, 0, 0, 0),
    ],
)
def test_pulses_that_are_not_whole_or_of_others_change_nothing(detail: str) -> None:
    reports = after()
    assert reports.has_news()
    for line in (
        f"pong\tn0\t{detail}",
        f"pong\tn3\t{unit(5, '3.1', 1, 0, 0, 0)}",
    ):  # n3 has no rank
        if (pong := parse_pong(line.encode())) and pong[2]:
            reports.take_pulse(pong[0], pong[1], pong[2])
    assert not reports.has_news() and reports.pulses == {}


def test_a_pulse_counts_for_its_node() -> None:
    pong = parse_pong(f"pong\tn1\t{unit(5, '3.1', 1500, 1, 60_000, 0)}".encode())
    assert pong == ("n1", "3.1", Pulse(1500, 1, 60_000, 0))
    assert parse_pong(b"pong\tn1\t5") == ("n1", "", None) and parse_pong(b"exit\tn1\t5") is None


def test_who_ended_a_run_by_a_signal() -> None:
    """Slurm tells the processes of a job that it ends one after another: the word of a node may be the first that the loop hears."""
    ended = ("n0", "exit", unit("3.1", 143, 1, 2, ""))
    assert (
        after(ended).was_signalled
        and not after(("n0", "exit", unit("3.1", 1, 1, 2, ""))).was_signalled
    )
    stopped = after()
    stopped.stop()
    stopped.take(Event(1, "node", ended[1], ended[0], ended[2]))
    assert not stopped.was_signalled


def test_events_that_found_no_room_are_written_with_the_next(tmp_path: Path) -> None:
    log, before = EventLog(tmp_path / "events"), resource.getrlimit(resource.RLIMIT_FSIZE)
    log.append("node", "first", "n0", "x" * 50)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        for _ in range(3):
            log.append("node", "lost", "n0", "x" * 50)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    log.append("node", "next", "n0", "x" * 50)
    log.append("node", "last", "n0", "x" * 50)
    log.close()
    assert [(one.word, one.detail) for one in read_events(tmp_path / "events")] == [
        (word, "x" * 50) for word in ("first", "lost", "lost", "lost", "next", "last")
    ]


def test_a_file_whose_handle_the_server_forgot_is_opened_anew(tmp_path: Path) -> None:
    """As after its server was set up again: each later write to the open file fails, too."""
    path, opened, is_away = tmp_path / "events", list[Appender](), [True]

    class Forgotten(Appender):
        def write(self, content: bytes | bytearray) -> int:
            if self is opened[0] and self.size():
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            return super().write(content)

    def appender(place: Path) -> Appender:
        if opened and is_away:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(is_away.pop()))
        opened.append(Forgotten(place))
        return opened[-1]

    world: Any = SimpleNamespace(wall_ms=THIS.wall_ms, files=SimpleNamespace(appender=appender))
    log = EventLog(path, world)
    words = ["first", "second", "third", "fourth"]
    with open(tmp_path / "another", "wb") as another:
        for word in words:
            log.append("loop", word)
        log.close()
        another.flush()
    assert [event.word for event in read_events(path)] == words
    assert not (tmp_path / "another").read_bytes()
    assert len(opened) == 2
