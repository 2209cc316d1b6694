"""Numbers in logs. JSON has numbers that no float holds."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


LARGEST = 1e150
"""The square of a larger number is no float."""


def finite(value: Any) -> float | None:
    """Return a number up to LARGEST; None for another value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if abs(value) <= LARGEST else None


def positive(value: Any) -> float | None:
    """Return a finite number over 0, or None."""
    number = finite(value)
    return number if number is not None and number > 0 else None
