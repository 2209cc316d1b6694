"""A part of the trials that `python tools/revert_trials.py` makes."""

from __future__ import annotations

import sys

from tuning_parts import TOP

sys.path.insert(0, str(TOP / "tools"))

from revert_trials import Trial, table, trials


def test_term_to_every_process_leaves_no_revert_incomplete() -> None:
    result = list(trials(20))
    assert [trial for trial in result if trial.problem or not trial.is_complete] == []
    assert any(trial.signalled for trial in result)


def test_the_table_counts_what_is_incomplete_and_what_was_reported() -> None:
    result = [
        Trial(0.1, 0, 2, "", True),
        Trial(7.5, 1, 3, "no lock", False),
        Trial(8, 1, 1, "", False),
    ]
    assert [line.split() for line in table(result, 10).splitlines()[1:]] == [
        ["0", "to", "5", "ms", "1", "2", "0", "0"],
        ["5", "to", "10", "ms", "2", "4", "2", "1"],
        ["all", "3", "6", "2", "1"],
    ]
