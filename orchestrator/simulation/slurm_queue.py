"""The queue of a simulated cluster: jobs that may start, and their nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from orchestrator.nodes.names import fold
from orchestrator.simulation.slurm_job import ON_NODES, SimJob
from orchestrator.simulation.slurm_node import SimNode

UNUSABLE = (
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
)


class JobQueue:
    def __init__(
        self, nodes: Mapping[str, SimNode], max_time_s: float | None, first_job_id: int
    ) -> None:
        self.jobs: dict[str, SimJob] = {}
        """Without forgotten jobs."""
        self.every_job: list[SimJob] = []
        self.next_id = first_job_id
        self.planned: Collection[str] = ()
        """Free nodes reserved for the first job of the queue."""
        self._nodes, self._max_time_s = nodes, max_time_s

    def add(self, job: SimJob, wall_ms: int) -> None:
        self.next_id = max(self.next_id, int(job.id)) + 1
        job.queue(wall_ms)
        self.jobs[job.id] = job
        self.every_job.append(job)

    def forget(self, job: SimJob) -> None:
        self.jobs.pop(job.id, None)

    def forget_ended(self) -> None:
        self.jobs = {name: job for name, job in self.jobs.items() if job.alive or job.completing}

    def startable(self, wall_ms: int) -> Iterator[tuple[SimJob, list[str]]]:
        """Yield jobs with their nodes; others wait behind the first without nodes."""
        self.planned, full = (), False
        queue = [job for job in self.jobs.values() if job.state == "PENDING" and not job.completing]
        for job in sorted(queue, key=lambda job: (-job.request.priority, int(job.id))):
            job.wait(self.obstacle(job, wall_ms) or ("Priority" if full else "None"))
            if job.reason == "None":
                nodes = self._pick(job)
                if nodes:
                    yield job, nodes
                else:
                    full, self.planned = True, self._free(job)
                    job.wait(self._shortage(job))

    def obstacle(self, job: SimJob, wall_ms: int) -> str:
        """Return why a job may not start even on free nodes, or ""."""
        if job.held:
            return job.held
        if job.request.nodes > len(self._nodes):
            return "PartitionNodeLimit"
        if self._max_time_s is not None and (job.request.time_limit_s or 0) > self._max_time_s:
            return "PartitionTimeLimit"
        if job.times.begin_ms > wall_ms:
            return "BeginTime"
        return self._unmet(job)

    def _unmet(self, job: SimJob) -> str:
        states = {self._dependency(*dependency) for dependency in job.request.dependency}
        return (
            "DependencyNeverSatisfied"
            if "never" in states
            else "Dependency"
            if "waits" in states
            else ""
        )

    def _dependency(self, kind: str, job_id: str) -> str:
        """Return "" (met), "waits", or "never". A forgotten job delays nobody."""
        other = self.jobs.get(job_id)
        if other is None or (kind == "after" and other.state != "PENDING"):
            return ""
        if other.alive or other.completing:
            return "waits"
        fits = {"afterok": other.state == "COMPLETED", "afternotok": other.state != "COMPLETED"}
        return "" if fits.get(kind, True) else "never"

    def usable(self, job: SimJob) -> list[str]:
        """Return its possible nodes, free or not, in cluster order."""
        return [name for name in self._nodes if name not in job.request.exclude]

    def _free(self, job: SimJob) -> list[str]:
        taken = {name for other in self.jobs.values() for name in held_by(other)}
        return [name for name in self.usable(job) if name not in taken and self._nodes[name].sound]

    def _pick(self, job: SimJob) -> list[str]:
        free, wanted = self._free(job), job.request.nodelist
        chosen = [*wanted, *(name for name in free if name not in wanted)][: job.request.nodes]
        enough = len(chosen) == job.request.nodes and set(chosen) <= set(free)
        return [name for name in self._nodes if name in chosen] if enough else []

    def _shortage(self, job: SimJob) -> str:
        bad = [name for name in job.request.nodelist if not self._nodes[name].sound]
        if bad:
            return f"ReqNodeNotAvail, UnavailableNodes:{fold(bad)}"
        sound = [name for name in self.usable(job) if self._nodes[name].sound]
        return "Resources" if len(sound) >= job.request.nodes else UNUSABLE

    def on(self, node: str) -> list[SimJob]:
        return [job for job in self.jobs.values() if node in held_by(job)]


def held_by(job: SimJob) -> Sequence[str]:
    return job.completing or (job.nodes if job.state in ON_NODES else ())
