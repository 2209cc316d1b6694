"""Seeds: one rule for controller and loop, below 2^31 for every number of runs."""

from __future__ import annotations

import pytest

from orchestrator.onnode.set.new import draw_root, largest_root, seed_of

LAST_ATTEMPT = 999  # the most that settings.sh takes


@pytest.mark.parametrize("nexp", [1, 10, 2000, 2001, 9999])
def test_the_largest_root_gives_the_largest_seed(nexp: int) -> None:
    assert seed_of(largest_root(nexp), nexp, LAST_ATTEMPT) == 2**31 - 1
    assert all(1 <= draw_root(nexp) <= largest_root(nexp) for _ in range(3000))


def test_no_two_attempts_share_a_seed() -> None:
    seeds = {
        seed_of(7, run, attempt) for run in range(1, 101) for attempt in range(1, LAST_ATTEMPT + 1)
    }
    assert len(seeds) == 100 * LAST_ATTEMPT
    assert seed_of(1000, 1, 1) == 1001
