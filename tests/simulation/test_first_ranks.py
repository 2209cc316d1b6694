"""Several nodes fail in a set with the real loop: `explain` names the first rank. The figure for 60 sets: `python tests/simulation/first_ranks.py`."""

from __future__ import annotations

import pytest
from first_ranks import failure, named_first
from rank_failures import FAILURES
from worlds import Sets


@pytest.mark.parametrize("seed", range(len(FAILURES)))
def test_the_first_rank_is_named_whatever_the_others_print(sets: Sets, seed: int) -> None:
    first, named = named_first(sets, failure(seed))
    assert named == first


def test_the_failures_differ_in_what_makes_them_hard() -> None:
    plans = [failure(seed) for seed in range(60)]
    assert {plan.kind for plan in plans} == set(FAILURES)
    assert sum(plan.lost is not None for plan in plans) >= 15
    assert sum(plan.lost == plan.first for plan in plans) >= 5
    assert sum(bool(plan.loud) for plan in plans) >= 30
    assert sum(max(plan.skews) - min(plan.skews) > 10_000 for plan in plans) >= 30
    assert sum(len(plan.late) < plan.nodes - 1 for plan in plans) >= 15
