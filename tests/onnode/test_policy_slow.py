"""One rule for slow, wherever it is told."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.evidence.pace import Pace, notable, signs
from orchestrator.onnode.policy.bandwidth import too_slow, upper_quartile


@pytest.mark.parametrize(
    ("rates", "good"),
    [
        ([], 0),
        ([5], 5),
        ([5, 3], 5),
        ([1, 2, 3], 3),
        ([122, 310, 309, 310], 310),
        ([1, 9, 1, 9, 1, 1, 9, 1], 9),
        ([1, 1, 1, 1, 1, 1, 9, 9], 1),
    ],
)
def test_the_upper_quartile(rates: list[int], good: int) -> None:
    assert upper_quartile(rates) == good


@pytest.mark.parametrize(
    ("rate", "way", "slow"),
    [
        (84.9, "torch", True),
        (85, "torch", False),
        (87, "rccl-tests", False),
        (60, "tcp", False),
        (49, "tcp", True),
        (84, "", True),
    ],
)
def test_bandwidth(rate: float, way: str, slow: bool) -> None:
    assert too_slow(rate, 100, way) == slow


@pytest.mark.parametrize(
    ("more", "of", "told"),
    [(0.9, 1, False), (1.1, 1, True), (1.1, 60, False), (1.3, 60, True), (-5, 60, False)],
)
def test_time(more: float, of: float, told: bool) -> None:
    assert notable(more, of) == told


def test_numbers_without_a_verdict() -> None:
    rates = {"n1": 310.0, "n2": 310.0, "n3": 309.0, "n4": 122.0, "n5": 270.0}
    found = signs([Pace(node, gbps=rate, way="torch") for node, rate in rates.items()])
    assert found == ["n4 reached 122.0 GB/s in the bandwidth test, good nodes 310.0 GB/s"]
    assert signs([Pace(node, gbps=rate, way="tcp") for node, rate in rates.items()]) == found
    assert (
        signs([Pace(node, gbps=rate, way="tcp") for node, rate in (rates | {"n4": 160.0}).items()])
        == []
    )


def test_who_passed_the_deep_step_is_not_slow_in_it() -> None:
    low = Pace("n4", gbps=1.0, way="torch", judged=True)
    assert signs([Pace("n1", gbps=300.0, way="torch", judged=True), low]) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("slow: pairs with it reach 122.0 GB/s at best, others 310.0", True),
        ("slow by itself: 100.0 GB/s between its GPUs, other nodes 300.0", True),
        ("no all-reduce with it succeeds: timed out", True),
        ("its own GPUs: 3 wrong values in the sum", True),
        (
            "bus bandwidth 100.0 GB/s over 8 nodes (512 MiB, torch), 25 % of 400.0 (8 NICs of 400 Gb/s)",
            False,
        ),
        ("the all-reduce over 8 nodes failed: no reason given", False),
        ("no answer to a measurement within 135 s", False),
        ("", False),
    ],
)
def test_the_deep_step_names_who_is_slow(words: str, told: bool) -> None:
    found = signs([Pace("n1", judged=True), Pace("n4", judged=True, deep=words)])
    assert found == ([f"n4 in the bandwidth test: {words}"] if told else [])


def test_times() -> None:
    slow = Pace("n4", seconds=63.0, relative=1.05, rate_with=100.0, rate_without=110.0)
    assert signs([slow]) == [
        "n4 took 5.0 % longer than the other nodes in its runs",
        "runs with n4 were 10.0 % slower per sample: 100 samples/s, those without it 110",
    ]
    assert (
        signs([Pace("n4", seconds=10.0, relative=1.05, rate_with=100.0, rate_without=101.0)]) == []
    )
    assert (
        signs(
            [
                Pace("n4", seconds=0.0, relative=0.0),
                Pace("n5", relative=2.0),
                Pace("n6", rate_with=5.0),
            ]
        )
        == []
    )


NUMBER = st.none() | st.floats(0, 1e6, allow_nan=False)
PACES = st.lists(
    st.builds(
        Pace,
        st.sampled_from("abc"),
        gbps=NUMBER,
        way=st.sampled_from(["torch", "tcp", ""]),
        judged=st.booleans(),
        deep=st.sampled_from(["", "slow: x", "bus bandwidth"]),
        seconds=NUMBER,
        relative=NUMBER,
        rate_with=NUMBER,
        rate_without=NUMBER,
    ),
    max_size=8,
)


@hypothesis.settings(max_examples=50)
@given(PACES)
@example([Pace("a", seconds=1.0, rate_with=2.0, rate_without=5e-324)])
def test_no_verdict_of_the_deep_step_is_contradicted(paces: list[Pace]) -> None:
    found = signs(paces)
    assert found == signs(paces)
    passed = {one.node for one in paces} - {
        one.node for one in paces if not one.judged or one.deep.startswith("slow")
    }
    assert not [text for text in found if "deep step" in text and text[0] in passed]
    # The best one is never slow.
    assert len([text for text in found if " reached " in text]) < len(paces) or not paces
