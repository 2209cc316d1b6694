"""Numbers and times as text. Times are always UTC, so that the same set gives the same report everywhere."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator import words

MISSING = "–"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def minutes(value: float | None) -> str:
    return words.minutes(value, MISSING)


def seconds(value: float | None) -> str:
    return words.seconds(value, MISSING)


def plain(value: float | None) -> str:
    """A number with about six significant digits; whole and large numbers in full, in groups of three."""
    if value is None or not math.isfinite(value):
        return MISSING
    if (value == int(value) or abs(value) >= 1e5) and abs(value) < 1e15:
        return f"{round(value):,}".replace(",", "\u202f")
    return f"{value:.6g}"


def moment(value: Any) -> str:
    """`2025-05-01 12:30:00 UTC` of Unix milliseconds; a dash for what is no time."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0 or not math.isfinite(value):
        return MISSING
    try:
        return (_EPOCH + timedelta(milliseconds=value)).strftime("%Y-%m-%d %H:%M:%S UTC")
    except OverflowError:
        return MISSING


def percent(value: float) -> str:
    return f"{value:+.2%}".replace("%", " %")
