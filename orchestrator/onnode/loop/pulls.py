"""Image pulls of a group's nodes, a limited number at a time."""

from __future__ import annotations

from ..policy.place import lacking, next_to_pull
from .context import JobContext
from .record import GroupRecord
from .step import GroupStep

PULL_GRACE_S = 60.0
"""A node ends its pull itself at the limit; after this time it counts as failed."""


class Pulls:
    """The pulls of one group; all groups of a job share the limit."""

    def __init__(self, job: JobContext, record: GroupRecord, step: GroupStep, group: int) -> None:
        self._job, self._record, self._step, self._group = job, record, step, group
        self._deadlines: dict[str, float] = {}
        """Node that pulls the image -> when that must be over (World.now)."""

    def begin(self) -> None:
        """Start with a new step."""
        self._deadlines = {}

    def advance(self) -> bool:
        """Let the next nodes pull the image; return whether any still has to get it."""
        job, cluster = self._job, self._record.cluster
        others = sum(count for group, count in job.pulls.items() if group != self._group)
        at_once = job.settings.pull_at_once - others
        for node in next_to_pull(cluster, at_once):
            self._start(node, at_once)
        for node in lacking(cluster):
            if job.world.now() >= self._deadlines.get(node, float("inf")):
                reason = f"its pull did not end within {job.settings.pull_minutes} minutes"
                self._record.fail(node, "image", reason)
        remaining = lacking(cluster)
        job.pulls[self._group] = sum(node in cluster.pulling for node in remaining)
        return bool(remaining)

    def _start(self, node: str, at_once: int) -> None:
        job = self._job
        self._record.note("pull", node, str(at_once))
        self._step.send({"do": "pull", "nodes": [node]})
        limit_s = 60 * job.settings.pull_minutes
        self._deadlines[node] = job.world.now() + limit_s + PULL_GRACE_S
        job.log(f"node {node} pulls the image {job.settings.cont}")

    def end(self) -> None:
        """Leave the registry to the other groups."""
        self._job.pulls.pop(self._group, None)
