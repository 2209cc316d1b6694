"""From what nodes said to who is not fit: docs/preflight.md, with the words that people know."""

from __future__ import annotations

import random
from dataclasses import replace

import hypothesis
import pytest
from effort import lines_run
from hypothesis import given
from hypothesis import strategies as st
from policy_parts import report, settings, unit

from orchestrator.onnode.kernel.settings import Settings
from orchestrator.onnode.policy.check_names import CHECKS
from orchestrator.onnode.policy.judge import (
    Judgement,
    agree_on_facts,
    agree_on_image,
    agree_on_network,
    judge_checks,
    usual,
)
from orchestrator.onnode.policy.reports import Check, NodeReport

NO_TOOL = ("gpu_count", "warn", "nothing tells about GPUs", "install amd-smi")


def judged(*, rdma: bool = False, on: Settings | None = None, **reports: NodeReport) -> Judgement:
    return judge_checks(reports, on or settings(), rdma=rdma)


def row(found: Judgement, node: str, name: str) -> Check:
    return next(one for one in found.rows[node] if one.name == name)


# ---- one node's own failures ----


@pytest.mark.parametrize(
    ("check", "failed"),
    [
        (("engine", "fail", "the container engine (docker) does not answer", "systemctl start docker"),
         "check engine: the container engine (docker) does not answer; systemctl start docker"),
        (("image", "fail", "image rocm/training:6.0 is not on this node", ""),
         "check image: image rocm/training:6.0 is not on this node"),
        (("gpu_count", "fail", "7 of 8 GPUs", "check dmesg"), "check gpu_count: 7 of 8 GPUs; check dmesg"),
        (("gpu_errors", "fail", "uncorrectable errors since the driver was loaded: GPU 5: 2", "drain the node"),
         "check gpu_errors: uncorrectable errors since the driver was loaded: GPU 5: 2; drain the node"),
        (("data", "fail", "DATADIR: /no/such/folder does not exist on this node", "mount it"),
         "check data: DATADIR: /no/such/folder does not exist on this node; mount it"),
        (("log_dir", "fail", "no answer within 10 s", "dmesg"), "check log_dir: no answer within 10 s; dmesg"),
        (("brand_new", "fail", "a check of a newer node", ""), "check brand_new: a check of a newer node"),
    ],
)  # fmt: skip
def test_a_failure_is_the_reason(check: tuple[str, ...], failed: str) -> None:
    found = judged(n1=report(check), n2=report((check[0], "pass")))
    assert found.failed == {"n1": failed} and found.warnings == []


def test_warnings_and_skips_do_not_fail() -> None:
    found = judged(
        n1=report(
            ("limits", "skip", "switched off (preflight.skip)"),
            ("clock", "pass"),
            ("gpu_errors", "warn", "x"),
        )
    )
    assert found.failed == {}


def test_the_first_of_several_counts_whatever_came_first() -> None:
    checks = [
        ("versions", "fail", "v"),
        ("engine", "fail", "e"),
        ("data", "fail", "d"),
        ("apple", "fail", "a"),
    ]
    for order in (checks, checks[::-1]):
        found = judged(n1=report(*order))
        assert found.failed == {"n1": "check engine: e"}
        assert [one.name for one in found.rows["n1"]] == ["engine", "data", "versions", "apple"]


@pytest.mark.parametrize("name", ["container", "tunables", "verdict", "deep"])
def test_what_became_of_a_node_and_the_bandwidth_are_judged_elsewhere(name: str) -> None:
    told = NodeReport()
    told.apply("deep" if name == "deep" else "check", unit(name, "fail", 1, "slow: ..."))
    found = judged(n1=told, n2=report(("engine", "pass")))
    assert found.failed == {} and found.warnings == [] and row(found, "n1", name).verdict == "fail"


def test_without_preflight_nobody_is_judged() -> None:
    told = report(("engine", "fail", "x"), clock="99999")
    found = judged(on=settings(preflight_run=0), n1=told)
    assert (found.failed, found.warnings) == ({}, []) and row(
        found, "n1", "engine"
    ).verdict == "fail"


def test_reports_are_left_as_they_are() -> None:
    told = report(("clock", "pass"), ("log_dir", "pass"), clock="99999", unseen="")
    before = dict(told.checks)
    assert judged(n1=told).failed and told.checks == before


# ---- what the batch host saw ----


def test_what_is_not_seen_fails() -> None:
    found = judged(
        n1=report(("log_dir", "pass", "marker seen after 1 ms"), unseen=""),
        n2=report(("log_dir", "pass")),
    )
    text = "what it writes to /shared/sets is not seen on the batch host"
    assert row(found, "n1", "log_dir") == Check(
        "log_dir", "fail", 0, text, "mount the same shared storage on both"
    )
    assert found.failed == {"n1": f"check log_dir: {text}; mount the same shared storage on both"}


def test_without_a_log_directory_the_words_say_so() -> None:
    found = judged(on=settings(logdir=""), n1=report(("log_dir", "pass"), unseen=""))
    assert "what it writes to the log directory is not seen" in found.failed["n1"]


def test_a_node_that_failed_by_itself_keeps_its_own_words() -> None:
    found = judged(n1=report(("log_dir", "fail", "an older marker is there after 1 s"), unseen=""))
    assert found.failed == {"n1": "check log_dir: an older marker is there after 1 s"}


@pytest.mark.parametrize("off", [2001, -2001, 9_999_999])
def test_a_wrong_clock_fails(off: int) -> None:
    found = judged(n1=report(("clock", "pass", "synchronised (chrony)"), clock=str(off)))
    assert found.failed == {
        "n1": f"check clock: its clock differs by {off} ms from the batch host's; "
        "synchronise it (chronyc makestep, or systemctl restart systemd-timesyncd)"
    }


@pytest.mark.parametrize("off", [0, 2000, -2000])
def test_a_clock_within_the_limit_does_not(off: int) -> None:
    assert judged(n1=report(("clock", "pass"), clock=str(off))).failed == {}


# ---- beside the others ----


@pytest.mark.parametrize("name", ["gpu_count", "rdma"])
def test_who_alone_cannot_tell_fails(name: str) -> None:
    found = judged(
        rdma=True, n1=report((name, "warn", "nothing tells", "look")), n2=report((name, "pass"))
    )
    assert row(found, "n1", name) == Check(
        name, "fail", 0, "nothing tells; look (unlike node n2)", ""
    )
    assert found.failed == {"n1": f"check {name}: nothing tells; look (unlike node n2)"}


def test_a_failure_of_another_one_tells_too() -> None:
    found = judged(n1=report(NO_TOOL), n2=report(("gpu_count", "fail", "7 of 8 GPUs")))
    assert found.failed["n1"].endswith("(unlike node n2)")


def test_what_nobody_can_tell_is_a_warning_of_all() -> None:
    found = judged(n1=report(NO_TOOL), n2=report(NO_TOOL))
    assert found.failed == {}
    assert found.warnings == [
        "check gpu_count: nothing tells about GPUs; install amd-smi (all nodes)"
    ]


def test_other_checks_are_not_compared_so() -> None:
    assert (
        judged(n1=report(("gpu_memory", "warn", "x")), n2=report(("gpu_memory", "pass"))).failed
        == {}
    )


def test_other_data_than_most_is_a_warning() -> None:
    nodes = {
        f"n{number}": report(("data", "pass"), same="b" if number == 2 else "a")
        for number in range(4)
    }
    found = judge_checks(nodes, settings(), rdma=False)
    text = "the data folders differ in names, sizes or times from those of most nodes"
    assert row(found, "n2", "data") == Check(
        "data", "warn", 0, text, "compare the folders, or prepare the data anew"
    )
    assert found.warnings == [
        f"check data: {text}; compare the folders, or prepare the data anew (n2)"
    ]


def test_of_two_kinds_of_data_the_first_node_has_the_usual_one() -> None:
    found = judged(n1=report(("data", "pass"), same="a"), n2=report(("data", "pass"), same="b"))
    assert row(found, "n1", "data").verdict == "pass" and row(found, "n2", "data").verdict == "warn"


def test_data_that_was_not_told_or_not_checked_is_not_compared() -> None:
    nodes = {
        "n1": report(("data", "pass"), same="a"),
        "n2": report(("data", "pass")),
        "n3": report(("data", "skip"), same="b"),
    }
    assert judge_checks(nodes, settings(), rdma=False).warnings == []


@pytest.mark.parametrize(
    ("values", "most"),
    [
        ([], ""),
        (["a"], "a"),
        (["b", "a"], "b"),
        (["a", "b", "b"], "b"),
        (["a", "b", "b", "a"], "a"),
    ],
)
def test_usual(values: list[str], most: str) -> None:
    assert usual(values) == most


# ---- RDMA is the network's matter in a set ----


def test_rdma_in_a_set_is_a_warning_only() -> None:
    slow = ("rdma", "fail", "rdma0 has 200 Gb/s, the fabric 400", "look at the cable")
    found = judged(n1=report(slow), n2=report(slow))
    assert found.failed == {}
    assert found.warnings == [
        "check rdma: rdma0 has 200 Gb/s, the fabric 400; look at the cable (all nodes)"
    ]
    alone = judged(rdma=True, n1=report(slow))
    assert alone.failed == {
        "n1": "check rdma: rdma0 has 200 Gb/s, the fabric 400; look at the cable"
    }


def test_rdma_that_nobody_has_is_said_by_the_network() -> None:
    assert (
        judged(
            n1=report(("rdma", "warn", "no RDMA device")),
            n2=report(("rdma", "warn", "no RDMA device")),
        ).warnings
        == []
    )


# ---- what a site wants otherwise ----


@pytest.mark.parametrize("name", ["log_dir", "clock", "gpu_count"])
def test_a_site_softens_what_the_judge_finds(name: str) -> None:
    nodes = {
        "n1": report(("log_dir", "pass"), ("clock", "pass"), NO_TOOL, unseen="", clock="9000"),
        "n2": report(("gpu_count", "pass")),
    }
    hard = judge_checks(nodes, settings(), rdma=False)
    soft = judge_checks(nodes, settings(preflight_warn=(name,)), rdma=False)
    off = judge_checks(nodes, settings(preflight_skip=(name,)), rdma=False)
    assert row(hard, "n1", name).verdict == "fail" and row(soft, "n1", name).verdict == "warn"
    assert row(soft, "n1", name).text == row(hard, "n1", name).text
    assert row(off, "n1", name) == nodes["n1"].checks[name]
    assert any(text.startswith(f"check {name}: ") for text in soft.warnings)


# ---- folding ----


def test_warnings_name_checks_and_nodes_once() -> None:
    same = "no answer within 10 s"
    found = judged(
        n1=report(
            ("gpu_memory", "warn", same),
            ("gpu_errors", "warn", same),
            ("image", "warn", "not on this node yet"),
        ),
        n2=report(("gpu_errors", "warn", same)),
        n3=report(("gpu_errors", "pass"), ("image", "warn", "not on this node yet")),
    )
    assert found.warnings == [
        "check image: not on this node yet (n[1,3])",
        "check gpu_memory gpu_errors: no answer within 10 s (n[1-2])",
    ]


@pytest.mark.parametrize(("count", "who"), [(1, "n0"), (2, "all nodes"), (5, "all nodes")])
def test_all_nodes_are_said_so(count: int, who: str) -> None:
    nodes = {
        f"n{number}": report(("limits", "warn", "open files are limited to 1024"))
        for number in range(count)
    }
    assert judge_checks(nodes, settings(), rdma=False).warnings == [
        f"check limits: open files are limited to 1024 ({who})"
    ]


KNOWN = [*CHECKS, "container", "verdict", "brand_new"]
NAMES = st.sampled_from(KNOWN)
# One draw for a row: what takes time here is drawing.
CHECK = st.sampled_from(
    [
        (name, verdict, text, "r")
        for name in KNOWN
        for verdict in ("pass", "warn", "fail", "skip")
        for text in ("", "a", "b")
    ]
)
NODE = st.tuples(
    st.lists(CHECK, max_size=12),
    st.sampled_from(["", "1", "2"]),
    st.integers(-9000, 9000),
    st.booleans(),
)


def heard(
    nodes: list[tuple[list[tuple[str, str, str, str]], str, int, bool]],
) -> dict[str, NodeReport]:
    found = {}
    for number, (checks, data, off, unseen) in enumerate(nodes):
        found[f"n{number}"] = report(
            *checks, same=data, clock=str(off), **({"unseen": ""} if unseen else {})
        )
    return found


SITES = st.builds(
    lambda skip, warn: settings(preflight_skip=skip, preflight_warn=warn),
    st.lists(NAMES, max_size=3).map(tuple),
    st.lists(NAMES, max_size=3).map(tuple),
)


@hypothesis.settings(max_examples=40)
@given(st.lists(NODE, max_size=6), SITES, st.booleans(), st.randoms(use_true_random=True))
def test_the_order_of_words_does_not_matter(
    nodes: list[tuple[list[tuple[str, str, str, str]], str, int, bool]],
    on: Settings,
    rdma: bool,
    chance: random.Random,
) -> None:
    first = heard(nodes)
    other = {
        node: replace(told, checks=dict(chance.sample(list(told.checks.items()), len(told.checks))))
        for node, told in first.items()
    }
    assert judge_checks(first, on, rdma=rdma) == judge_checks(other, on, rdma=rdma)


@hypothesis.settings(max_examples=40)
@given(st.lists(NODE, max_size=6), SITES, st.booleans())
def test_what_always_holds(
    nodes: list[tuple[list[tuple[str, str, str, str]], str, int, bool]], on: Settings, rdma: bool
) -> None:
    reports = heard(nodes)
    found = judge_checks(reports, on, rdma=rdma)
    assert found == judge_checks(reports, on, rdma=rdma)
    assert list(found.rows) == list(reports) and set(found.failed) <= set(reports)
    for node, rows in found.rows.items():
        assert len({one.name for one in rows}) == len(rows) and set(reports[node].checks) <= {
            one.name for one in rows
        }
        bad = {one.name for one in rows if one.verdict == "fail"} - {
            "container",
            "tunables",
            "verdict",
            "deep",
        }
        assert (node in found.failed) == bool(bad - (set() if rdma else {"rdma"}))
    assert len(set(found.warnings)) == len(found.warnings)


@hypothesis.settings(max_examples=40)
@given(st.lists(NODE, min_size=2, max_size=6), st.randoms(use_true_random=True))
def test_the_order_of_nodes_matters_to_no_own_failure(
    nodes: list[tuple[list[tuple[str, str, str, str]], str, int, bool]], chance: random.Random
) -> None:
    reports = {node: replace(told, same={}) for node, told in heard(nodes).items()}
    shuffled = dict(chance.sample(list(reports.items()), len(reports)))
    first, other = (
        judge_checks(reports, settings(), rdma=True),
        judge_checks(shuffled, settings(), rdma=True),
    )
    assert {node: text.split(" (unlike")[0] for node, text in first.failed.items()} == {
        node: text.split(" (unlike")[0] for node, text in other.failed.items()
    }


# ---- many nodes ----


def many_reports(count: int) -> dict[str, NodeReport]:
    """Return reports of nodes of which some differ from the others in everything."""
    chance = random.Random(1)
    names = [f"n{number}" for number in range(count)]
    ports = " ".join(f"rdma{port},400,Ethernet,3" for port in range(8))
    facts = {f"field.{number}": f"value {number}" for number in range(60)}
    reports = {}
    for name in names:
        own = facts | ({f"field.{chance.randrange(60)}": "other"} if chance.random() < 0.2 else {})
        verdicts = chance.choices(["pass", "pass", "pass", "warn", "fail"], k=16)
        checks = {
            one: Check(one, word, 5, f"text of {name}", "remedy")
            for one, word in zip(CHECKS[:16], verdicts, strict=True)
        }
        network = ports if chance.random() < 0.9 else ports.replace("400", "200")
        same = {"data": chance.choice("aaab")}
        reports[name] = NodeReport(checks, same, own, network, image="sha256:1")
    return reports


def test_the_effort_of_judging_grows_with_the_number_of_nodes() -> None:
    def judge(reports: dict[str, NodeReport]) -> None:
        names, on = list(reports), settings(nnodes=len(reports))
        judgement = judge_checks(reports, on, rdma=False)
        image = agree_on_image({name: reports[name].image for name in names}, names, "", "image")
        network, told = agree_on_network(reports, names, on), agree_on_facts(reports, names, on)
        assert judgement.failed and not image.problem
        assert " are not like " in network.problem and "; and " in told.problem

    few, many = many_reports(100), many_reports(1000)
    assert lines_run(lambda: judge(many)) < 15 * lines_run(lambda: judge(few))
