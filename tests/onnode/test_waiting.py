"""Processes with sessions of their own, in the moment before they have one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from until import LIMIT_S

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


TIMES_OUT = """
import os, sys
from orchestrator.onnode.kernel.system import ask
from orchestrator.onnode.kernel.waiting import NOT_DONE, Waiting
os.setgroups([])
os.setresgid(4242, 4242, 4242)
os.setresuid(4242, 4242, 4242)
argv = sys.argv[1:]
print(Waiting().call(argv, 0.1) == (NOT_DONE, b""), ask(argv, 0.1) == (-9, ""))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_process_of_root_is_left_after_its_time() -> None:
    """As sudo's, which no user can end: a call is over all the same."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        program, pipe = folder / "sudo", folder / "pipe"
        shutil.copy(shutil.which("setpriv") or "", program)
        program.chmod(0o4755)
        os.mkfifo(pipe)
        holder = os.open(pipe, os.O_RDWR)  # both processes end with it
        try:
            shown = subprocess.run(
                [sys.executable, "-c", TIMES_OUT, program, "--reuid=0", "cat", pipe],
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
        finally:
            os.close(holder)
        assert shown.stdout == "True True\n", shown.stderr
