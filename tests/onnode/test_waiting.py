"""Processes with sessions of their own, in the moment before they have one."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from orchestrator.onnode.kernel.waiting import end_session

WAITS = """
import os, signal, sys
from orchestrator.onnode.kernel.waiting import ReleaseRequested, Waiting
for name in ("SIGHUP", "SIGINT"):
    signal.signal(getattr(signal, name), signal.SIG_IGN if name == sys.argv[1] else signal.SIG_DFL)
waiting = Waiting()
for name in ("SIGHUP", "SIGINT"):
    os.kill(os.getpid(), getattr(signal, name))
    try:
        waiting.wait(lambda: False, 0.1)
        print(name, "ignored")
    except ReleaseRequested:
        print(name, "heard")
        waiting.release_status = None
"""


@pytest.mark.parametrize("ignored", ["SIGHUP", "SIGINT"], ids=["nohup", "in a script's background"])
def test_a_signal_that_was_ignored_from_the_start_stays_so(ignored: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", WAITS, ignored], capture_output=True, text=True, check=True
    ).stdout
    words = {name: "ignored" if name == ignored else "heard" for name in ("SIGHUP", "SIGINT")}
    assert dict(line.split() for line in shown.splitlines()) == words


@pytest.mark.parametrize("own", [True, False], ids=["with its session", "before it has one"])
def test_a_process_is_ended_before_it_has_a_session(own: bool) -> None:
    """A TERM to the whole job comes between fork and setsid: such a process is in its parent's group still."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=own)
    end_session(process)
    assert process.wait() == -signal.SIGKILL
    end_session(process)
