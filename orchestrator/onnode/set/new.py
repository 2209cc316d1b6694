"""A new set: its name, its seed, its record. Controller and jobs create every set with this."""

from __future__ import annotations

from typing import Any

from ..kernel.records import SetRecord
from ..kernel.world import THIS, World, stamp
from .seeds import draw_root


def new_set_id(system: str, workload: str, world: World = THIS) -> str:
    """Return `<system>-<workload>-<UTC time>-<4 hex digits>`."""
    made = stamp(world.wall_ms(), "%Y%m%d-%H%M%S", utc=True)
    return f"{system}-{workload}-{made}-{world.token(2)}"


def new_set(
    set_id: str, nexp: int, *, root_seed: int = 0, world: World = THIS, **about: Any
) -> SetRecord:
    """Return the record of a new set of `nexp` runs.

    `root_seed` 0: draw one. `about`: the other members of SetRecord.
    """
    return SetRecord(
        set_id=set_id,
        nexp=nexp,
        root_seed=root_seed or draw_root(nexp, world),
        created_ms=world.wall_ms(),
        job_name=f"orch-{set_id}",
        **about,
    )
