"""Numbers and times as text. Always UTC: the same set gives the same report everywhere."""

from __future__ import annotations

import math

from orchestrator import words
from orchestrator.frozen import Frozen
from orchestrator.words import MISSING as MISSING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

GROUPS = "\u202f"
"""Between groups of three digits; a terminal shows none."""


class Unit(Frozen):
    """A unit of time for all numbers of a table or chart."""

    name: str
    short: str
    per_minute: float

    def of(self, minutes: float) -> float:
        return minutes * self.per_minute

    def text(self, minutes: float | None, digits: int = 3) -> str:
        return (
            MISSING
            if minutes is None or not math.isfinite(minutes)
            else f"{self.of(minutes):.{digits}f}"
        )

    def full(self, minutes: float | None, digits: int = 3) -> str:
        text = self.text(minutes, digits)
        return text if text == MISSING else f"{text} {self.short}"


SECONDS, MINUTES = Unit("seconds", "s", 60.0), Unit("minutes", "min", 1.0)
HOURS, DAYS = Unit("hours", "h", 1 / 60), Unit("days", "d", 1 / 1440)


def unit_of_runs(times: Iterable[float | None]) -> Unit:
    """Return MLPerf's minutes, but seconds if all times are below a minute."""
    known = [value for value in times if value is not None and math.isfinite(value)]
    return SECONDS if known and max(known) < 1 else MINUTES


def unit_of_span(minutes: float) -> Unit:
    return (
        SECONDS
        if minutes < 3
        else MINUTES
        if minutes < 300
        else HOURS
        if minutes < 60 * 96
        else DAYS
    )


def minutes(value: float | None) -> str:
    return words.minutes(value, MISSING)


def seconds(value: float | None) -> str:
    return words.seconds(value, MISSING)


def plain(value: float | None) -> str:
    """Return about six significant digits; whole and large numbers in full, in groups of
    three."""
    if value is None or not math.isfinite(value):
        return MISSING
    if (value == int(value) or abs(value) >= 1e5) and abs(value) < 1e15:
        return f"{round(value):,}".replace(",", GROUPS)
    return f"{value:.6g}"


def moment(value: Any) -> str:
    """Return `2025-05-01 12:30:00 UTC` for Unix milliseconds; a dash for other values."""
    return words.utc_time(value)


def date(value: float) -> str:
    """Return `2025-05-01` for Unix milliseconds."""
    return moment(value)[:10]
