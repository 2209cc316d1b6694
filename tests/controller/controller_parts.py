"""What the controller's tests share: the command line, waiting, and sets written as a loop would leave them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import outputs
import pytest
from processes import kill_all
from sites import write_system

from orchestrator.cli import main
from orchestrator.errors import SchedulerError, SchedulerUnknown
from orchestrator.evidence.sets import SubmissionRecord
from orchestrator.onnode.kernel.records import JobRecord, RunRecord, SetRecord, write
from orchestrator.onnode.kernel.world import World
from orchestrator.scheduler.job import Job, JobRequest
from orchestrator.scheduler.kinds import KINDS


class Hasty(World):
    """This machine, but every pause is over at once."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:  # type: ignore[override]
        self.pauses.append(seconds)


FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
"""scontrol, asked about a job that Slurm does not know."""


class Cluster:
    """A scheduler in memory that can lose its answers: `accepts` whether a job comes to be, `answer` what is said."""

    name = "slurm"
    runs_here, allocates = KINDS[name]

    def __init__(self, accepts: bool = True, answer: type[SchedulerError] | None = None) -> None:
        self.accepts = accepts
        self.answer = answer
        self.silent = False
        self.known: dict[str, Job] = {}
        self.submitted: list[JobRequest] = []

    def command(self, request: JobRequest) -> list[str]:
        return ["submit", str(request.script)]

    def submit(self, request: JobRequest) -> str:
        self.submitted.append(request)
        job_id = str(100 + len(self.submitted))
        if self.accepts:
            self.known[job_id] = Job(job_id, request.job_name, "PENDING")
        if self.answer:
            raise self.answer("an odd answer")
        return job_id

    def jobs(self, *, names: Iterable[str] = (), ids: Iterable[str] = ()) -> dict[str, Job]:
        if self.silent:
            raise SchedulerUnknown("no answer")
        wanted = {*names}, {*ids}
        return {
            key: job for key, job in self.known.items() if job.name in wanted[0] or key in wanted[1]
        }

    def job(self, job_id: str) -> Job | None:
        return self.jobs(ids=[job_id]).get(job_id)

    def cancel(self, job_id: str, grace_s: float) -> bool:
        return self.known.pop(job_id, None) is not None

    def cluster(self) -> str:
        return ""


@contextmanager
def put_back(copy: Path, place: Path) -> Iterator[None]:
    """A folder as its copy has it, for one test; whatever runs there is ended afterwards."""
    shutil.rmtree(place)
    shutil.copytree(copy, place, symlinks=True)
    try:
        yield
    finally:
        kill_all(place)


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Commands:
    """The command line, called in this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self.capfd = capfd
        self.code = 0
        self.out = ""
        self.err = ""

    def __call__(self, *argv: str | Path) -> Commands:
        self.capfd.readouterr()
        try:
            self.code = main([str(word) for word in argv])
        except SystemExit as exit_:  # argparse
            self.code = int(exit_.code or 0)
        self.out, self.err = self.capfd.readouterr()
        assert "Traceback" not in self.err
        return self

    def json(self, *argv: str | Path) -> Any:
        """The JSON that a successful command prints."""
        self(*argv, "--json")
        assert self.code == 0, self.err
        return outputs.checked(self.out)


def write_set(
    log_dir: Path,
    name: str,
    *,
    nexp: int = 3,
    scheduler: str = "slurm",
    done: int = 0,
    job: JobRecord | None = None,
    submission: SubmissionRecord | None = None,
    label: str = "",
) -> Path:
    """A set as a loop would leave it: `done` good runs of `nexp`."""
    root = log_dir / name
    for folder in ("submissions", "jobs", "results"):
        (root / folder).mkdir(parents=True)
    write(
        SetRecord(
            set_id=name,
            label=label,
            system="S",
            workload="w",
            nexp=nexp,
            job_name=f"orch-{name}",
            scheduler=scheduler,
            target=0.5,
            metric="eval_accuracy",
            nodes=1,
            gpus_per_node=8,
            engine="none",
        ),
        root / "set.json",
    )
    for run in range(1, nexp + 1):
        attempt = root / "runs" / str(run) / "attempt_1"
        if run <= done:
            attempt.mkdir(parents=True)
            good = RunRecord(
                run=run,
                attempt=1,
                state="success",
                outcome="success",
                start_ms=1_000,
                end_ms=61_000 + run,
                nodes=["n1"],
            )
            write(good, attempt / "state.json")
            write(good, attempt.parent / "state.json")
            log = mllog("run_start", 1_000, None) + mllog(
                "run_stop", 61_000 + 1_000 * run, None, status="success"
            )
            (attempt.parent / f"result_{run}.txt").write_text(log)
            (attempt / "node_0.log").write_text(log)
        else:
            attempt.parent.mkdir(parents=True)
            write(RunRecord(run=run, state="queued"), attempt.parent / "state.json")
    if job:
        write(job, root / "jobs" / f"{job.job_id}.json")
    if submission:
        write(submission, root / "submissions" / f"{submission.number}.json")
    return root


def mllog(key: str, time_ms: int, value: Any, **metadata: Any) -> str:
    record = {
        "namespace": "",
        "time_ms": time_ms,
        "event_type": "POINT_IN_TIME",
        "key": key,
        "value": value,
        "metadata": metadata,
    }
    return f":::MLLOG {json.dumps(record)}\n"


def one_node(folder: Path, site: Path) -> list[str | Path]:
    """Return the words of a set of one run, of a program that says at once that it ended well."""
    write_system(folder / "systems")
    (folder / "code").mkdir()
    log = mllog("run_start", 1, None) + mllog("run_stop", 2, None, status="success")
    (folder / "code/run_and_time.sh").write_text(f"cat <<'EOF'\n{log}EOF\n")
    with open(site, "a") as file:
        file.write(f"code: {{builtin: {folder}/code}}\n")
    return [
        "one_node",
        "builtin",
        "--site",
        site,
        "--nexp",
        "1",
        "--systems-dir",
        folder / "systems",
    ]
