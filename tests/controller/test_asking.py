"""At most 60 questions to Slurm within any hour, however many sets are watched and whatever happens to them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from controller_parts import Clock, write_set

from orchestrator.evidence.asking import FIRST_S, HOUR_S, QUICK, STEADY_S, Asking, pause_s
from orchestrator.evidence.sets import SubmissionRecord, open_set
from orchestrator.evidence.watch import Watch, WatchAll
from orchestrator.onnode.kernel.records import JobRecord, write
from orchestrator.scheduler.slurm import FIELD, Slurm

Fake = Callable[[str, str], Path]


def most_within_an_hour(times: list[float]) -> int:
    return max(sum(first <= time < first + HOUR_S for time in times) for first in times)


def test_pauses() -> None:
    assert pause_s(1, 1) == FIRST_S and pause_s(2, 2) == 1.5 * FIRST_S
    assert pause_s(15, 15) == STEADY_S and pause_s(QUICK, 0) == STEADY_S
    assert QUICK + HOUR_S / STEADY_S <= 60


@pytest.mark.parametrize("changes", [0.0, 0.01, 0.5, 1.0])
def test_never_more_than_sixty_within_an_hour(changes: float) -> None:
    """`changes`: how likely something changes at each of the looks, one a second for four hours."""
    clock, dice, times = Clock(), random.Random(7), list[float]()
    asking = Asking(clock)
    for _ in range(4 * 3600):
        clock.now += 1
        if dice.random() < changes:
            asking.changed()
        if asking.due:
            asking.asked()
            times.append(clock.now)
    assert len(times) > 4 * 3600 / STEADY_S / 1.3 and most_within_an_hour(times) <= 60


def jobs_in(tmp_path: Path, count: int) -> list[Path]:
    """Sets with a job of which nothing is heard: Slurm alone knows."""
    own = JobRecord(state="running", run=1, attempt=1, started_ms=2_000)
    roots = []
    for k in range(count):
        job = JobRecord(**{**vars(own), "job_id": str(100 + k)})
        sent = SubmissionRecord(number=1, state="submitted", job_id=job.job_id, requested_ms=1_000)
        roots.append(
            write_set(
                tmp_path / "sets",
                f"s{k}-w-20261121-101500-{k:04x}",
                nexp=1,
                submission=sent,
                job=job,
            )
        )
    return roots


def shown(fake: Fake, roots: list[Path]) -> Path:
    """Have squeue show the job of each set as running; the log of its calls."""
    rows = [
        f"{100 + k}{FIELD}RUNNING{FIELD}N/A{FIELD}N/A{FIELD}{FIELD}None{FIELD}orch-{root.name}"
        for k, root in enumerate(roots)
    ]
    fake("scontrol", "exit 1")
    return fake(
        "squeue", "printf '%s\\n' " + " ".join(f"'{FIELD}MARK{FIELD}{row}'" for row in rows)
    )


@pytest.mark.parametrize(
    ("count", "interval_s"), [(1, 5.0), pytest.param(30, 60.0, marks=pytest.mark.long)]
)
def test_an_hour_of_watch_all(tmp_path: Path, fake: Fake, count: int, interval_s: float) -> None:
    roots = jobs_in(tmp_path, count)
    calls, clock = shown(fake, roots), Clock()
    watched, end = WatchAll(tmp_path / "sets", interval_s, clock), clock.now + HOUR_S
    while clock.now < end:
        assert {picture.state for picture in watched.look()} == {"running"}
        clock.now += interval_s
        if clock.now == 1000 + 10 * interval_s:  # one is resumed meanwhile
            path = roots[0] / "jobs/100.json"
            write(
                JobRecord(job_id="100", state="running", started_ms=2_000, run=1, attempt=2), path
            )
    asked = calls.read_text().split("--noheader")[1:]  # separators of records end a line, too
    assert 20 < len(asked) <= 60
    assert all(line.count("orch-") == count for line in asked)  # one question is about all of them


def test_an_hour_of_watch(tmp_path: Path, fake: Fake) -> None:
    [root] = jobs_in(tmp_path, 1)
    calls, clock = shown(fake, [root]), Clock()
    looks = Watch(open_set(root), Slurm(), None, Asking(clock)).pictures(
        lambda seconds: wait(clock, seconds)
    )
    for pictures in looks:
        assert pictures.state == "running"
        if clock.now > 1000 + HOUR_S:
            break
    assert 20 < calls.read_text().count("--noheader") <= 60


def wait(clock: Clock, seconds: float) -> None:
    clock.now += max(seconds, 2.0)
