"""What a node says is data: it is kept, cut to size, or ignored, and never more than that."""

from __future__ import annotations

import sys
import tracemalloc

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_parts import report, unit

from orchestrator.onnode.policy import reports
from orchestrator.onnode.policy.reports import (
    CHECKS,
    OUTCOMES,
    Check,
    NodeReport,
    check_order,
    parse_check,
)

WORDS = [
    *(
        "check",
        "same",
        "checked",
        "network",
        "trouble",
        "note",
        "facts",
        "facts+",
        "waits",
        "ready",
        "failed",
        "gone",
    ),
    *(
        "prepared",
        "refused",
        "kept",
        "exit",
        "left",
        "pong",
        "deep-ready",
        "deep",
        "clock",
        "unseen",
        "",
        "eval",
    ),
]
TEXT = st.text(max_size=300) | st.text("\x1f\x00\x1b[=,-$(){}\u2028\ud800 ab1", max_size=300)
DETAILS = TEXT | st.lists(TEXT, max_size=12).map("\x1f".join)


def size(told: NodeReport) -> int:
    """Characters and items that a report holds."""
    rows = sum(
        len(one.name) + len(one.verdict) + len(one.text) + len(one.remedy)
        for one in told.checks.values()
    )
    pairs = sum(
        len(name) + len(value)
        for values in (told.same, told.facts)
        for name, value in values.items()
    )
    items = (
        len(told.checks)
        + len(told.same)
        + len(told.facts)
        + len(told.troubles)
        + len(told.messages)
    )
    return (
        rows
        + pairs
        + items
        + sum(map(len, told.troubles))
        + sum(map(len, told.messages))
        + len(told.network + told.image)
    )


# ---- checks ----


def test_a_check() -> None:
    told = report(("gpu_count", "fail", "7 of 8 GPUs", "check dmesg"))
    assert told.checks == {"gpu_count": Check("gpu_count", "fail", 5, "7 of 8 GPUs", "check dmesg")}
    assert told.checks["gpu_count"].sentence == "7 of 8 GPUs; check dmesg" and told.messages == {
        "check"
    }


def test_a_later_row_of_a_check_takes_the_place_of_the_first() -> None:
    told = report(
        ("gpu_count", "pass", "8 GPUs"), ("engine", "pass"), ("gpu_count", "fail", "7 of 8 GPUs")
    )
    assert [one.verdict for one in told.checks.values()] == ["fail", "pass"]


@pytest.mark.parametrize(
    "detail",
    [
        "",
        "x",
        unit("gpu_count", "untested", 1, "", ""),
        unit("gpu_count", "PASS", 1, "", ""),
        unit("gpu_count", "", 1),
        unit("gpu count", "pass", 1, "", ""),
        unit("GPU", "pass", 1, "", ""),
        unit("../../etc", "pass", 1, "", ""),
        unit("$(reboot)", "pass", 1, "", ""),
        unit("a" * 41, "pass", 1, "", ""),
        unit("gpu_count\n", "pass", 1, "", ""),
        unit("größe", "pass", 1, "", ""),
    ],
)
def test_what_is_no_check(detail: str) -> None:
    assert parse_check(detail) is None
    told = report()
    told.apply("check", detail)
    assert told.checks == {} and told.messages == {"check"}


@pytest.mark.parametrize(
    ("ms", "taken"),
    [
        ("12", 12),
        ("", 0),
        ("x", 0),
        ("-1", 0),
        ("1e3", 0),
        ("9" * 10, 0),
        ("٣", 0),
        ("a[$(id)]", 0),
    ],
)
def test_milliseconds(ms: str, taken: int) -> None:
    assert parse_check(unit("engine", "pass", ms, "docker 27")) == Check(
        "engine", "pass", taken, "docker 27"
    )


def test_texts_become_lines() -> None:
    row = parse_check("engine\x1fwarn\x1f1\x1fa\tb\nc\x1b[2J\x1fd\x1fe\r")
    assert row == Check("engine", "warn", 1, "a b c [2J", "d e ")
    assert (
        len(parse_check(unit("engine", "warn", 1, "x" * 5000, "y" * 5000)).sentence) == 2 * 1024 + 2
    )  # type: ignore[union-attr]


def test_the_bandwidth_stays() -> None:
    told = report(
        ("engine", "pass"),
        facts={"kernel": "6"},
        same="1",
        troubles=["t"],
        ready="sha256:1",
        clock="5",
        unseen="",
    )
    told.apply(
        "deep",
        unit("deep", "fail", 900, "slow: pairs with it reach 1.000 GB/s at best, others 2.000", ""),
    )
    told.reset()
    assert told == NodeReport(checks=told.checks) and list(told.checks) == ["deep"]
    told.reset()
    assert told.checks["deep"].verdict == "fail"
    fresh = report(("engine", "pass"))
    fresh.reset()
    assert fresh == NodeReport()


@pytest.mark.parametrize(
    "detail", ["3.1\x1fok\x1f0\x1f1\x1f2\x1f3\x1f4\x1f5", "engine\x1ffail\x1f1\x1fx", "deep", ""]
)
def test_deep_of_others_is_no_row(detail: str) -> None:
    assert report(deep=detail).checks == {}


def test_known_checks_come_first_and_outcomes_last() -> None:
    names = ["verdict", "zebra", "deep", "engine", "container", "apple", "versions"]
    assert sorted(names, key=check_order) == [
        "engine",
        "versions",
        "deep",
        "apple",
        "zebra",
        "container",
        "verdict",
    ]
    assert len({*CHECKS, *OUTCOMES}) == len(CHECKS) + len(OUTCOMES)


# ---- the other words ----


def test_facts_in_pieces() -> None:
    told = report(facts={"old": "1"})
    told.apply("facts", unit("kernel=6.8", "rocm=7.0=x", "torn", "=x", ""))
    told.apply("facts+", unit("bios=1.4", "kernel=6.9"))
    assert list(told.facts.items()) == [("kernel", "6.9"), ("rocm", "7.0=x"), ("bios", "1.4")]
    told.apply("facts", "")
    assert told.facts == {}


def test_facts_are_lines_of_a_table() -> None:
    told = report(facts={"a\tb": "c\td\ne"})
    assert told.facts == {"a b": "c d e"}


@pytest.mark.parametrize(
    ("detail", "off"),
    [("3000", 3000), ("-2500", -2500), ("0", 0), ("x", 7), ("", 7), ("9" * 400, 7), ("1.5", 7)],
)
def test_the_clock(detail: str, off: int) -> None:
    told = report(clock="7")
    told.apply("clock", detail)
    assert told.clock_off_ms == off


def test_the_rest() -> None:
    told = report(
        same="v=1",
        network="rdma0,400,Ethernet,3",
        ready="sha256:1",
        checked="12",
        unseen="",
        waits="",
    )
    assert (told.same, told.network, told.image, told.unseen) == (
        {"data": "v=1"},
        "rdma0,400,Ethernet,3",
        "sha256:1",
        True,
    )
    assert told.messages == {"same", "network", "ready", "checked", "unseen", "waits"}


# ---- whatever comes ----


@hypothesis.settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(WORDS) | TEXT, DETAILS), max_size=40))
def test_no_word_can_raise_and_all_can_be_written(words: list[tuple[str, str]]) -> None:
    told, other = NodeReport(), NodeReport()
    for word, detail in words:
        told.apply(word, detail)
        other.apply(word, detail)
    assert told == other
    kept = [
        *told.same,
        *told.same.values(),
        *told.facts,
        *told.facts.values(),
        *told.troubles,
        *told.messages,
        told.network,
    ]
    for text in [
        *kept,
        told.image,
        *(part for row in told.checks.values() for part in (row.text, row.remedy)),
    ]:
        assert not set(text) & set("\t\n\r\x1f\x00\x1b\x7f\x85")
        text.encode()
    assert all(
        row.verdict in reports.VERDICTS and name == row.name for name, row in told.checks.items()
    )


@pytest.mark.parametrize("word", WORDS)
def test_no_word_grows_memory(word: str) -> None:
    told = NodeReport()

    def flood(begin: int, end: int) -> None:
        for number in range(begin, end):
            name = "".join(chr(97 + int(digit)) for digit in str(number))
            told.apply(word, unit(name, "pass", 1, "x" * 300, f"{number}=y"))
            told.apply(word, f"{number}={'y' * 4000}")
            told.apply(f"word{number}", "")

    flood(0, 600)
    full = size(told)
    flood(600, 1200)
    assert size(told) <= full + 10 and full < 800_000


def test_a_flood_of_facts_ends() -> None:
    told = NodeReport()
    tracemalloc.start()
    for number in range(50):
        told.apply("facts+", unit(*(f"{number}.{index}=v" for index in range(100))))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(told.facts) == reports.MOST_FACTS and held < 1 << 20


def test_nothing_is_evaluated() -> None:
    before = set(sys.modules)
    told = NodeReport()
    for word in WORDS:
        for detail in (
            "__import__('this')",
            "$(touch /tmp/x)",
            "{0.__class__}",
            "%s%n",
            "a=__import__('this')",
        ):
            told.apply(word, detail)
            told.apply("check", unit("engine", "pass", detail, detail, detail))
    assert set(sys.modules) == before and told.checks["engine"].text == "a=__import__('this')"
