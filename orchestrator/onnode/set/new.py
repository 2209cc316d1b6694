"""A new set, for controller and jobs: its name, seed and record, and who may write in it, its owner
or the site's group (docs/howto/several-people.md)."""

from __future__ import annotations

import grp
import os
from pathlib import Path
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


# ---- write permission ----


def umask_for(group: str, before: int) -> int:
    """Return the umask in a set. Whatever a group can change, it can execute."""
    return before & 0o005 | 0o002 if group else before | 0o022


def give(folder: Path, group: str) -> None:
    """Give a new folder and its content to a group. Raises LookupError for an unknown group,
    OSError (EPERM) for non-members."""
    os.chown(folder, -1, _group_id(group))
    folder.chmod(folder.stat().st_mode & 0o005 | 0o2770)


def show(folder: Path, group: str) -> None:
    """Let a group read a folder and its content. Raises like `give`."""
    number = _group_id(group)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, -1, number, follow_symlinks=False)
        if not path.is_symlink():
            mode = path.stat().st_mode & 0o755
            path.chmod(mode | (0o050 if mode & 0o100 else 0o040))


def show_like(path: Path, folder: Path, mode: int) -> None:
    """Give a new path its owner's `mode`, and the readers of `folder`. Raises OSError."""
    readers = folder.stat()
    os.chown(path, -1, readers.st_gid)
    path.chmod(mode | mode >> 3 & readers.st_mode & 0o050 | mode >> 6 & readers.st_mode & 0o005)


def _group_id(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise LookupError(f"there is no group {group} on {os.uname().nodename}") from error
