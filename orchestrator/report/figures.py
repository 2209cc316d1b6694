"""Numbers and times as text. Times are always UTC, so that the same set gives the same report everywhere."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def minutes(value: float | None) -> str:
    """Minutes, with more digits where runs take seconds."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    return f"{value:.3f}" if size >= 1 else f"{value:.5f}"


def plain(value: float | None) -> str:
    """A number with about six significant digits; whole and large numbers in full, in groups of three."""
    if value is None or not math.isfinite(value):
        return "–"
    if (value == int(value) or abs(value) >= 1e5) and abs(value) < 1e15:
        return f"{round(value):,}".replace(",", "\u202f")
    return f"{value:.6g}"


def moment(value: Any) -> str:
    """`2025-05-01 12:30:00 UTC` of Unix milliseconds; a dash for what is no time."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0 or not math.isfinite(value):
        return "–"
    try:
        return (_EPOCH + timedelta(milliseconds=value)).strftime("%Y-%m-%d %H:%M:%S UTC")
    except OverflowError:
        return "–"


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return (
        f"{value:.2f} s"
        if abs(value) < 10
        else f"{value:.1f} s"
        if abs(value) < 100
        else f"{value:.0f} s"
        if abs(value) < 6000
        else f"{value / 60:.1f} min"
    )


def percent(value: float) -> str:
    return f"{value:+.2%}".replace("%", " %")
