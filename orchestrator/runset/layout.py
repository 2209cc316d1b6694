"""Where things are in a set folder. Paths only; nothing here reads or writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one set. `root` is the set folder."""

    root: Path

    @property
    def set_file(self) -> Path:
        return self.root / "set.json"

    @property
    def bundle(self) -> Path:
        return self.root / "bundle"

    @property
    def submissions(self) -> Path:
        return self.root / "submissions"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def lock(self) -> Path:
        return self.root / ".controller.lock"

    def submission(self, number: int) -> Path:
        return self.submissions / f"{number}.json"

    def job(self, job_id: str) -> Path:
        return self.jobs / f"{job_id}.json"

    def job_output(self, job_id: str) -> Path:
        """What the job printed; `%j` for all jobs, as sbatch --output wants it."""
        return self.root / f"job_{job_id}.out"

    def run(self, run: int) -> Path:
        return self.root / "runs" / str(run)

    def run_state(self, run: int) -> Path:
        return self.run(run) / "state.json"

    def attempt(self, run: int, attempt: int) -> Path:
        return self.run(run) / f"attempt_{attempt}"

    def node_log(self, run: int, attempt: int, rank: int) -> Path:
        return self.attempt(run, attempt) / f"node_{rank}.log"

    def result(self, run: int) -> Path:
        return self.run(run) / f"result_{run}.txt"
