"""What Slurm's own words on standard error mean for the nodes of a step: as 22.05 writes them, from a script in its place."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from policy_parts import settings

from orchestrator.onnode.kernel.events import EventLog
from orchestrator.onnode.kernel.flow import Flow
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.loop.context import JobContext
from orchestrator.onnode.loop.group import Group
from orchestrator.onnode.loop.host import BatchHost
from orchestrator.onnode.loop.slurm import SlurmNodes

NODES = ["n1", "n2", "n3"]
UNREACHABLE = """srun: error: Task launch for StepId=4.1 failed on node n2: Communication connection failure
srun: error: Application launch failed: Communication connection failure
slurmstepd-n1: error: *** STEP 4.1 ON n1 CANCELLED AT 2026-11-22T03:24:34 ***
srun: error: n1: task 0: Killed"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with `scontrol`, and room for `srun`, before everything else on PATH; signals are put back afterwards."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    program(tmp_path / "scontrol", f"printf '%s\\n' {' '.join(NODES)}")
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
    before, wakeup = (
        {number: signal.getsignal(number) for number in numbers},
        signal.set_wakeup_fd(-1),
    )
    yield tmp_path
    signal.set_wakeup_fd(wakeup)
    for number, handler in before.items():
        signal.signal(number, handler)


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def failed(
    place: Path, words: str, *, over: bool, seconds: float = 20
) -> dict[str, tuple[str, str]]:
    """Have srun say `words`, and end if it is `over`; return the nodes that failed by then."""
    program(
        place / "srun", f"cat >&2 <<'END'\n{words}\nEND\n{'exit 1' if over else 'exec sleep 60'}"
    )
    world = BatchHost()
    world.environment |= {"SLURM_JOB_ID": "4", "SLURM_JOB_NODELIST": "n[1-3]"}
    work = JobContext(
        place, settings(nnodes=3, container_start_s=60, preflight_run=0), Layout(place), world
    )
    work.scheduler, work.job_id = SlurmNodes(world.environment, world), "4"
    work.events = EventLog(place / "events-4.tsv")
    (place / "nodes").mkdir()
    group = Group(work, NODES)
    group.record.note("hold", detail={"generation": 1, "nodes": NODES})

    def flow() -> Flow:
        group.step.start(NODES, ["true"], {})
        heard, until = group.wait_for("waits", NODES), time.monotonic() + seconds
        for at in heard:
            if group.cluster.failed or time.monotonic() > until:
                break
            yield min(at, until)

    world.run(flow())
    assert group.step.process is not None
    group.step.process.kill()
    return group.cluster.failed


def test_a_node_whose_process_was_killed(place: Path) -> None:
    words = "srun: error: n2: task 1: Killed"
    assert failed(place, words, over=False) == {"n2": ("silent", f"its step ended: {words}")}


@pytest.mark.parametrize("behind", [False, True])
def test_a_node_without_the_interpreter(place: Path, behind: bool) -> None:
    words = [
        "slurmstepd-n2: error: execve(): python3: No such file or directory",
        "srun: error: n2: task 1: Exited with exit code 2",
    ]
    assert failed(place, "\n".join(reversed(words) if behind else words), over=False)["n2"][1] == (
        "cannot start python3: No such file or directory; install python3 (3.9 or newer) there, or name another interpreter "
        "(`python:` in the site file, PYTHON=... for this bundle)"
    )


@pytest.mark.parametrize("stepd", ["slurmstepd-n2", "slurmstepd"])
def test_a_label_names_the_node_that_has_no_interpreter(place: Path, stepd: str) -> None:
    """slurmstepd's own words come with the label of a task; its name has the node's only where one host has several slurmd."""
    words = f"1: {stepd}: error: execve(): python3: No such file or directory"
    assert (
        "cannot start python3: No such file or directory"
        in failed(place, words, over=False)["n2"][1]
    )


def test_the_words_of_a_node_end_no_other_node(place: Path) -> None:
    words = "0: srun: error: n2: task 1: Killed\n0: slurmstepd-n2: error: *** STEP 4.1 ON n2 CANCELLED, error on node n2"
    assert failed(place, words, over=False, seconds=1) == {}


def test_a_node_whose_interpreter_is_too_old(place: Path) -> None:
    words = "orchestrator: /usr/bin/python3 on n3.cluster is Python 3.6; the bundle needs 3.9 or newer: install python3, or name ..."
    assert failed(
        place, f"{words}\nsrun: error: n3: task 2: Exited with exit code 1", over=False
    ) == {"n3": ("silent", words)}


def test_several_at_once(place: Path) -> None:
    assert set(failed(place, "srun: error: n[1-3]: tasks 0-2: Killed", over=False)) == set(NODES)


@pytest.mark.parametrize("over", [True, False])
def test_one_that_cannot_be_reached_takes_nobody_along(place: Path, over: bool) -> None:
    assert failed(place, UNREACHABLE, over=over) == {
        "n2": ("silent", f"its step ended: {UNREACHABLE.splitlines()[0]}")
    }


@pytest.mark.parametrize(
    "words",
    ["srun: error: Node failure on n2", "srun: error: n9: task 1: Killed", "n2 is as well as n1"],
)
def test_words_that_are_no_end(place: Path, words: str) -> None:
    """A slurmd that does not answer is no dead node: who is dead does not answer a ping."""
    assert failed(place, words, over=False, seconds=1) == {}
