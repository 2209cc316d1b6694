"""Olympic means, as the referee takes them."""

from __future__ import annotations


def dropped_per_side(benchmark: object) -> int:
    """How many of the fastest and of the slowest runs do not count: one, for unet3d four."""
    return 4 if benchmark == "unet3d" else 1


def olympic_mean(times: list[float], failed: int, dropped: int) -> float | None:
    """Mean of `times` without the `dropped` fastest and slowest; a failed run takes the place of a slowest one.

    None when nothing is left or more runs failed than can be dropped. Source: result_summarizer,
    _compute_olympic_average.
    """
    if failed > dropped:
        return None
    counted = sorted(times)[dropped : len(times) - (dropped - failed)]
    return sum(counted) / len(counted) if counted else None
