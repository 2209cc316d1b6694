"""A short part of the fault campaign (campaign.py; the long one is `make faults`)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
from campaign import one_trial
from invariants import violations
from kinds import KINDS
from kinds_site import FAKED, FAKETIME, remove_shared_clocks
from labs import lab_state
from trial import FLAVOURS, Trial

HOST = (
    ("private_tmp", "kill9_everything", "zombie_loop", "resumes_at_once"),
    pytest.param(
        ("clock_steps", "term_loop", "damage_run_state", "kill_resume", "other_user"),
        marks=pytest.mark.long,
    ),
)
DATABASE = ("slurmdbd_restart", "mariadb_restart")


@pytest.mark.parametrize("kinds", HOST, ids="-".join)
def test_a_set_on_this_machine_survives(kinds: tuple[str, ...]) -> None:
    record = one_trial(0, "local", list(kinds))
    assert record["violations"] == [], record


@pytest.mark.long
def test_a_complete_set_gets_more_runs_for_the_faults_that_are_left(tmp_path: Path) -> None:
    trial = Trial(FLAVOURS["local"], tmp_path / "t", random.Random(0), runs=1)
    trial.submit()
    assert trial.wait(lambda: trial.complete)
    assert trial.go_on(more=2)
    assert (trial.runs, trial.picture()["nexp"]) == (3, 3)
    trial.recover()
    assert violations(trial, {}) == []
    trial.close()


@pytest.mark.skipif(not FAKETIME, reason="no libfaketime: apt-get install faketime")
def test_a_killed_loop_with_another_clock_leaves_nothing_in_shared_memory(tmp_path: Path) -> None:
    clock, python = tmp_path / "clock", tmp_path / "python3"
    clock.write_text("+0\n")
    python.write_text(f"#!/bin/bash\n{FAKED.format(library=FAKETIME[0], clock=clock)}")
    python.chmod(0o755)
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    loop = subprocess.Popen([python, "-B", "-I", "-S", "-c", killed, "loop", os.devnull])
    assert loop.wait() == -signal.SIGKILL

    def left() -> list[Path]:
        return sorted(Path("/dev/shm").glob(f"*faketime_*_{loop.pid}"))

    assert len(left()) == 2
    remove_shared_clocks(clock)
    assert left() == []


@pytest.mark.long
@pytest.mark.parametrize("flavour", [pytest.param("docker", marks=pytest.mark.lab), "local"])
def test_every_kind_once_in_one_set(flavour: str) -> None:
    """And it still ends with a good result of every run and the right score."""
    accounting = list((lab_state() / "pids").glob("slurmdbd"))
    kinds = [
        one.name
        for one in KINDS.values()
        if flavour in one.flavours and (one.name not in DATABASE or accounting)
    ]
    record = one_trial(0, flavour, kinds, runs=10)
    assert record["violations"] == record["nothing_to_hit"] == [], record
    assert sorted(one["fault"] for one in record["injected"]) == sorted(kinds)
