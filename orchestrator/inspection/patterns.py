"""Regular expressions of scripts, as far as they end soon."""

from __future__ import annotations

import re
from functools import cache
from math import comb, prod

MOST_WAYS = 10_000_000
"""To match: about a second."""
_REPEATED = re.compile(r"[+*{]")
_REPEATED_GROUP = re.compile(r"\)[+*{]")


@cache
def search(pattern: str, text: str) -> bool | None:
    """Return whether a text matches; None if unknown, or if the search may take too long."""
    if len(text) > 4096 or len(pattern) > 256 or _ways(pattern, len(text)) > MOST_WAYS:
        return None
    try:
        return re.search(pattern, text) is not None
    except (re.error, OverflowError, RecursionError):
        return None


def _ways(pattern: str, length: int) -> int:
    """Return at least the number of ways in which a pattern can divide a text."""
    repeated = len(_REPEATED.findall(pattern))
    optional = pattern.count("?")
    if _REPEATED_GROUP.search(pattern):
        longest = max(length, *map(int, re.findall("[{,]([0-9]+)", pattern)), 0)
        return int((1 + repeated + optional + pattern.count("|")) ** min(longest, 64))
    choices = prod(1 + part.count("|") for part in pattern.split("(")[1:])
    return comb(length + repeated + 1, repeated + 1) * choices << optional
