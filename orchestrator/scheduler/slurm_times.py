"""Slurm's notation of time limits, for those who ask no Slurm."""

from __future__ import annotations

import re

_TIME = re.compile(r"(\d+-)?\d+(:\d+){0,2}")


def minutes_of(text: str) -> int | None:
    """Read `MM`, `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM` or `D-HH:MM:SS`, rounded up as Slurm does;
    None: unlimited. Raises ValueError."""
    if text.lower() in ("infinite", "unlimited"):
        return None
    if not _TIME.fullmatch(text):
        raise ValueError(f"{text!r} is no time")
    days, dash, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if dash or len(parts) == 3:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    else:
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return (int(days or 0) * 24 + hours) * 60 + minutes + (seconds > 0)
