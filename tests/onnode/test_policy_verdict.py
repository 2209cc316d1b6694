"""Rows, verdicts on nodes, the table of them, the JSON and what is printed; and the verdicts of preflight.sh."""

from __future__ import annotations

import json

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_parts import report, settings

from orchestrator.evidence.checks import coverage, judge, parse_table
from orchestrator.onnode.policy.reports import Check
from orchestrator.onnode.policy.verdict import (
    ORDER,
    NodeVerdict,
    Row,
    Verdicts,
    judge_preflight,
    plain_table,
    table,
)

BAD = Row("bad2", "gpu_count", "fail", 9, "7 of 8 GPUs", "check dmesg")
WARM = Row("warm3", "clock", "warn", 9, "3 s off", "synchronise it")
GOOD = Row("n1", "engine", "pass", 3, "docker 27")


def some() -> Verdicts:
    rows = [GOOD, BAD, WARM, Row("*", "agreement", "warn", 0, "the nodes differ")]
    return judge(
        ["n1", "bad2", "warm3", "silent4", "n5"],
        rows,
        {"silent4": "SSH: no answer"},
        {"n5": "drained"},
    )


# ---- verdicts ----


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (["pass"], "pass"),
        (["skip"], "pass"),
        (["pass", "skip"], "pass"),
        (["warn", "pass"], "warn"),
        (["warn", "fail", "pass"], "fail"),
        ([], "untested"),
    ],
)
def test_a_nodes_verdict_is_its_worst_row(found: list[str], verdict: str) -> None:
    assert (
        NodeVerdict("n", tuple(Row("n", f"c{at}", one, 0) for at, one in enumerate(found))).verdict
        == verdict
    )


def test_a_node_that_broke_off_is_untested_unless_it_has_failed() -> None:
    assert NodeVerdict("n", (GOOD,), "lost").verdict == "untested"
    assert NodeVerdict("n", (BAD,), "lost").verdict == "fail"


def test_reasons_are_said_once_failures_first() -> None:
    rows = [
        Row("n", "limits", "warn", 0, "few files", "raise it"),
        Row("n", "gpu_model", "fail", 0, "no answer within 10 s", "dmesg"),
        Row("n", "gpu_count", "fail", 0, "no answer within 10 s", "dmesg"),
        Row("n", "verdict", "fail", 0, "check gpu_count: no answer within 10 s"),
        Row("n", "engine", "fail", 0),
    ]
    assert NodeVerdict("n", tuple(rows)).reasons == [
        ("fail", "gpu_count, gpu_model: no answer within 10 s", "dmesg"),
        ("fail", "engine", ""),
        ("warn", "limits: few files", "raise it"),
    ]


def test_a_set_aside_node_without_checks_still_has_a_reason() -> None:
    only = NodeVerdict("n", (Row("n", "verdict", "fail", 0, "check engine: silent"),))
    assert only.reasons == [("fail", "verdict: check engine: silent", "")]


def test_all_nodes() -> None:
    told = some()
    assert [one.verdict for one in told.nodes] == ["pass", "fail", "warn", "untested", "untested"]
    assert (told.tested, told.verdict, told.fit, told.exclude) == (
        3,
        "fail",
        False,
        ["bad2", "silent4"],
    )
    assert coverage(told) == "tested 3 of 5 nodes: 1 fit, 1 fit with warnings, 1 failed"
    assert judge([], [], {}).verdict == "untested" and not judge([], [], {}).fit


def test_what_is_about_all_counts() -> None:
    assert judge(["n1"], [GOOD, Row("*", "agreement", "fail", 0, "no RDMA")], {}).verdict == "fail"
    assert judge(["n1"], [GOOD, Row("*", "agreement", "skip", 0, "-")], {}).verdict == "pass"
    assert judge(["n1", "n2"], [GOOD], {}).verdict == "untested"


def test_json() -> None:
    told = json.loads(json.dumps(some().to_json()))
    assert {name: told[name] for name in ("schema", "given", "tested", "verdict", "exclude")} == {
        "schema": 1,
        "given": 5,
        "tested": 3,
        "verdict": "fail",
        "exclude": ["bad2", "silent4"],
    }
    row = {
        "check": "gpu_count",
        "verdict": "fail",
        "ms": 9,
        "text": "7 of 8 GPUs",
        "remedy": "check dmesg",
    }
    assert told["nodes"][1] == {
        "node": "bad2",
        "verdict": "fail",
        "reason": "gpu_count: 7 of 8 GPUs",
        "remedy": "check dmesg",
        "checks": [row],
    }
    assert [one["reason"] for one in told["nodes"]] == [
        "",
        "gpu_count: 7 of 8 GPUs",
        "clock: 3 s off",
        "SSH: no answer",
        "drained",
    ]
    assert told["together"] == [
        {"check": "agreement", "verdict": "warn", "ms": 0, "text": "the nodes differ", "remedy": ""}
    ]


def test_json_joins_several_reasons() -> None:
    told = NodeVerdict(
        "n", (WARM, BAD, Row("n", "limits", "warn", 0, "few", "synchronise it"))
    ).to_json()
    assert told["reason"] == "gpu_count: 7 of 8 GPUs; clock: 3 s off; limits: few"
    assert told["remedy"] == "check dmesg; synchronise it"


# ---- the table ----


def test_the_table() -> None:
    assert table(some().rows) == (
        "node\tcheck\tverdict\tms\ttext\tremedy\n"
        "n1\tengine\tpass\t3\tdocker 27\t\n"
        "bad2\tgpu_count\tfail\t9\t7 of 8 GPUs\tcheck dmesg\n"
        "warm3\tclock\twarn\t9\t3 s off\tsynchronise it\n"
        "silent4\tanswer\tuntested\t0\tSSH: no answer\t\n"
        "n5\tanswer\tuntested\t0\tdrained\t\n"
        "*\tagreement\twarn\t0\tthe nodes differ\t\n"
    )


def test_a_damaged_table() -> None:
    text = "node\tcheck\tverdict\tms\ttext\tremedy\na\tx\tpass\t1\t\t\r\na\ty\tnew\t1\t\t\ntorn\tx\na\tz\tfail\t²\tt\n"
    assert parse_table(text) == [Row("a", "x", "pass", 1), Row("a", "z", "fail", 0, "t")]
    assert parse_table("a\tx\twarn\t1\tone\u2028line\t\n") == [
        Row("a", "x", "warn", 1, "one\u2028line")
    ]


WORD = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=30)
ROWS = st.lists(
    st.builds(Row, WORD, WORD, st.sampled_from(ORDER), st.integers(0, 10**12), WORD, WORD),
    max_size=8,
)


@hypothesis.settings(max_examples=50)
@given(ROWS)
def test_a_table_is_read_as_it_was_written(rows: list[Row]) -> None:
    assert parse_table(table(rows)) == rows


@hypothesis.settings(max_examples=50)
@given(st.text() | st.text("\t\n pasfil0129x"))
def test_any_text_can_be_read(text: str) -> None:
    parse_table(text)


@hypothesis.settings(max_examples=50)
@given(ROWS, st.lists(st.sampled_from("abc"), unique=True))
def test_verdicts_say_the_same_again(rows: list[Row], nodes: list[str]) -> None:
    first = judge(nodes, rows, {})
    again = judge(nodes, parse_table(table(first.rows)), {})
    assert again.to_json() == first.to_json() and plain_table(again) == plain_table(first)
    assert first.tested <= len(nodes) and set(first.exclude) <= set(nodes)
    assert first.fit == (first.verdict in ("pass", "warn"))


def test_what_preflight_prints() -> None:
    assert plain_table(some(), "bus bandwidth 312 GB/s over 2 nodes").splitlines() == [
        "NODE     VERDICT   REASON",
        "n1       pass",
        "bad2     fail      gpu_count: 7 of 8 GPUs (check dmesg)",
        "warm3    warn      clock: 3 s off (synchronise it)",
        "silent4  untested  SSH: no answer",
        "n5       untested  drained",
        "warning: the nodes differ",
        "bus bandwidth 312 GB/s over 2 nodes",
        "tested 3 of 5 nodes",
        "exclude: bad2,silent4",
    ]
    assert "all nodes: no RDMA\n" in plain_table(
        judge(["n1"], [GOOD, Row("*", "agreement", "fail", 0, "no RDMA")], {})
    )


# ---- preflight.sh ----


def test_preflight_asks_all_rules() -> None:
    port = "rdma0,400,Ethernet,3"
    fine = [("engine", "pass", "docker 27"), ("versions", "pass", "kernel 6")]
    reports = {
        "n1": report(*fine, network=port, facts={"kernel": "6"}, checked="1"),
        "n2": report(*fine, network=port, facts={"kernel": "5"}, checked="1"),
        "n3": report(
            ("rdma", "fail", "rdma0: DOWN", "cable"),
            network="none",
            facts={"kernel": "4"},
            checked="1",
        ),
        "n4": report(*fine, network=port, facts={"kernel": "6"}, checked="1"),
        "n5": report(*fine),
    }
    told = judge_preflight(
        [*reports, "n6", "n7"], reports, {"n6": "not in this allocation"}, settings(preflight_run=0)
    )
    assert [one.verdict for one in told.nodes] == [
        "pass",
        "fail",
        "fail",
        "pass",
        "untested",
        "untested",
        "untested",
    ]
    assert told.nodes[1].reasons == [
        ("fail", "versions: kernel is 5, elsewhere 6", "make it like the others, or leave it out")
    ]
    # Who has failed is not compared.
    assert told.nodes[2].reasons == [("fail", "rdma: rdma0: DOWN", "cable")] and told.together == ()
    assert [one.problem for one in told.nodes[4:]] == [
        "no answer",
        "not in this allocation",
        "no answer",
    ]
    assert told.exclude == ["n2", "n3", "n5", "n6", "n7"]


def test_preflight_with_nobody_to_blame() -> None:
    reports = {
        name: report(("engine", "pass"), network="none", checked="1") for name in ("n1", "n2")
    }
    told = judge_preflight(["n1", "n2"], reports, {}, settings(network_rdma="required"))
    assert [(row.check, row.verdict) for row in told.together] == [
        ("agreement", "fail")
    ] and not told.fit
    assert told.exclude == []
    told = judge_preflight(["n1", "n2"], reports, {}, settings())
    assert [(row.check, row.verdict) for row in told.together] == [
        ("agreement", "warn")
    ] and told.fit
    assert judge_preflight([], {}, {}, settings()).verdict == "untested"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [({"preflight_warn": ("versions",)}, "warn"), ({"preflight_skip": ("versions",)}, "pass")],
)
def test_preflight_as_the_site_has_it(changes: dict[str, tuple[str, ...]], verdict: str) -> None:
    reports = {
        name: report(("versions", "pass"), facts={"kernel": name}, checked="1")
        for name in ("n1", "n2")
    }
    told = judge_preflight(["n1", "n2"], reports, {}, settings(fabric="none", **changes))
    assert [one.verdict for one in told.nodes] == ["pass", verdict]


def test_preflight_of_nodes_that_sent_no_facts() -> None:
    reports = {name: report(("engine", "pass"), checked="1") for name in ("a", "b")}
    told = judge_preflight(["a", "b"], reports, {}, settings())
    assert told.fit and told.tested == 2


def test_a_row_is_added() -> None:
    told = judge(["n1", "n2"], [GOOD], {}).with_checks(
        {"n1": Check("deep", "fail", 900, "slow: pairs with it", "")}
    )
    assert told.exclude == ["n1", "n2"] and told.nodes[0].rows[-1] == Row(
        "n1", "deep", "fail", 900, "slow: pairs with it"
    )
