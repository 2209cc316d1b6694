"""The processes of a test: started, and found by what is its own: a folder, mostly."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from until import LIMIT_S, until


def captured(
    argv: Sequence[str | Path],
    env: Mapping[str, str],
    *,
    cwd: Path | None = None,
    limit_s: float = LIMIT_S,
    descriptors: Sequence[int] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a program without input, and keep what it prints. It inherits `descriptors`."""
    return subprocess.run(
        argv,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
        pass_fds=descriptors,
    )


def processes_of(mark: str | Path) -> dict[int, str]:
    """Return the processes that stand below `mark` or have it in their command line or environment: {pid: command line}."""
    commands, mark = {}, os.fsencode(mark)
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):  # it ended meanwhile, or is somebody else's
                command = (entry / "cmdline").read_bytes()
                folder = os.fsencode(os.readlink(entry / "cwd"))
                if (
                    mark in command
                    or folder.startswith(mark)
                    or mark in (entry / "environ").read_bytes()
                ):
                    commands[int(entry.name)] = command.replace(b"\0", b" ").decode(
                        errors="replace"
                    )
    return commands


def programs_of(mark: str | Path) -> dict[int, str]:
    """Return `processes_of(mark)` without those that have not started their program yet: a process that was just forked has its
    parent's command line.
    """
    commands = processes_of(mark)
    return {
        pid: command for pid, command in commands.items() if commands.get(parent_of(pid)) != command
    }


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def see_them_go(mark: str | Path) -> None:
    """Return when no process of `mark` is left."""
    until(lambda: not processes_of(mark), lambda: processes_of(mark))


def kill_all(mark: str | Path) -> None:
    """Kill all processes of `mark`, and what they start meanwhile."""

    def none_left() -> bool:
        commands = processes_of(mark)
        for pid in commands:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not commands

    until(none_left, lambda: processes_of(mark))
