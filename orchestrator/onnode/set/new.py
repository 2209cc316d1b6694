"""A new set's name, seed and record, for controller and jobs."""

from __future__ import annotations

from typing import Any

from ..kernel.records import SetRecord
from ..kernel.world import THIS, World, stamp

SEED_LIMIT = 1 << 31
"""Some code keeps seeds in a signed 32-bit integer."""
SEEDS_PER_RUN = 1000
"""MAX_ATTEMPTS is at most 999: a run's seeds end before the next run's."""


def seed_of(root: int, run: int, attempt: int) -> int:
    """Run and attempt count from 1."""
    return root + SEEDS_PER_RUN * (run - 1) + attempt


def largest_root(nexp: int) -> int:
    """Return the largest root seed for `nexp` runs (at most 9,999: settings.py)."""
    return SEED_LIMIT - seed_of(0, nexp, SEEDS_PER_RUN - 1) - 1


def draw_root(nexp: int, world: World = THIS) -> int:
    """The modulus favours no value by more than 2^-33."""
    return int(world.token(), 16) % largest_root(nexp) + 1


def new_set_id(system: str, workload: str, world: World = THIS) -> str:
    """Return `<system>-<workload>-<UTC time>-<4 hex digits>`."""
    made = stamp(world.wall_ms(), "%Y%m%d-%H%M%S", utc=True)
    return f"{system}-{workload}-{made}-{world.token(2)}"


def new_set(
    set_id: str, nexp: int, *, root_seed: int = 0, world: World = THIS, **about: Any
) -> SetRecord:
    """`root_seed` 0: draw. `about`: other members of SetRecord."""
    return SetRecord(
        set_id=set_id,
        nexp=nexp,
        root_seed=root_seed or draw_root(nexp, world),
        created_ms=world.wall_ms(),
        job_name=f"orch-{set_id}",
        **about,
    )
