"""Numbers with a noun, for messages."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Return `1 run`, `3 runs`, `2 entries`, `4 processes`."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith(("s", "x", "ch")):
        return f"{number} {noun}es"
    if noun.endswith("y") and noun[-2] not in "aeou":
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}s"
