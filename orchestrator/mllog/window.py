"""The median-window rule: of M > N runs, the N consecutive runs whose score is the median of all
windows.

Consecutive by launch time (run_start); a window without a valid score is infinitely slow. Choosing
the fastest is forbidden, so all windows are recorded. Of two middle windows the slower is taken: no
choice in the submitter's favour.
"""

from __future__ import annotations

import math

from orchestrator.mllog.referee import score_runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from orchestrator.mllog.own import OwnRules
    from orchestrator.mllog.result import RunScore, Score
    from orchestrator.mllog.rules import Rules


def launch_order(runs: Sequence[RunScore]) -> list[RunScore]:
    """Return runs by start; runs that never started are placed by their file."""
    ordered: list[tuple[float, int, RunScore]] = []
    last = -math.inf
    for index, run in enumerate(runs):
        begin = run.start if run.start is not None else run.init_start
        last = begin if begin is not None else last
        ordered.append((last, index, run))
    return [run for _, _, run in sorted(ordered, key=lambda item: item[:2])]


def apply_window(score: Score, round_rules: Rules | OwnRules, *, adopt: bool) -> Score:
    """Record the median window of a set with too many runs; `adopt` its score as the set's."""
    runs, size = launch_order(score.runs), score.runs_required
    windows = [
        score_runs(score.directory, runs[first : first + size], round_rules, score.ruleset_from)
        for first in range(len(runs) - size + 1)
    ]
    order = sorted(range(len(windows)), key=lambda index: (_rank(windows[index]), index))
    median = windows[order[len(order) // 2]]
    files = [run.file for run in median.runs]
    score = score.replace(window=_describe(windows, median, files))
    if adopt:
        return _adopt(score, median)
    if not median.valid:
        return score
    note = (
        f"by the median-window rule the runs to submit are {', '.join(files)} "
        f"({median.minutes:.2f} minutes); --window scores them"
    )
    return score.replace(notes=(*score.notes, note))


def _rank(window: Score) -> float:
    return window.minutes if window.minutes is not None else math.inf


def _describe(windows: list[Score], median: Score, files: list[str]) -> dict[str, Any]:
    return {
        "files": files,
        "valid": median.valid,
        "score_minutes": median.minutes,
        "windows": [
            {
                "first": window.runs[0].file,
                "last": window.runs[-1].file,
                "score_minutes": window.minutes,
            }
            for window in windows
        ],
        "rule": (
            "the window of consecutive runs, in launch order, whose score is the median of all "
            "windows"
        ),
    }


def _adopt(score: Score, window: Score) -> Score:
    """Return the set with the window's result. The other runs stay listed, marked as outside."""
    uses = {run.file: run.use for run in window.runs}
    note = (
        f"{len(score.runs)} runs: the median window is {', '.join(run.file for run in window.runs)}"
    )
    return score.replace(
        runs=tuple(run.replace(use=uses.get(run.file, "outside")) for run in score.runs),
        olympic_mean=window.olympic_mean,
        rcp=window.rcp,
        reasons=window.reasons,
        seed_findings=window.seed_findings,
        notes=(*score.notes, note),
    )
