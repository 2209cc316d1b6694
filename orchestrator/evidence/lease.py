"""The holder of a set, as seen by a reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from orchestrator.onnode.kernel.holder import Holder
from orchestrator.onnode.kernel.world import THIS, World
from orchestrator.onnode.policy.lease import HolderVerdict
from orchestrator.onnode.set.lease import look

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.evidence.sets import SubmissionRecord
    from orchestrator.scheduler.job import Job


def held_by(
    lock: Path, viewer: Holder, jobs: Mapping[str, Job], world: World = THIS
) -> tuple[Holder, HolderVerdict] | None:
    """Return the holder of a set's lock and its verdict, unless it is gone. `jobs` are the
    scheduler's."""
    try:
        held = look(lock, viewer, lambda job: job in jobs and jobs[job].alive, world=world)
    except OSError:
        return None
    return None if held is None or held[1].gone else held


def submitter(asked: SubmissionRecord) -> Holder:
    kinds = {item.name: int if item.type == "int" else str for item in fields(Holder)}
    known: dict[str, Any] = {
        name: value for name, value in asked.by.items() if type(value) is kinds.get(name)
    }
    return Holder(**{**known, "job": asked.job_id})
