"""The median-window rule: of M > N runs, the N consecutive ones whose score is the median of all windows.

Consecutive by launch time (run_start), not by file number; a window without a valid score counts as infinitely slow.
Choosing the fastest window is forbidden, so the choice and all windows are put on record. With an even number of
windows the slower of the two in the middle is taken: it can never be called a choice in the submitter's favour.
"""

from __future__ import annotations

import math

# Not typing's own constant: importing typing takes a tenth of a cold `orchestrator score`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from orchestrator.mllog.rules import Rules
    from orchestrator.mllog.score import RunScore, Score


def launch_order(runs: list[RunScore]) -> list[RunScore]:
    """Runs by start; those that never started come where their file stands among the others."""
    ordered: list[tuple[float, int, RunScore]] = []
    last = -math.inf
    for index, run in enumerate(runs):
        begin = run.start if run.start is not None else run.init_start
        last = begin if begin is not None else last
        ordered.append((last, index, run))
    return [run for _, _, run in sorted(ordered, key=lambda item: item[:2])]


def apply_window(score: Score, round_rules: Rules, *, adopt: bool) -> None:
    """Find the median window of a set with too many runs; with `adopt` its score becomes the set's score."""
    from orchestrator.mllog.score import mark_uses, score_runs

    runs, size = launch_order(score.runs), score.runs_required
    windows = [
        score_runs(score.directory, runs[first : first + size], round_rules, score.ruleset_from)
        for first in range(len(runs) - size + 1)
    ]
    order = sorted(range(len(windows)), key=lambda index: (_rank(windows[index]), index))
    median = windows[order[len(order) // 2]]
    files = [run.file for run in median.runs]
    score.window = _describe(windows, median, files)
    if adopt:
        _adopt(score, median)
    else:
        mark_uses(score)
        if median.valid:
            score.notes.append(
                f"by the median-window rule the runs to hand in are {', '.join(files)} "
                f"({median.minutes:.2f} minutes); --window scores them"
            )


def _rank(window: Score) -> float:
    return window.minutes if window.minutes is not None else math.inf


def _describe(windows: list[Score], median: Score, files: list[str]) -> dict[str, Any]:
    return {
        "files": files,
        "valid": median.valid,
        "score_minutes": median.minutes,
        "windows": [
            {"first": window.runs[0].file, "last": window.runs[-1].file, "score_minutes": window.minutes}
            for window in windows
        ],
        "rule": "the window of consecutive runs, in launch order, whose score is the median of all windows",
    }


def _adopt(score: Score, window: Score) -> None:
    """Make the window's result the set's. The other runs stay listed, marked as outside."""
    from orchestrator.mllog.score import mark_uses

    score.olympic_mean, score.rcp = window.olympic_mean, window.rcp
    score.reasons, score.seed_findings = window.reasons, window.seed_findings
    for run in score.runs:
        run.use = "outside"
    mark_uses(window)
    score.notes.append(f"{len(score.runs)} runs: the median window is {', '.join(run.file for run in window.runs)}")
