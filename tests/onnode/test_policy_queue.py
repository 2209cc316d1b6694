"""Which run comes next where, when several groups of nodes share the runs of a set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.onnode.policy.queue import IN_A_ROW, Queue


def test_one_group_tries_a_run_again_before_the_next() -> None:
    queue = Queue([2, 3], 2, [1])
    assert queue.take(1) == 2
    assert not queue.died(1, 2, free=False)
    assert queue.take(1) == 2
    assert not queue.died(1, 2, free=True), "a free attempt is not counted"
    assert queue.take(1) == 2
    assert not queue.died(1, 2, free=False), "a group that is alone is never told to stop"
    assert queue.take(1) == 3, "the attempts of run 2 are used up"
    queue.ended(1, 3)
    assert (queue.take(1), queue.missing, queue.in_hand) == (0, [], set())


def test_a_run_that_died_goes_to_another_group_first() -> None:
    queue = Queue([1, 2, 3], 3, [1, 2])
    assert (queue.take(1), queue.take(2)) == (1, 2)
    queue.died(1, 1, free=False)
    assert queue.take(1) == 3, "run 1 waits for the other one"
    queue.ended(2, 2)
    assert queue.take(2) == 1
    queue.died(2, 1, free=False)
    assert queue.take(2) == 0, "its last attempt is for another group"
    queue.ended(1, 3)
    assert queue.take(2) == 1, "nobody is at work who could take it"


def test_a_run_that_died_is_tried_again_there_when_nothing_else_is_left() -> None:
    queue = Queue([1, 2], 3, [1, 2])
    assert (queue.take(1), queue.take(2)) == (1, 2)
    queue.died(1, 1, free=False)
    assert queue.take(1) == 1
    queue.died(1, 1, free=False)
    assert queue.take(1) == 0
    queue.ended(2, 2)
    assert queue.take(2) == 1


def test_a_group_where_everything_dies_is_told_to_stop() -> None:
    queue = Queue(range(1, 10), 3, [1, 2])
    told = [queue.died(1, queue.take(1), free=False) for _ in range(IN_A_ROW)]
    assert told == [False] * (IN_A_ROW - 1) + [True]
    assert queue.missing == [3, 2, 1, 4, 5, 6, 7, 8, 9], "each of them cost one attempt"
    queue.groups.discard(1)
    assert [queue.died(2, queue.take(2), free=False) for _ in range(IN_A_ROW)] == [False] * IN_A_ROW, (
        "the last one goes on"
    )


def test_a_good_run_clears_a_group() -> None:
    queue = Queue(range(1, 10), 3, [1, 2])
    for _ in range(IN_A_ROW + 1):
        assert not queue.died(1, queue.take(1), free=False)
        queue.ended(1, queue.take(1))


def test_a_run_that_was_given_back_comes_first() -> None:
    queue = Queue([1, 2, 3], 3, [1, 2])
    queue.take(1)
    queue.take(2)
    queue.put_back(2)
    assert queue.take(1) == 2 and queue.in_hand == {1, 2}


@given(
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["ended", "died", "free", "back"])), max_size=80),
)
def test_every_run_is_in_one_place(runs: int, groups: int, most: int, steps: list[tuple[int, str]]) -> None:
    queue, hand, over = Queue(range(1, runs + 1), most, range(1, groups + 1)), dict[int, int](), list[int]()
    for number, step in steps:
        group = 1 + number % groups
        run = hand.pop(group, 0) or queue.take(group)
        if not run:
            continue
        hand[group] = run
        assert len(set(hand.values())) == len(hand), "no run is in two hands"
        if step == "ended":
            queue.ended(group, hand.pop(group))
            over.append(run)
        elif step == "back":
            queue.put_back(hand.pop(group))
        elif step in ("died", "free"):
            queue.died(group, hand.pop(group), free=step == "free")
            over += [run] if run not in queue.missing else []
        assert sorted([*over, *queue.missing, *hand.values()]) == list(range(1, runs + 1))
        assert queue.in_hand == set(hand.values())
