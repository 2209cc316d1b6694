"""Who works on which rank, who waits, who is out: decisions from events alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from effort import lines_run
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.onnode.kernel.events import UNIT, Event
from orchestrator.onnode.policy.place import (
    GroupState,
    Pause,
    Placement,
    apply,
    as_json,
    candidates,
    choose,
    costs_no_attempt,
    describe_failures,
    groups,
    in_order,
    repeats_itself,
    revert_problems,
    unblemished,
    waiting_now,
)

FIVE = ("a", "b", "c", "d", "e")


def event(source: str, word: str, node: str = "", detail: object = "") -> Event:
    import json

    return Event(1, source, word, node, detail if isinstance(detail, str) else json.dumps(detail))


def cluster(*events: Event, allocated: tuple[str, ...] = FIVE, need: int = 3) -> GroupState:
    """A job on `allocated` whose first hold has begun, after `events`."""
    made = GroupState()
    for one in (
        event("loop", "begin", detail={"allocated": list(allocated), "need": need}),
        event("loop", "hold", detail={"generation": 1, "nodes": list(allocated)}),
        *events,
    ):
        apply(made, one)
    return made


def placed(*ranks: str, waiting: tuple[str, ...] = ()) -> Event:
    return event("loop", "placed", detail={"ranks": list(ranks), "waiting": list(waiting)})


def said(word: str, node: str, *parts: str) -> Event:
    return event("node", word, node, UNIT.join(parts))


def loop(word: str, node: str, *parts: str) -> Event:
    return event("loop", word, node, UNIT.join(parts))


ABC = placed("a", "b", "c", waiting=("d", "e"))


def test_the_first_ranks_go_in_the_order_of_the_allocation() -> None:
    one = cluster()
    assert candidates(one) == list(FIVE)
    assert choose(one, FIVE, first=True) == Placement(("a", "b", "c"), ("d", "e"))


@pytest.mark.parametrize(
    "kind", ["image", "container", "tunables", "storage", "data", "engine", "internal"]
)
def test_a_node_that_failed_gives_its_rank_to_the_first_that_waits(kind: str) -> None:
    one = cluster(ABC, said("failed", "b", kind, "no such thing"))
    assert one.failed == {"b": (kind, "no such thing")}
    assert choose(one, FIVE) == Placement(("a", "d", "c"), ("e",))


def test_a_container_that_ended_is_a_failure() -> None:
    one = cluster(ABC, said("gone", "c", "its container ended"))
    assert choose(one, FIVE) == Placement(("a", "b", "d"), ("e",))


def test_a_node_that_lets_go_by_itself_has_failed() -> None:
    one = cluster(ABC, said("left", "a"))
    assert one.failed == {"a": ("container", "its agent ended before it was ready")}


def test_a_node_that_lets_go_when_it_was_told_has_not_failed() -> None:
    one = cluster(ABC, event("loop", "release"), said("left", "a"))
    assert one.failed == {}


def test_the_first_failure_of_a_node_counts() -> None:
    one = cluster(said("failed", "a", "image", "first"), said("failed", "a", "container", "second"))
    assert one.failed["a"] == ("image", "first")


def test_a_new_hold_forgets_failures_but_not_who_is_aside() -> None:
    hold = event("loop", "hold", detail={"generation": 2, "nodes": ["b", "c", "d"]})
    one = cluster(
        ABC,
        loop("fail", "b", "silent", "no word"),
        loop("aside", "a", "check", "bad", "0", "0"),
        hold,
    )
    assert (one.failed, one.excluded, one.orders.generation) == ({}, {"a": "bad"}, 2)


def test_who_is_aside_is_no_candidate_any_more() -> None:
    one = cluster(ABC, loop("aside", "a", "check", "bad GPU", "0", "0"))
    assert candidates(one) == ["b", "c", "d", "e"]
    assert choose(one, ["b", "c", "d", "e"]) == Placement(("d", "b", "c"), ("e",))


def test_who_is_lost_comes_back_when_slurm_says_so() -> None:
    lost = event("slurm", "lost", "a", "down*")
    assert candidates(cluster(ABC, lost)) == ["b", "c", "d", "e"]
    assert candidates(cluster(ABC, lost, event("slurm", "back", "a"))) == list(FIVE)


def test_a_blamed_node_gives_way_and_its_rank_is_taken() -> None:
    one = cluster(ABC, loop("blamed", "b", "exit", "run 1 died there", "1", "1"))
    assert candidates(one) == ["a", "c", "d", "e"]
    assert choose(one, ["a", "c", "d", "e"]) == Placement(("a", "d", "c"), ("e",))


def test_before_the_set_has_to_stop_blamed_nodes_are_asked_again_the_oldest_blame_first() -> None:
    blames = [loop("blamed", node, "exit", "died", "1", "1") for node in ("c", "a", "b")]
    one = cluster(ABC, *blames, allocated=("a", "b", "c", "d"), need=3)
    found = candidates(one)
    assert found == ["d", "a", "b", "c"]
    # d takes a free rank; c, blamed first, and a keep theirs.
    assert choose(one, list(found)) == Placement(("a", "d", "c"), ("b",))


def test_a_second_blame_makes_it_the_youngest() -> None:
    blames = [loop("blamed", node, "exit", "died", "1", "1") for node in ("a", "b", "a")]
    one = cluster(placed("a", "b"), *blames, allocated=("a", "b", "c"), need=2)
    assert sorted(one.blamed, key=one.blamed.__getitem__) == ["b", "a"]
    assert choose(one, ["c", "a", "b"]) == Placement(("c", "b"), ("a",))


def test_slow_nodes_get_a_rank_last() -> None:
    one = cluster(event("loop", "slow", "a"), event("loop", "slow", "b"))
    assert choose(one, FIVE, first=True) == Placement(("c", "d", "e"), ("a", "b"))


def test_slow_nodes_work_where_there_are_no_others() -> None:
    one = cluster(event("loop", "slow", "a"), allocated=("a", "b", "c"))
    assert choose(one, ["a", "b", "c"], first=True) == Placement(("b", "c", "a"))


def test_without_enough_nodes_there_is_no_placement() -> None:
    one = cluster(ABC, said("failed", "a", "image", "x"), allocated=("a", "b", "c"))
    assert choose(one, ["a", "b", "c"]) is None


def test_the_pause_names_every_node_that_is_out_and_why() -> None:
    one = cluster(
        loop("aside", "a", "check", "check data: empty", "0", "0"),
        event("slurm", "lost", "b", "down*"),
        loop("aside", "e", "image", "no image", "0", "0"),
    )
    found = candidates(one)
    assert isinstance(found, Pause)
    assert found.reason == (
        "2 of 5 nodes fit, 3 needed; node a: check data: empty; node b: Slurm has lost it (down*); node e: no image"
    )


def test_what_several_nodes_say_alike_is_said_once() -> None:
    one = cluster(
        ABC,
        *(said("failed", node, "image", "no image") for node in ("d", "c", "a")),
        said("failed", "b", "data", "y"),
    )
    assert describe_failures(one, FIVE) == "nodes a,c,d: no image; node b (rank 1): y"


def test_a_revert_that_failed_is_a_warning_with_its_nodes_and_a_command() -> None:
    held = event("loop", "hold", detail={"generation": 2, "nodes": ["a", "b", "c"]})
    words = [
        said("revert-failed", "a", "no lock"),
        said("revert-failed", "b", "x"),
        said("revert-failed", "c", "no lock"),
    ]
    assert revert_problems(cluster(*words)) == [
        "nodes a,c: host settings were not reverted: no lock; to revert them: orchestrator tune revert --nodes a,c --sudo",
        "node b: host settings were not reverted: x; to revert them: orchestrator tune revert --nodes b --sudo",
    ]
    assert revert_problems(cluster(*words, held)) == []


def test_free_attempts_are_one_per_spare_and_need_a_fresh_node() -> None:
    one = cluster(ABC, loop("blamed", "a", "exit", "x", "1", "1"))
    assert costs_no_attempt(one, "a")
    apply(one, event("loop", "free", "a"))
    assert not costs_no_attempt(one, "a")
    for node in ("d", "e"):
        apply(one, loop("aside", node, "check", "x", "1", "1"))
    assert not costs_no_attempt(one, "b")


def test_free_attempts_end_with_the_spares() -> None:
    one = cluster(ABC, *(event("loop", "free", node) for node in ("a", "b")))
    assert not costs_no_attempt(one, "c")


def test_without_spares_no_attempt_is_free() -> None:
    assert not costs_no_attempt(cluster(ABC, allocated=("a", "b", "c")), "a")


def test_who_waits_as_a_last_resort_is_not_shown_as_a_spare() -> None:
    one = cluster(ABC, loop("blamed", "e", "exit", "x", "1", "1"))
    assert waiting_now(one) == ["d"]


def test_a_node_that_does_not_belong_to_the_job_changes_nothing() -> None:
    one, other = (
        cluster(ABC),
        cluster(ABC, said("failed", "zz", "image", "x"), said("check", "zz", "gpu_count", "fail")),
    )
    assert one == other


@pytest.mark.parametrize("detail", ["", "{", "[1]", "null", '{"ranks": 3}'])
def test_a_damaged_event_of_the_loop_does_not_raise(detail: str) -> None:
    for word in ("begin", "hold", "placed", "ordered", "outcome", "aside", "blamed", "fail"):
        one = GroupState()
        try:
            apply(one, event("loop", word, "a", detail))
        except (TypeError, AttributeError):
            pytest.fail(f"{word} {detail} raised")


@pytest.mark.parametrize(
    ("hosts", "order"),
    [
        ({"a": "n9.x", "b": "n10.x", "c": "n1.x"}, "cba"),  # as texts: n10 comes before n9
        ({"a": "B.x", "b": "a.x", "c": "A.x"}, "cab"),  # capital letters first, as in the C locale
        ({"a": "n1.y", "b": "n1.x", "c": "n1"}, "cba"),
        ({"a": "z"}, "bca"),  # who told none counts by the node's name
        ({"a": "same", "b": "same", "c": "same"}, "abc"),
        ({"a": "", "b": "\x1f10.0.0.2", "c": "a.x\x1f10.0.0.3"}, "acb"),
        ({}, "abc"),
    ],
)
def test_ranks_are_in_the_order_of_the_full_host_names(hosts: dict[str, str], order: str) -> None:
    one = cluster(ABC, *(said("host", node, name) for node, name in hosts.items()))
    assert in_order(one) == list(order)
    apply(one, event("loop", "ordered", detail={"ranks": in_order(one)}))
    assert one.workers == list(order) and one.waiting == ["d", "e"]


def test_the_order_is_made_anew_when_a_spare_took_a_place() -> None:
    hosts = [
        said("host", node, f"{name}.x")
        for node, name in zip(FIVE, ("n3", "n2", "n1", "n0", "n9"), strict=True)
    ]
    one = cluster(ABC, *hosts, event("loop", "ordered", detail={"ranks": ["c", "b", "a"]}))
    apply(one, loop("blamed", "c", "exit", "x", "1", "1"))
    again = event("loop", "hold", detail={"generation": 2, "nodes": ["b", "a", "d", "e"]})
    for word in (again, placed("d", "b", "a", waiting=("e",)), *hosts):
        apply(one, word)
    assert in_order(one) == ["d", "b", "a"]


def test_the_effort_of_placing_grows_with_the_number_of_nodes() -> None:
    def place(count: int) -> None:
        names = tuple(f"n{k}" for k in range(count))
        one = cluster(allocated=names, need=count * 95 // 100)
        for node in names[: count * 4 // 100]:
            apply(one, said("failed", node, "image", "x"))
        found = candidates(one)
        assert isinstance(found, list)
        made = choose(one, found, first=True)
        assert made is not None and len(made.ranks) == count * 95 // 100

    assert lines_run(lambda: place(1000)) < 15 * lines_run(lambda: place(100))


def outcome(way: object) -> Event:
    return event("loop", "outcome", detail={"facts": {}, "outcome": {"way": way}})


@pytest.mark.parametrize(
    ("ways", "attempts", "repeated"),
    [
        ([], 3, False),
        (["E", "E"], 3, False),
        (["E", "E", "E"], 3, True),
        (["E", "E", "F"], 3, False),
        (
            ["", "E", "E", "E"],
            3,
            False,
        ),  # something went well, or took longer, or was a node's fault
        (["", "", ""], 3, False),
        (["E"], 1, False),
        (["E", "E"], 1, True),
        ([7, 7, None], 3, False),
    ],
)
def test_attempts_that_all_died_alike(ways: list[object], attempts: int, repeated: bool) -> None:
    assert repeats_itself(cluster(*map(outcome, ways)), attempts) is repeated


# ---- properties ----

KINDS: tuple[Callable[[str], Event], ...] = (
    lambda node: said("failed", node, "image", "x"),
    lambda node: said("gone", node, "x"),
    lambda node: said("left", node),
    lambda node: loop("fail", node, "silent", "x"),
    lambda node: loop("aside", node, "check", "x", "1", "1"),
    lambda node: loop("blamed", node, "exit", "x", "1", "1"),
    lambda node: event("slurm", "lost", node, "down"),
    lambda node: event("slurm", "back", node),
    lambda node: event("loop", "slow", node),
    lambda node: said("host", node, f"{'edcba'['abcde'.index(node)]}.x"),
    lambda _: event("loop", "hold", detail={"generation": 2, "nodes": list(FIVE)}),
)
# One draw for a word: what takes time here is drawing.
WORDS = st.sampled_from([kind(node) for kind in KINDS for node in FIVE])


@given(st.lists(WORDS, max_size=25), st.integers(1, 5))
def test_every_rank_has_exactly_one_fit_node_or_the_set_pauses(
    words: list[Event], need: int
) -> None:
    one = cluster(need=need)
    for word in words:
        apply(one, word)
        found = candidates(one)
        if isinstance(found, Pause):
            assert (
                len([node for node in FIVE if node not in one.excluded and node not in one.lost])
                < need
            )
            continue
        assert not set(found) & (one.excluded.keys() | one.lost.keys())
        made = choose(one, found)
        if made is None:
            assert len([node for node in found if node not in one.failed]) < need
            continue
        assert len(made.ranks) == need and len(set(made.ranks)) == need
        assert set(made.ranks) | set(made.waiting) <= set(found)
        assert not set(made.ranks) & set(made.waiting)
        assert not set(made.ranks) & (one.failed.keys() | one.excluded.keys() | one.lost.keys())
        apply(one, event("loop", "placed", detail=as_json(made)))


@given(st.lists(WORDS, max_size=25))
def test_the_same_events_give_the_same_decisions(words: list[Event]) -> None:
    first, second = cluster(*words), cluster(*words)
    assert candidates(first) == candidates(second)
    assert choose(first, FIVE) == choose(second, FIVE)
    assert in_order(first) == in_order(second)


@given(st.lists(WORDS, max_size=25))
def test_who_has_a_rank_and_is_fit_keeps_it(words: list[Event]) -> None:
    one = cluster(ABC, *words)
    found = candidates(one)
    made = choose(one, found) if isinstance(found, list) else None
    for rank, node in enumerate(one.ranks if made else ()):
        if node in found and node not in one.failed and node not in one.blamed:  # type: ignore[operator]
            assert made is not None and made.ranks[rank] == node


@given(
    st.lists(st.tuples(st.sampled_from(FIVE), st.text(max_size=5))),
    st.permutations(["a", "b", "c"]),
)
def test_the_order_is_sorted_and_loses_nobody(
    hosts: list[tuple[str, str]], ranks: list[str]
) -> None:
    one = cluster(placed(*ranks), *(said("host", node, name) for node, name in hosts))
    found = in_order(one)
    names = [one.reports[node].host or node for node in found]
    assert names == sorted(names) and sorted(found) == ["a", "b", "c"]


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_word_of_a_node_raises_or_reaches_a_rank(word: bytes, detail: bytes) -> None:
    one = cluster(ABC)
    apply(one, Event(1, "node", word.decode("latin-1"), "a", detail.decode("latin-1")))
    assert (
        one.ranks == ["a", "b", "c"]
        and one.waiting == ["d", "e"]
        and not one.excluded
        and not one.blamed
    )


@pytest.mark.parametrize(
    ("need", "most", "each", "left"),
    [
        (1, 1, [["a", "b", "c", "d", "e"]], []),
        (1, 3, [["a"], ["b"], ["c"]], ["d", "e"]),
        (1, 9, [["a"], ["b"], ["c"], ["d"], ["e"]], []),
        (2, 2, [["a", "b"], ["c", "d"]], ["e"]),
        (2, 3, [["a", "b"], ["c", "d"]], ["e"]),
        (3, 2, [["a", "b", "c", "d", "e"]], []),
        (5, 0, [["a", "b", "c", "d", "e"]], []),
    ],
)
def test_nodes_are_divided_for_runs_side_by_side(
    need: int, most: int, each: list[list[str]], left: list[str]
) -> None:
    assert groups(FIVE, need, most) == (each, left), "a single group has all of them, and chooses"


def test_a_node_that_joined_is_one_of_the_group() -> None:
    short = (ABC, loop("blamed", "b", "exit", "died", "1", "1"), loop("aside", "c", "check", "no"))
    assert unblemished(cluster(*short, allocated=("a", "b", "c"))) == ["a"]
    assert not costs_no_attempt(cluster(*short, allocated=("a", "b", "c")), "b")
    more = cluster(*short, loop("joined", "x"), loop("joined", "y"), allocated=("a", "b", "c"))
    assert unblemished(more) == ["a", "x", "y"] == candidates(more)
    assert costs_no_attempt(more, "b")
