"""Sets that were run, as a reader of their folders sees them (docs/set-folder.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import processes_of

from orchestrator.evidence.events import read_events
from orchestrator.onnode.kernel.events import Event


@dataclass(frozen=True)
class Set:
    """A set folder, as a reader sees it."""

    root: Path

    def json(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.root / name).read_bytes()))

    def run(self, run: int) -> dict[str, Any]:
        return self.json(f"runs/{run}/state.json")

    def attempt(self, run: int, attempt: int) -> dict[str, Any]:
        return self.json(f"runs/{run}/attempt_{attempt}/state.json")

    def attempts(self, run: int) -> list[int]:
        return sorted(
            int(path.name.removeprefix("attempt_"))
            for path in (self.root / f"runs/{run}").glob("attempt_*")
        )

    def outcomes(self, run: int) -> list[str]:
        """The outcome of every attempt of a run, in order."""
        return [self.attempt(run, attempt)["outcome"] for attempt in self.attempts(run)]

    def log(self, run: int, attempt: int = 1, rank: int = 0) -> bytes:
        return (self.root / f"runs/{run}/attempt_{attempt}/node_{rank}.log").read_bytes()

    def jobs(self) -> list[dict[str, Any]]:
        jobs = [dict(json.loads(path.read_bytes())) for path in (self.root / "jobs").glob("*.json")]
        return sorted(jobs, key=lambda job: job["started_ms"])

    @property
    def job(self) -> dict[str, Any]:
        return self.jobs()[-1]

    def result_files(self) -> list[Path]:
        """The published results, in the order of the runs."""
        return sorted(
            (self.root / "results").iterdir(),
            key=lambda path: int(path.stem.removeprefix("result_")),
        )

    def results(self) -> list[int]:
        """The runs with a published result, which must be the log of a node in the attempt that counts."""
        runs = [int(path.stem.removeprefix("result_")) for path in self.result_files()]
        for run, path in zip(runs, self.result_files(), strict=True):
            state = self.run(run)
            logs = [self.log(run, state["attempt"], rank) for rank in range(len(state["nodes"]))]
            assert any(log and path.read_bytes().endswith(log) for log in logs), (
                f"{path} is no log of its attempt"
            )
        return runs

    def excluded(self) -> list[tuple[str, int]]:
        """Return the excluded nodes of the last job, each with the run in which it was excluded (0: before any)."""
        return [(entry["node"], entry["run"]) for entry in self.job["set_aside"]]

    def events(self, word: str, job: int = 0, group: int = 1) -> list[Event]:
        """Return the events with `word` of a job, the first one by default."""
        name = self.jobs()[job]["job_id"] + ("" if group == 1 else f".{group}")
        return [
            event for event in read_events(self.root / f"events-{name}.tsv") if event.word == word
        ]

    def temporary(self) -> list[str]:
        """Return temporary and lock files."""
        paths = self.root.rglob("*")
        return [
            str(path) for path in paths if path.name.startswith(".") or path.name == "loop.lock"
        ]

    def left_behind(self) -> list[str]:
        """Return temporary and lock files, and processes: nothing of it may outlive the loop."""
        return self.temporary() + list(processes_of(self.root.parent.parent).values())
