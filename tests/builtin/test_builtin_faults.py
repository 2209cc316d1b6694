"""Faults on request do what the README says, and only where they are meant."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import kill_all
from until import LIMIT_S, until

RANKS = {"BUILTIN_RANKS_PER_NODE": "2", "ORCH_RUN": "3", "ORCH_ATTEMPT": "1"}


@pytest.mark.parametrize(
    "fault", ["die:run=2", "die:attempt=2", "die:node=1", "hang:run=6:attempt=1,kill:run=4"]
)
def test_a_fault_for_somebody_else_does_nothing(run: Callable, fault: str) -> None:
    assert run(1, BUILTIN_FAULT=fault, BUILTIN_MAX_SAMPLES="512", **RANKS).codes == [0]


@pytest.mark.parametrize(("fault", "code"), [("die:run=3:attempt=1:node=0", 9), ("kill:run=3", -9)])
def test_dying_half_way(run: Callable, fault: str, code: int) -> None:
    ended = run(1, BUILTIN_FAULT=fault, **RANKS)
    assert ended.codes == [code]
    assert len(ended.of("eval_accuracy")) > 2 and not ended.of("run_stop")


def test_dying_before_the_start(run: Callable) -> None:
    ended = run(1, BUILTIN_FAULT="die:at=init", **RANKS)
    assert ended.codes == [9] and not ended.of("run_start")


def test_nan_ends_the_run_on_all_nodes(run: Callable) -> None:
    ended = run(2, BUILTIN_FAULT="nan:run=3:node=1:at=0.4", **RANKS)
    assert (ended.codes, ended.status) == ([0, 0], "aborted")
    assert math.isnan(ended.losses[-1]) and ended.losses[0] > 0


def test_abort(run: Callable) -> None:
    ended = run(1, BUILTIN_FAULT="abort:at=0.2", **RANKS)
    assert (ended.codes, ended.status) == ([0], "aborted")
    assert 0 < len(ended.losses) < 10


def test_abort_on_one_node_is_an_abort_of_the_run(run: Callable) -> None:
    ended = run(2, BUILTIN_FAULT="abort:at=0.2", **RANKS)
    assert (ended.codes, ended.status) == ([0, 0], "aborted")


def test_late_exit(run: Callable) -> None:
    ended = run(1, BUILTIN_FAULT="late-exit:run=3", **RANKS)
    assert (ended.codes, ended.status) == ([1], "success")


def test_slow(run: Callable) -> None:
    quick, slow = [
        run(1, BUILTIN_FAULT=fault, BUILTIN_MAX_SAMPLES="512", **RANKS)
        for fault in ("", "slow:at=0:ms=10")
    ]
    spans = [
        e.of("run_stop")[0]["time_ms"] - e.of("run_start")[0]["time_ms"] for e in (quick, slow)
    ]
    assert spans[1] >= 10 * 32
    assert slow.losses == quick.losses


@pytest.mark.parametrize("deaf", [False, True])
def test_hang(launcher, deaf: bool) -> None:
    process = launcher.start(
        0, 1, launcher.port(), BUILTIN_FAULT="hang:at=0.1" + (":deaf=1" if deaf else ""), **RANKS
    )
    for line in process.stdout:
        if '"eval_accuracy"' in line:
            break
    if deaf:
        until(lambda: ignored(process.pid) & 1 << signal.SIGTERM - 1)
    process.terminate()
    if deaf:
        process.kill()
    assert process.wait(LIMIT_S) == (-signal.SIGKILL if deaf else -signal.SIGTERM)


def ignored(pid: int) -> int:
    """Return the signals that a process ignores, as bits."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("SigIgn:")), 16)


def test_leak_leaves_a_child_that_holds_the_output_open(launcher) -> None:
    port = launcher.port()
    process = launcher.start(0, 1, port, BUILTIN_FAULT="leak:seconds=10000:session=1", **RANKS)
    assert process.wait(LIMIT_S) == 0
    os.set_blocking(process.stdout.fileno(), False)
    process.stdout.buffer.read()
    assert process.stdout.buffer.read() is None, "not the end of the file: somebody still holds it"
    os.set_blocking(process.stdout.fileno(), True)
    kill_all(f"MASTER_PORT={port}\0")
    assert process.stdout.read() == "", "the end comes when the child ends"
