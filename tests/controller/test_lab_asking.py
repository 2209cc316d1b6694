"""What a real Slurm counts of our questions: `sdiag` says how many of them its controller has answered."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from controller_parts import Clock, Commands, write_set
from until import LIMIT_S, until

from orchestrator.evidence.asking import HOUR_S
from orchestrator.evidence.sets import SubmissionRecord
from orchestrator.evidence.watch import WatchAll
from orchestrator.onnode.kernel.records import JobRecord
from orchestrator.scheduler.command import ask

pytestmark = pytest.mark.lab

SETS, JOBS = 1000, 200


def asked() -> int:
    """How many questions about jobs the controller has answered."""

    def answer() -> str:
        reply = ask(["sdiag"], timeout_s=LIMIT_S)
        return reply.stdout if reply.returncode == 0 else ""

    counts = re.findall(r"REQUEST_JOB\w*_INFO\w*\s+\( *\d+\) count:(\d+)", until(answer))
    return sum(map(int, counts))


@pytest.fixture
def held(shared: Path) -> Iterator[Callable[[int], None]]:
    """Makes so many sets whose jobs wait for somebody to release them."""
    jobs: list[str] = []

    def make(count: int) -> None:
        names = [f"s{k}-w-20261121-101500-{k:04x}" for k in range(count)]
        sbatch = "for name; do sbatch --parsable --hold --job-name=orch-$name --output=/dev/null --wrap=true; done"
        done = subprocess.run(
            ["bash", "-c", sbatch, "sbatch", *names], stdout=subprocess.PIPE, text=True, check=True
        )
        jobs.extend(done.stdout.split())
        for name, job in zip(names, jobs, strict=True):
            sent = SubmissionRecord(
                number=1, job_name=f"orch-{name}", state="submitted", job_id=job, requested_ms=1_000
            )
            write_set(shared, name, nexp=1, submission=sent)

    yield make
    subprocess.run(["scancel", *jobs], check=True)


def test_an_hour_of_watch_is_at_most_sixty_questions(
    shared: Path, held: Callable[[int], None]
) -> None:
    """The hour passes quickly, Slurm and what it counts are real."""
    held(3)
    clock, before = Clock(), asked()
    watched, end = WatchAll(shared, 5.0, clock), clock.now + HOUR_S
    while clock.now < end:
        assert {picture.state for picture in watched.look()} == {"held"}
        clock.now += 5.0
    assert 20 < asked() - before <= 60


@pytest.mark.long
def test_one_question_for_a_thousand_sets_and_two_hundred_jobs(
    shared: Path, held: Callable[[int], None], cli: Commands, lab_site: Path
) -> None:
    over = JobRecord(job_id="1", state="complete", started_ms=1_000, ended_ms=61_000)
    for k in range(JOBS, SETS):
        write_set(shared, f"s{k}-w-20261121-101500-{k:04x}", nexp=1, done=1, job=over)
    held(JOBS)
    before = asked()
    shown = cli.json("status", "--site", lab_site)["sets"]
    assert asked() - before == 1
    states = [row["state"] for row in shown]
    assert states.count("held") == JOBS and set(states) == {"held", "complete"}
