"""Which run comes next where, when several groups of nodes share the runs of a set."""

from __future__ import annotations

import json
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.onnode.kernel.events import Event
from orchestrator.onnode.policy.queue import IN_A_ROW, Queue, apply, is_to_stop, next_run


class Runs:
    """A queue that the test tells what becomes of its runs."""

    def __init__(self, missing: Iterable[int], most: int, groups: Iterable[int]) -> None:
        self.queue = Queue()
        self.note("runs", missing=list(missing), most=most, groups=list(groups))

    def note(self, word: str, **about: object) -> None:
        apply(self.queue, Event(0, "loop", word, "", json.dumps(about)))

    def take(self, group: int) -> int:
        if run := next_run(self.queue, group):
            self.note("take", group=group, run=run)
        return run

    def ended(self, group: int, run: int) -> None:
        self.note("gives", group=group, run=run, why="result")

    def back(self, group: int, run: int) -> None:
        self.note("gives", group=group, run=run, why="back")

    def died(self, group: int, run: int, *, free: bool = False) -> bool:
        """Whether the group is to stop."""
        self.note("gives", group=group, run=run, why="free" if free else "died")
        return is_to_stop(self.queue, group)


def test_one_group_tries_a_run_again_before_the_next() -> None:
    runs = Runs([2, 3], 2, [1])
    assert runs.take(1) == 2
    assert not runs.died(1, 2)
    assert runs.take(1) == 2
    assert not runs.died(1, 2, free=True), "a free attempt is not counted"
    assert runs.take(1) == 2
    assert not runs.died(1, 2), "a group that is alone is never told to stop"
    assert runs.take(1) == 3, "the attempts of run 2 are used up"
    runs.ended(1, 3)
    assert (runs.take(1), runs.queue.missing, runs.queue.in_hand) == (0, [], set())


def test_a_run_that_died_goes_to_another_group_first() -> None:
    runs = Runs([1, 2, 3], 3, [1, 2])
    assert (runs.take(1), runs.take(2)) == (1, 2)
    runs.died(1, 1)
    assert runs.take(1) == 3, "run 1 waits for the other one"
    runs.ended(2, 2)
    assert runs.take(2) == 1
    runs.died(2, 1)
    assert runs.take(2) == 0, "its last attempt is for another group"
    runs.ended(1, 3)
    assert runs.take(2) == 1, "nobody is at work who could take it"


def test_a_run_that_died_is_tried_again_there_when_nothing_else_is_left() -> None:
    runs = Runs([1, 2], 3, [1, 2])
    assert (runs.take(1), runs.take(2)) == (1, 2)
    runs.died(1, 1)
    assert runs.take(1) == 1
    runs.died(1, 1)
    assert runs.take(1) == 0
    runs.ended(2, 2)
    assert runs.take(2) == 1


def test_a_group_where_everything_dies_is_told_to_stop() -> None:
    runs = Runs(range(1, 10), 3, [1, 2])
    told = [runs.died(1, runs.take(1)) for _ in range(IN_A_ROW)]
    assert told == [False] * (IN_A_ROW - 1) + [True]
    assert runs.queue.missing == [3, 2, 1, 4, 5, 6, 7, 8, 9], "each of them cost one attempt"
    runs.note("leaves", group=1)
    assert [runs.died(2, runs.take(2)) for _ in range(IN_A_ROW)] == [False] * IN_A_ROW, (
        "the last one goes on"
    )


def test_a_good_run_clears_a_group() -> None:
    runs = Runs(range(1, 10), 3, [1, 2])
    for _ in range(IN_A_ROW + 1):
        assert not runs.died(1, runs.take(1))
        runs.ended(1, runs.take(1))


def test_a_run_that_was_given_back_comes_first() -> None:
    runs = Runs([1, 2, 3], 3, [1, 2])
    runs.take(1)
    runs.take(2)
    runs.back(2, 2)
    assert runs.take(1) == 2 and runs.queue.in_hand == {1, 2}


@given(
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(1, 3),
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["result", "died", "free", "back"])),
        max_size=80,
    ),
)
def test_every_run_is_in_one_place(
    count: int, groups: int, most: int, steps: list[tuple[int, str]]
) -> None:
    runs, hand, over = (
        Runs(range(1, count + 1), most, range(1, groups + 1)),
        dict[int, int](),
        list[int](),
    )
    for number, why in steps:
        group = 1 + number % groups
        run = hand.pop(group, 0) or runs.take(group)
        if not run:
            continue
        hand[group] = run
        assert len(set(hand.values())) == len(hand), "no run is in two hands"
        runs.note("gives", group=group, run=hand.pop(group), why=why)
        over += [run] if run not in runs.queue.missing else []
        assert sorted([*over, *runs.queue.missing, *hand.values()]) == list(range(1, count + 1))
        assert runs.queue.in_hand == set(hand.values())
