"""The seeds of a set: each attempt of each run has its own, and all stay below 2^31."""

from __future__ import annotations

from ..kernel.world import THIS, World

LIMIT = 1 << 31
"""NumPy and torch take larger seeds, but code that keeps them in a signed 32-bit integer does
not."""
PER_RUN = 1000
"""MAX_ATTEMPTS of settings.sh is at most 999, so attempts 1 to 999 of a run end before the seeds
of the next run."""


def seed_of(root: int, run: int, attempt: int) -> int:
    """Return the seed of an attempt (run and attempt count from 1). Two sets differ by their
    root."""
    return root + PER_RUN * (run - 1) + attempt


def largest_root(nexp: int) -> int:
    """Return the largest root whose seeds stay below LIMIT in a set of `nexp` runs (at most
    9,999: settings.py)."""
    return LIMIT - seed_of(0, nexp, PER_RUN - 1) - 1


def draw_root(nexp: int, world: World = THIS) -> int:
    """Return a random root from 1 to `largest_root(nexp)`. (The modulus favours no value by more
    than 2^-33.)"""
    return int(world.token(), 16) % largest_root(nexp) + 1
