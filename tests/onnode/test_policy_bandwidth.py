"""Which nodes the search names, on virtual networks: a group is as fast as its slowest member."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest
from effort import lines_run
from hypothesis import given
from hypothesis import strategies as st
from policy_parts import settings

from orchestrator.onnode.kernel.settings import Settings
from orchestrator.onnode.policy.bandwidth import DeepVerdict, GroupResult, Round, Search, matching

PLAIN = settings(fabric_gbps=0, fabric_devices=0)
Measure = Callable[[Round, "tuple[str, ...]"], GroupResult]


@dataclass
class Found:
    """A verdict, and the rounds that led to it."""

    verdict: DeepVerdict
    rounds: list[Round]

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.rounds]

    def verdicts(self) -> dict[str, str]:
        return {node: row[0] for node, row in self.verdict.rows.items()}


def run(
    names: Iterable[str], measure: Measure, *, gpus: int = 1, with_settings: Settings = PLAIN
) -> Found:
    search, rounds = Search(list(names), with_settings), []
    for node in search.nodes:
        search.ready(node, gpus, rccl_tests=True)
    while wanted := search.next_round():
        rounds.append(wanted)
        nodes = [node for group in wanted.groups for node in group]
        assert len(nodes) == len(set(nodes)), "nobody is in two groups of a round"
        search.take([measure(wanted, group) for group in wanted.groups])
    return Found(search.verdict(), rounds)


def search(
    rates: dict[str, int],
    *,
    gpus: int = 1,
    noise: int = 2,
    seed: int = 1,
    broken: Iterable[str] = (),
    with_settings: Settings = PLAIN,
) -> Found:
    """Search where a node has a rate in MB/s, a measurement so many per cent of noise, and `broken` nodes fail everything."""
    chance = random.Random(seed)

    def measure(wanted: Round, group: tuple[str, ...]) -> GroupResult:
        # Alone a node does not use the network.
        alone = wanted.name.startswith("alone")
        mbps = 300_000 if alone else min(rates[node] for node in group)
        why = next(
            (f"{node}: no answer" for node in group[::-1] if node in broken and not alone), ""
        )
        return GroupResult(
            1 << 20, 1000, mbps * (100 + chance.randint(-noise, noise)) // 100, 0, why
        )

    return run(rates, measure, gpus=gpus, with_settings=with_settings)


def nodes(count: int, rate: int) -> dict[str, int]:
    return {f"n{number}": rate for number in range(count)}


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 8, 13, 33, 64])
@pytest.mark.parametrize(
    ("gpus", "slow_rate", "noise"), [(8, 250_000, 2), (1, 8_000, 6)], ids=["eight", "one"]
)
def test_one_slow_node_is_named(count: int, gpus: int, slow_rate: int, noise: int) -> None:
    rates = nodes(count, 350_000 if gpus > 1 else 12_000)
    slow = random.Random(count).choice(list(rates))
    rates[slow] = slow_rate

    found = search(rates, gpus=gpus, noise=noise, seed=count)

    assert found.verdict.slow == [slow]
    assert set(found.verdicts()) == set(rates)
    assert found.verdict.rows[slow][0] == "fail"
    assert "GB/s at best, others" in found.verdict.rows[slow][1]
    assert {verdict for node, verdict in found.verdicts().items() if node != slow} == {"pass"}
    assert f"over {count - 1} node" in found.verdict.summary


@pytest.mark.parametrize("seed", range(12))
def test_two_slow_nodes_are_named(seed: int) -> None:
    chance = random.Random(seed)
    rates = nodes(chance.choice([4, 5, 6, 7, 8, 9, 16, 40, 64]), 12_000)
    slow = sorted(chance.sample(list(rates), 2))
    for node in slow:
        rates[node] = chance.choice([600, 3_000, 4_500])

    assert sorted(search(rates, noise=6, seed=seed).verdict.slow) == slow


@pytest.mark.parametrize("pair", ["n0 n1", "n0 n2", "n0 n3", "n1 n2", "n1 n3", "n2 n3"])
def test_two_of_four(pair: str) -> None:
    rates = nodes(4, 12_000) | dict.fromkeys(pair.split(), 2_000)

    assert sorted(search(rates).verdict.slow) == pair.split()


def test_one_good_pair_in_each_round_is_enough() -> None:
    slow = ["n0", "n2", "n5"]

    assert search(nodes(8, 12_000) | dict.fromkeys(slow, 1_200)).verdict.slow == slow


@pytest.mark.parametrize(
    "slow", [["n6"], ["n1", "n2"], ["n3", "n7"], []], ids=["one", "neighbours", "opposite", "none"]
)
def test_eight_nodes(slow: list[str]) -> None:
    found = search(nodes(8, 12_000) | dict.fromkeys(slow, 1_200))

    assert found.verdict.slow == slow
    assert found.verdict.data is not None
    assert found.verdict.data["slow"] == slow
    assert ("; slow or silent: " + " ".join(slow) in found.verdict.summary) == bool(slow)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 17, 64])
@pytest.mark.parametrize(
    ("gpus", "rate", "noise"), [(8, 350_000, 5), (1, 1_100, 7)], ids=["eight", "one"]
)
def test_noise_names_nobody(count: int, gpus: int, rate: int, noise: int) -> None:
    found = search(nodes(count, rate), gpus=gpus, noise=noise, seed=count)

    assert found.verdict.slow == []
    assert set(found.verdicts().values()) == {"pass"}


def test_many_nodes_take_few_rounds() -> None:
    found = search(nodes(64, 12_000) | {"n7": 900, "n40": 900})

    assert found.names == ["all", "pairs1", "pairs2", "confirm", "rest"]


def test_the_effort_grows_with_the_number_of_nodes() -> None:
    def find(count: int) -> None:
        assert search(nodes(count, 12_000) | {"n7": 900, "n40": 900}).verdict.slow == ["n7", "n40"]

    assert lines_run(lambda: find(1000)) < 15 * lines_run(lambda: find(100))


def test_a_node_with_which_nothing_works_is_named() -> None:
    found = search(nodes(8, 12_000), broken=["n3"])

    assert found.verdict.slow == ["n3"]
    assert found.verdict.rows["n3"][1] == "no all-reduce with it succeeds: n3: no answer"
    assert found.verdict.rows["n0"][1].startswith("bus bandwidth 1")
    assert [one.short for one in found.rounds] == [False, *[True] * (len(found.rounds) - 1)]


def test_nothing_works_at_all() -> None:
    found = search(nodes(4, 12_000), broken=nodes(4, 0))

    assert {text for _, text, _ in found.verdict.rows.values()} == {
        "the all-reduce over 4 nodes failed: n3: no answer"
    }
    assert found.verdict.slow == ["n0", "n1", "n2", "n3"]


def test_the_fabric_is_the_reference() -> None:
    fabric = settings(fabric_gbps=400, fabric_devices=8)

    good = search(nodes(8, 330_000), gpus=8, noise=1, with_settings=fabric)
    poor = search(nodes(8, 200_000), gpus=8, noise=1, with_settings=fabric)

    assert set(good.verdicts().values()) == {"pass"}
    assert "% of 400.0 (8 NICs of 400 Gb/s)" in good.verdict.summary
    assert set(poor.verdicts().values()) == {"warn"}
    assert poor.verdict.slow == []
    assert "the halves alone reach" in poor.verdict.summary
    assert "check the switches" in poor.verdict.rows["n0"][2]


@pytest.mark.parametrize(
    ("given_gbps", "shown"),
    [("350", "350.0"), ("42.5", "42.5"), ("0.75", "0.750"), ("1.2345", "1.234")],
)
def test_the_site_gives_the_reference(given_gbps: str, shown: str) -> None:
    found = search(nodes(2, 12_000), with_settings=settings(preflight_deep_gbps=given_gbps))

    assert f" % of {shown} (deep_gbps of the site)" in found.verdict.summary


def test_a_slow_node_can_be_a_warning() -> None:
    warn = settings(preflight_warn=("clock", "deep"), fabric_gbps=0)

    found = search(nodes(5, 12_000) | {"n2": 500}, with_settings=warn)

    assert found.verdicts() == {
        "n0": "pass",
        "n1": "pass",
        "n2": "warn",
        "n3": "pass",
        "n4": "pass",
    }
    assert found.verdict.slow == ["n2"]


def test_one_node_without_gpus_is_skipped() -> None:
    found = search(nodes(1, 12_000))

    assert found.rounds == []
    assert found.verdicts() == {"n0": "skip"}
    assert "nothing to measure" in found.verdict.rows["n0"][1]


def test_one_node_by_itself() -> None:
    found = search(nodes(1, 12_000), gpus=8, noise=1)

    assert found.verdicts() == {"n0": "pass"}
    assert "over 1 node (1 MiB, rccl-tests)" in found.verdict.summary
    assert [(one.name, one.way) for one in found.rounds] == [("alone1", "rccl-tests")]


@pytest.mark.parametrize("good_again", [False, True])
def test_a_node_that_is_slow_by_itself_has_another_try(good_again: bool) -> None:
    def measure(wanted: Round, group: tuple[str, ...]) -> GroupResult:
        slow = group == ("n2",) and not (good_again and wanted.name == "alone2")
        return GroupResult(1 << 29, 1000, 100_000 if slow else 300_000)

    found = run(nodes(4, 0), measure, gpus=8)

    assert [one.groups for one in found.rounds if one.name == "alone2"] == [(("n2",),)]
    assert found.verdict.slow == ([] if good_again else ["n2"])
    if not good_again:
        text = "slow by itself: 100.0 GB/s between its GPUs, other nodes 300.0"
        assert found.verdict.rows["n2"][:2] == ("fail", text)


@pytest.mark.parametrize(
    ("gpus", "note", "reason"),
    [
        (7, "", "torch sees 7 GPUs on n1, 8 on n0"),
        (0, "", "n1: torch sees no GPU"),
        (0, "no torch in the image", "n1: no torch in the image"),
    ],
)
def test_nodes_that_cannot_meet_are_not_measured(gpus: int, note: str, reason: str) -> None:
    both = Search(["n0", "n1"], PLAIN)
    both.ready("n0", 8, rccl_tests=True)
    both.ready("n1", gpus, rccl_tests=True, note=note)

    assert both.next_round() is None
    found = both.verdict()
    assert found.rows == dict.fromkeys(["n0", "n1"], ("skip", reason, ""))
    assert found.data is None and found.slow == []


def test_a_search_that_is_broken_off_blames_nobody() -> None:
    broken = Search(["n0", "n1", "n2"], PLAIN)
    for node in ("n0", "n1"):
        broken.ready(node, 1)
    broken.lost("n2", "no word")
    broken.lost("n2", "the second reason")
    broken.next_round()

    found = broken.verdict()

    assert found.rows["n0"] == ("skip", "not measured: no time or no nodes left", "")
    assert found.rows["n2"][:2] == ("fail", "no word")
    assert found.slow == ["n2"]


def test_where_no_node_can_measure_it_is_not_a_node() -> None:
    lost = Search(["n0", "n1"], PLAIN)
    for node in lost.nodes:
        lost.lost(node, "no Python")

    assert lost.next_round() is None
    found = lost.verdict()
    assert found.rows == dict.fromkeys(
        ["n0", "n1"], ("skip", "no node can measure (n0: no Python)", "")
    )
    assert found.data is None and found.slow == []


@given(st.integers(2, 40))
def test_rounds_of_pairs_differ_in_all_their_pairs(count: int) -> None:
    names = list(nodes(count, 0))
    rounds = [
        matching(names, number) for number in range(2 if count > 6 else count - 1 + count % 2)
    ]
    pairs = [frozenset(pair) for one in rounds for pair in one]

    assert len(pairs) == len(set(pairs))
    assert all(
        len({node for pair in one for node in pair}) == 2 * len(one) >= count - 1 for one in rounds
    )
    assert {node for pair in pairs for node in pair} == set(names)


@st.composite
def planted(draw: st.DrawFn) -> tuple[int, list[str], random.Random]:
    """Nodes, which of the nodes are slow (at most a third), and what the links between them are drawn with."""
    count = draw(st.integers(3, 40))
    slow = draw(st.sets(st.integers(0, count - 1), max_size=count // 3))
    return (
        count,
        [f"n{one}" for one in sorted(slow)],
        draw(st.randoms(use_true_random=True)),
    )


@given(planted())
def test_exactly_the_planted_slow_nodes_are_named(
    case: tuple[int, list[str], random.Random],
) -> None:
    """Any bandwidth between any two nodes and at any time: good pairs keep the margin among themselves, slow nodes miss it."""
    count, slow, chance = case
    margin = 85

    def measure(wanted: Round, group: tuple[str, ...]) -> GroupResult:
        good = chance.randint(1000 * margin, 100_000)
        bad = chance.randint(1, 1000 * margin * margin // 100 - 1)
        return GroupResult(1 << 20, 1000, bad if set(group) & set(slow) else good)

    found = run(nodes(count, 0), measure)

    assert found.verdict.slow == slow
    assert len(found.rounds) <= 10


RESULTS = st.builds(
    GroupResult,
    *[st.integers(0, 10**15)] * 4,
    st.sampled_from(["", "", "", "n1: broken", "n0: no answer"]),
)


@given(
    st.integers(1, 12),
    st.sampled_from([0, 1, 8]),
    st.lists(RESULTS, min_size=1, max_size=12),
    st.randoms(use_true_random=True),
    st.sets(st.integers(0, 11), max_size=3),
)
def test_any_answers_end_in_a_verdict_on_every_node(
    count: int, gpus: int, results: list[GroupResult], chance: random.Random, lost: set[int]
) -> None:
    """Also where nodes fall silent in the middle of it; and the same answers give the same verdict."""
    answers: list[GroupResult] = []

    def play(answer: Callable[[], GroupResult]) -> DeepVerdict:
        wild, rounds = Search(list(nodes(count, 0)), PLAIN), 0
        for node in wild.nodes:
            wild.ready(node, gpus, rccl_tests=True)
        while wanted := wild.next_round():
            rounds += 1
            results = [answer() for _ in wanted.groups]
            for one in lost:
                if one == rounds and one < count:
                    wild.lost(f"n{one}", "no answer")
            wild.take(results)
        assert rounds <= 8 + count
        return wild.verdict()

    def drawn() -> GroupResult:
        answers.append(chance.choice(results))
        return answers[-1]

    found = play(drawn)

    assert list(found.rows) == list(nodes(count, 0))
    assert {row[0] for row in found.rows.values()} <= {"pass", "warn", "fail", "skip"}
    assert set(found.slow) <= set(found.rows)
    again = iter(answers)
    assert play(lambda: next(again)) == found
