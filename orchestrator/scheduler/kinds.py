"""Properties of schedulers by their names in set.json and site files: no back end is loaded."""

from __future__ import annotations

from typing import NamedTuple

APPEARS_WITHIN_S = 210
"""After this time without a trace of the job, an answering scheduler's "no such job" counts. sbatch
may take SUBMIT_S; slurmctld takes a request within MessageTimeout (10 s by default, 100 s at
most) or drops it."""


class SchedulerKind(NamedTuple):
    runs_here: bool
    """Jobs are processes of this host."""
    allocates: bool
    """Jobs get nodes of a cluster, and can leave some out."""


KINDS = {
    "slurm": SchedulerKind(runs_here=False, allocates=True),
    "local": SchedulerKind(runs_here=True, allocates=False),
}
_UNKNOWN = SchedulerKind(runs_here=False, allocates=False)


def kind_of(name: str) -> SchedulerKind:
    """Return a scheduler's properties; both are False for an unknown scheduler."""
    return KINDS.get(name, _UNKNOWN)
