"""Processes with sessions of their own, in the moment before they have one."""

from __future__ import annotations

import signal
import subprocess

import pytest

from orchestrator.onnode.kernel.waiting import end_session


@pytest.mark.parametrize("own", [True, False], ids=["with its session", "before it has one"])
def test_a_process_is_ended_before_it_has_a_session(own: bool) -> None:
    """A TERM to the whole job comes between fork and setsid: such a process is in its parent's group still."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=own)
    end_session(process)
    assert process.wait() == -signal.SIGKILL
    end_session(process)
