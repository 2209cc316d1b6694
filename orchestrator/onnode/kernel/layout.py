"""Paths in a set's folder (docs/set-folder.md)."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

CONTENT_PARTS = ("packages", "libraries", "code", "caches")
"""The parts of a container's content (agent/contents.py)."""


def group_name(job_id: str, number: int) -> str:
    """Return the name of a group's files; the first group has the job's."""
    return job_id if number == 1 else f"{job_id}.{number}"


class Layout:
    """`root`: the set's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def set_file(self) -> Path:
        return self.root / "set.json"

    @cached_property
    def bundle(self) -> Path:
        return self.root / "bundle"

    @cached_property
    def program(self) -> Path:
        """Archives of the bundle for jobs, named after their hash."""
        return self.root / "program"

    @cached_property
    def submissions(self) -> Path:
        return self.root / "submissions"

    @cached_property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @cached_property
    def runs(self) -> Path:
        return self.root / "runs"

    @cached_property
    def results(self) -> Path:
        return self.root / "results"

    @cached_property
    def nodes(self) -> Path:
        return self.root / "nodes"

    @cached_property
    def preflight(self) -> Path:
        return self.root / "preflight"

    @cached_property
    def environment(self) -> Path:
        """The runs' evaluated environment as `declare -x` lines."""
        return self.root / "environment.sh"

    @cached_property
    def lock(self) -> Path:
        """Held by a submitting controller."""
        return self.root / ".controller.lock"

    @cached_property
    def loop_lock(self) -> Path:
        """The job that works on the set."""
        return self.root / "loop.lock"

    def submission(self, number: int) -> Path:
        return self.submissions / f"{number}.json"

    def job(self, job_id: str) -> Path:
        return self.jobs / f"{job_id}.json"

    def job_environment(self, job_id: str, restart: int = 0) -> Path:
        """A job's evaluated environment, compressed; again for each restart."""
        suffix = f"-{restart}" if restart else ""
        return self.jobs / f"{job_id}{suffix}.env.gz"

    def events(self, job_id: str) -> Path:
        return self.root / f"events-{job_id}.tsv"

    def checks(self, job_id: str) -> Path:
        return self.preflight / f"{job_id}.tsv"

    def bandwidth(self, job_id: str) -> Path:
        return self.preflight / f"deep-{job_id}.tsv"

    def job_output(self, job_id: str) -> Path:
        """With `%j` the pattern for sbatch --output."""
        return self.root / f"job_{job_id}.out"

    def node(self, node: str) -> Path:
        """A node's files: hold.log, tunables.tsv, network.json, hardware.json, scratch/."""
        return self.nodes / node

    def shared(self, group: str) -> Path:
        """Shared by a group's containers while they run."""
        return self.root / "shared" / group

    def run(self, run: int) -> Path:
        return self.runs / str(run)

    def run_state(self, run: int) -> Path:
        return self.run(run) / "state.json"

    def result(self, run: int) -> Path:
        return self.run(run) / f"result_{run}.txt"

    def result_link(self, run: int) -> Path:
        return self.results / f"result_{run}.txt"

    def attempt(self, run: int, attempt: int) -> Path:
        return self.run(run) / f"attempt_{attempt}"

    def attempt_state(self, run: int, attempt: int) -> Path:
        return self.attempt(run, attempt) / "state.json"

    def start_table(self, run: int, attempt: int) -> Path:
        return self.attempt(run, attempt) / "start.tsv"

    def cache_log(self, run: int, attempt: int) -> Path:
        """The MLLOG event of the dropped caches, first in the result."""
        return self.attempt(run, attempt) / "cache_clear.log"

    def node_log(self, run: int, attempt: int, rank: int) -> Path:
        return self.attempt(run, attempt) / f"node_{rank}.log"

    def node_state(self, run: int, attempt: int, rank: int) -> Path:
        return self.attempt(run, attempt) / f"node_{rank}.json"

    def hang(self, run: int, attempt: int, node: str) -> Path:
        return self.attempt(run, attempt) / "hang" / f"{node}.txt"

    def inside(self, part: str, sha: str) -> Path:
        """A part of containers' content, for all nodes and runs with it."""
        return self.root / "inside" / f"{part}-{sha}.tsv"

    def node_files(self, run: int, attempt: int, node: str) -> Path:
        return self.attempt(run, attempt) / "files" / node
