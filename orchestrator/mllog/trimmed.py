"""Confidence in the difference of two olympic means.

An olympic mean is a trimmed mean, and dropped runs spread most. Yuen's test is Welch's t for
trimmed means, with the variance of the winsorised sample (dropped values replaced by their nearest
kept values) and h - 1 degrees of freedom for h kept runs. Source: K. K. Yuen, Biometrika 61 (1974)
165-170.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.frozen import Frozen
from orchestrator.mllog.numbers import finite
from orchestrator.mllog.olympic import kept
from orchestrator.mllog.student import cdf, quantile

if TYPE_CHECKING:
    from orchestrator.mllog.result import Score

METHOD = "Welch t interval for trimmed means (Yuen 1974), 95 %"
MOST_RUNS = 1000
"""Additional runs considered to settle a comparison."""


class Trimmed(Frozen):
    """A trimmed mean of `kept` values with its squared standard error."""

    mean: float
    error2: float
    kept: int

    def around(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the interval that holds the mean: Student's t with `kept` - 1 degrees of freedom.

        On the logarithm, like interval(): no time is below 0. Raises ValueError for a mean not
        above 0.
        """
        if not self.mean > 0:
            raise ValueError(f"a mean of {self.mean} has no logarithm")
        relative = math.sqrt(self.error2) / self.mean
        return _around(self.mean, quantile(0.5 + confidence / 2, self.kept - 1) * relative)


def _around(middle: float, spread: float) -> tuple[float, float]:
    """Return `middle` with `spread` on each side of its logarithm."""
    reach = math.exp(min(700.0, spread))  # more is no float
    return middle / reach, middle * reach


def trimmed(values: Sequence[float], failed: int = 0, dropped: int = 1) -> Trimmed | None:
    """Return the trimmed mean of good runs' `values`, with `failed` bad runs at the slow end.

    None if fewer than two values are left, or more runs failed than are dropped.
    """
    count = len(values) + failed
    if failed > dropped or count - 2 * dropped < 2:
        return None
    left = kept(list(values), failed, dropped)
    winsorised = [left[0]] * dropped + left + [left[-1]] * dropped
    centre = sum(winsorised) / count
    spread = sum((value - centre) ** 2 for value in winsorised)
    return Trimmed(sum(left) / len(left), spread / (len(left) * (len(left) - 1)), len(left))


def scale_of(score: Score) -> float:
    """Return the set's factor from a run's minutes to minutes of the score."""
    return score.factor if score.valid and score.factor is not None else 1.0


def trimmed_score(score: Score) -> Trimmed | None:
    """Return the mean of kept times, as minutes of the score; None with too few good runs."""
    runs = [run for run in score.runs if run.use != "outside"]
    good = [
        minutes * scale_of(score)
        for run in runs
        if run.use != "bad" and (minutes := finite(run.minutes)) is not None
    ]
    return trimmed(good, len(runs) - len(good), score.dropped)


class Interval(Frozen):
    """The ratio b/a of two trimmed means: its 95 % interval, and the chance `p` of such a
    difference between equal sides."""

    ratio: float
    low: float
    high: float
    p: float
    degrees: float


def interval(a: Trimmed, b: Trimmed, confidence: float = 0.95) -> Interval | None:
    """Return the interval of mean(b) / mean(a): Welch's on the logarithms, whose standard errors
    are the relative errors.

    None if a mean is not above 0.
    """
    if not (a.mean > 0 and b.mean > 0):
        return None
    ratio = b.mean / a.mean
    a2, b2 = (side.error2 / side.mean / side.mean for side in (a, b))
    relative = math.sqrt(a2 + b2)
    if relative == 0:
        return Interval(ratio, ratio, ratio, 1.0 if ratio == 1 else 0.0, math.inf)
    degrees = _degrees(a2, a.kept, b2, b.kept)
    t = quantile(0.5 + confidence / 2, degrees)
    log = math.log(ratio)
    p = 2 * (1 - cdf(abs(log) / relative, degrees))
    return Interval(ratio, *_around(ratio, t * relative), p, degrees)


def runs_to_settle(a: Trimmed, b: Trimmed, near: float, *, both: bool) -> int | None:
    """Return how many more runs of b (of each side with `both`) put the whole interval inside or
    outside 1 +- `near`.

    0 if it is there already; None beyond MOST_RUNS. Missing runs are assumed to spread like present
    runs, with one dropped at each end.
    """

    def settled(more: int) -> bool:
        limits = interval(_longer(a, more) if both else a, _longer(b, more))
        return limits is not None and (
            (limits.low >= 1 - near and limits.high <= 1 + near)
            or limits.high < 1 - near
            or limits.low > 1 + near
        )

    counts = range(MOST_RUNS + 1)
    count = bisect_left(counts, True, key=settled)
    return count if count < len(counts) else None


def _longer(score: Trimmed, more: int) -> Trimmed:
    kept = score.kept + more
    variance = score.error2 * score.kept * (score.kept - 1) / (score.kept + 1)
    return Trimmed(score.mean, variance * (kept + 1) / (kept * (kept - 1)), kept)


def _degrees(a: float, kept_a: int, b: float, kept_b: int) -> float:
    """Return Welch's degrees of freedom for squared standard errors a and b."""
    return (a + b) ** 2 / (a**2 / (kept_a - 1) + b**2 / (kept_b - 1))
