"""Numbers in logs. JSON has numbers that no float holds."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def finite(value: Any) -> float | None:
    """Return a finite number; None for another value, or beyond all floats."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def positive(value: Any) -> float | None:
    """Return a finite number over 0, or None."""
    number = finite(value)
    return number if number is not None and number > 0 else None
