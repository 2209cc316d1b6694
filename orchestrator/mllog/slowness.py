"""Causes of a slow set: its samples or its time per sample, a run, an evaluation, a pause.

Below the thresholds nothing is reported: a sound set gets two lines, its convergence and its
throughput.
"""

from __future__ import annotations

from itertools import pairwise

from orchestrator.mllog.numbers import finite, positive
from orchestrator.mllog.olympic import median
from orchestrator.words import duration, rate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from orchestrator.mllog.result import RunScore, Score

SLOW_RUN = 1.02
"""A run with this much more time per sample than the median run is named."""
SLOW_INTERVAL = 1.10
"""The same for a stretch between two evaluations against its run's median stretch."""
SHORTEST_S = 1.0
"""Shorter stretches are not named: they differ by the machine's other work alone."""
LONG_GAP = 3.0
LONG_GAP_MINUTES = 5.0
"""A pause between runs is named if longer than this, and this many times the median pause."""
SLOW_INIT = 1.5


def explain(score: Score) -> list[dict[str, Any]]:
    """Return findings, weightiest kind first."""
    runs = [run for run in score.runs if positive(run.minutes) and run.converged]
    if not runs:
        return []
    return [
        *_convergence(score),
        *_rates(runs),
        *_intervals(runs),
        *_gaps(runs),
        *_initialisation(runs),
    ]


def _finding(kind: str, text: str, **numbers: Any) -> dict[str, Any]:
    return {"kind": kind, **numbers, "text": text}


def _convergence(score: Score) -> list[dict[str, Any]]:
    result = score.rcp
    mean = positive(result.submission_mean) if result else None
    if not result or not result.point or mean is None:
        return []
    ratio = mean / result.point.mean
    if ratio >= 1:
        text = (
            f"samples to converge: {ratio:.3f} x the reference, which costs {ratio - 1:.1%} of "
            "the time"
        )
    else:
        text = (
            f"samples to converge: {ratio:.3f} x the reference; the "
            "normalisation factor corrects for that"
        )
    return [
        {
            "kind": "convergence",
            "text": text,
            "ratio": ratio,
            "samples": mean,
            "reference": result.point.mean,
        }
    ]


def _rates(runs: list[RunScore]) -> list[dict[str, Any]]:
    """Return each run's samples per second; name runs well below the median."""
    rates = {
        run.file: speed
        for run in runs
        if (samples := positive(run.samples))
        and (minutes := positive(run.minutes))
        and (speed := positive(samples / (minutes * 60)))
    }
    if not rates:
        return []
    middle = median(list(rates.values()))
    text = f"throughput: {rate(middle)} samples/s in the median run, evaluations included"
    slow = [_finding("throughput", text, samples_per_second=middle, runs=rates)]
    for name, value in sorted(rates.items(), key=lambda item: item[1]):
        ratio = middle / value
        if ratio >= SLOW_RUN:
            text = f"{name}: {ratio - 1:.1%} slower per sample than the median run"
            slow.append(_finding("slow_run", text, run=name, ratio=ratio))
    counts = {run.file: count for run in runs if (count := positive(run.samples))}
    longest = max(counts, key=counts.__getitem__)
    times = counts[longest] / median(counts.values())
    if times > 1.1:
        text = f"{longest}: needed {times:.2f} x the samples of the median run"
        slow.append(_finding("slow_convergence", text, run=longest, ratio=times))
    return slow


def _intervals(runs: list[RunScore]) -> list[dict[str, Any]]:
    """Return each run's slowest stretch between two evaluations, if it stands out."""
    findings = []
    for run in runs:
        stretches = []
        for (before, first, _), (after, last, _) in pairwise(run.evaluations):
            early, late = positive(first), positive(last)
            if early and late and late > early and after > before:
                minutes = (after - before) / 60000
                if pace := positive(minutes / (late - early)):
                    stretches.append((pace, last, minutes))
        if len(stretches) < 3:
            continue
        usual = median([stretch[0] for stretch in stretches])
        slow, samples, minutes = max(stretches)
        ratio = slow / usual
        if ratio >= SLOW_INTERVAL and 60 * minutes >= SHORTEST_S:
            text = (
                f"{run.file}: the stretch up to {samples} samples took {ratio:.2f} x "
                f"the usual time ({duration(60 * minutes)})"
            )
            findings.append(
                _finding(
                    "slow_interval",
                    text,
                    run=run.file,
                    samples=samples,
                    ratio=ratio,
                    minutes=minutes,
                )
            )
    return sorted(findings, key=lambda item: -item["ratio"])[:5]


def pauses(runs: Iterable[RunScore]) -> list[tuple[float, str, str]]:
    """Return (minutes, file, next file) from each run's end to the next start, in launch order.
    Runs side by side have no pause: the next start is another group's."""
    spans = sorted(
        (start, stop, run.file)
        for run in runs
        if (start := finite(run.start)) is not None and (stop := finite(run.stop)) is not None
    )
    gaps = [
        ((start - stop) / 60000, earlier, later)
        for (_, stop, earlier), (start, _, later) in pairwise(spans)
    ]
    return [] if any(gap < 0 for gap, _, _ in gaps) else gaps


def _gaps(runs: list[RunScore]) -> list[dict[str, Any]]:
    gaps = pauses(runs)
    if not gaps:
        return []
    usual = median([gap for gap, _, _ in gaps])
    text = (
        f"between runs: {duration(60 * usual)} in the median "
        "(container, caches, initialisation; not part of the score)"
    )
    slow = [_finding("gaps", text, median_minutes=usual)]
    for gap, earlier, later in gaps:
        if gap > LONG_GAP_MINUTES and gap > LONG_GAP * usual:
            text = f"{duration(60 * gap)} between {earlier} and {later}"
            slow.append(_finding("long_gap", text, after=earlier, before=later, minutes=gap))
    return slow


def _initialisation(runs: list[RunScore]) -> list[dict[str, Any]]:
    times = {
        run.file: minutes
        for run in runs
        if run.start is not None
        and run.init_start is not None
        and (minutes := finite((run.start - run.init_start) / 60000)) is not None
    }
    if not times:
        return []
    usual = median(list(times.values()))
    text = f"initialisation: {duration(60 * usual)} in the median (not part of the score)"
    slow = [_finding("initialisation", text, median_minutes=usual, runs=times)]
    for name, minutes in times.items():
        if usual > 0 and minutes / usual >= SLOW_INIT and minutes - usual > 1:
            text = f"{name}: initialisation took {duration(60 * minutes)}"
            slow.append(_finding("slow_initialisation", text, run=name, minutes=minutes))
    return slow
