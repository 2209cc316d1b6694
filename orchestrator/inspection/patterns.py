"""Patterns of the shell."""

from __future__ import annotations

import fnmatch


def cut(value: str, operator: str, pattern: str) -> str:
    """Return a value after ${NAME%pattern}, %%, # or ##."""
    lengths = range(len(value) + 1)
    longest = len(operator) == 2
    if operator.startswith("%"):
        ends = [at for at in lengths if fnmatch.fnmatchcase(value[at:], pattern)]
        return value[: min(ends) if longest else max(ends)] if ends else value
    begins = [at for at in lengths if fnmatch.fnmatchcase(value[:at], pattern)]
    return value[max(begins) if longest else min(begins) :] if begins else value
