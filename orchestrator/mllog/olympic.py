"""Outcomes, times to train and olympic means, for scoring and views of unfinished sets.

Not `statistics`, which loads fractions and decimals.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

LOST = ("infrastructure", "interrupted")
"""Outcomes of attempts that prove nothing about convergence: not scored."""
DONE = ("success", "not_converged")
"""Outcomes of attempts that count."""


def mean(values: Collection[float]) -> float:
    """Return the arithmetic mean of at least one value."""
    return sum(values) / len(values)


def median(values: Collection[float]) -> float:
    """Return the median of at least one value."""
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def dropped_per_side(benchmark: object) -> int:
    """Return how many of the fastest, and of the slowest, runs do not count: 1, for unet3d 4."""
    return 4 if benchmark == "unet3d" else 1


def kept(values: list[float], failed: int = 0, dropped: int = 1) -> list[float]:
    """Return sorted `values` without `dropped` on each side; a failed run counts as largest."""
    return sorted(values)[dropped : len(values) - max(0, dropped - failed)]


def minutes_between(start_ms: float, stop_ms: float) -> float:
    """Return a time to train, divided as in MLCommons' result_summarizer: all views round alike."""
    return (stop_ms - start_ms) / 60 / 1000


def olympic_mean(times: list[float], failed: int = 0, dropped: int = 1) -> float | None:
    """Return the mean of `times` without the `dropped` fastest and slowest; a failed run counts as
    slowest.

    None if nothing is left (below three runs with one dropped on each side) or more runs failed
    than can be dropped. Source: result_summarizer, _compute_olympic_average.
    """
    if failed > dropped:
        return None
    counted = kept(times, failed, dropped)
    return sum(counted) / len(counted) if counted else None
