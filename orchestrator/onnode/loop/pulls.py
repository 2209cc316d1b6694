"""The nodes of a group pull the image, no more of them at the same time than the registry bears."""

from __future__ import annotations

from ..policy.place import lacking, next_to_pull
from .context import JobContext
from .record import GroupRecord
from .step import GroupStep

PULL_GRACE_S = 60.0


class Pulls:
    """The pulls of one group of nodes; all groups of a job share the limit."""

    def __init__(self, job: JobContext, record: GroupRecord, step: GroupStep, group: int) -> None:
        self._job, self._record, self._step, self._group = job, record, step, group
        self._due: dict[str, float] = {}
        """Nodes that pull the image -> when that must be over (World.now)."""

    def begin(self) -> None:
        """Forget the step before."""
        self._due = {}

    def go_on(self) -> bool:
        """Let the next nodes pull the image; whether one still has to get it."""
        job, cluster = self._job, self._record.cluster
        others = sum(count for group, count in job.pulls.items() if group != self._group)
        at_once = job.settings.pull_at_once - others
        for node in next_to_pull(cluster, at_once):
            self._start(node, at_once)
        left = lacking(cluster)
        for node in left:
            if job.world.now() >= self._due.get(node, float("inf")):
                words = f"its pull did not end within {job.settings.pull_minutes} minutes"
                self._record.fail(node, "image", words)
        left = lacking(cluster)
        job.pulls[self._group] = sum(node in cluster.pulling for node in left)
        return bool(left)

    def _start(self, node: str, at_once: int) -> None:
        job = self._job
        self._record.note("pull", node, str(at_once))
        self._step.send({"do": "pull", "nodes": [node]})
        self._due[node] = job.world.now() + 60 * job.settings.pull_minutes + PULL_GRACE_S
        job.log(f"node {node} pulls the image {job.settings.cont}")

    def end(self) -> None:
        """Leave the registry to the other groups."""
        self._job.pulls.pop(self._group, None)
