"""What the system tells: files of the kernel, programs that answer within a limit, whether a process or a job lives.

It is data of the host: bounded, decoded with replacement, never an exception.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from .files import PathLike

MAX_BYTES = 4 << 20
"""More than this no program has to say."""
UNKNOWN_JOB = "Invalid job id"
"""In what squeue and scontrol say of a job that Slurm has forgotten."""
ENDED_STATES = frozenset(
    {
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "DEADLINE",
        "PREEMPTED",
        "NODE_FAIL",
        "BOOT_FAIL",
        "OUT_OF_MEMORY",
        "REVOKED",
    }
)
"""Of a job of Slurm that is over for good (Slurm shows PREEMPTED only for jobs that it does not put back in the queue)."""


def entries(folder: str) -> list[str]:
    """Return the names in a folder as they come; [] when it cannot be listed."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def names(folder: str, most: int = 1024) -> list[str]:
    """Return at most so many names in a folder, mlx5_10 behind mlx5_9; without those that are no printable word."""
    return sorted(
        (one for one in entries(folder) if one.isprintable() and " " not in one), key=_natural
    )[:most]


def _natural(name: str) -> list[str]:
    return [
        part.zfill(20) if index % 2 else part
        for index, part in enumerate(re.split("([0-9]+)", name))
    ]


def lines(path: str, limit: int = 1 << 18) -> list[str]:
    """Return the lines of the first `limit` bytes of a file; [] when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace").split("\n")
    except OSError:
        return []


def first_line(path: PathLike) -> str:
    """Return the first line of a small file without blanks around it; "" when there is none, or it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.readline(4096).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def amd_gpus(sys: str) -> list[str]:
    """Return the folders of the devices of the amdgpu driver, by PCI address (0000:0a:00.0 behind 0000:05:00.0)."""
    driver = f"{sys}/bus/pci/drivers/amdgpu"
    addresses = filter(
        re.compile("[0-9a-f]+:[0-9a-f]+:[0-9a-f]+[.][0-9a-f]+").fullmatch, entries(driver)
    )
    return [
        f"{driver}/{one}"
        for one in sorted(addresses, key=lambda one: [int(n, 16) for n in re.split("[:.]", one)])
    ]


def ask(argv: Sequence[str], seconds: float, *, errors: bool = False) -> tuple[int, str]:
    """Run a program with nothing to read; return its exit status and output, with what it says on standard error if wanted.

    The status is negative when it did not end within `seconds`, and 127 when it cannot be started. It writes to memory, not to a
    pipe: a child that it leaves behind holds nobody up.
    """
    import signal
    import subprocess  # not at the top: `status` and `score` import this module and start nothing

    with os.fdopen(os.memfd_create("answer"), "rb") as answer:
        streams: dict[str, Any] = {
            "stdout": answer,
            "stderr": answer if errors else subprocess.DEVNULL,
        }
        try:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, **streams)
        except (OSError, ValueError) as error:
            return 127, str(error)
        for limit in (seconds, 0.2):  # what the kernel does not let go of is not waited for
            try:
                process.wait(limit)
                break
            except subprocess.TimeoutExpired:
                process.kill()
        status = -signal.SIGKILL if process.returncode is None else process.returncode
        return status, os.pread(answer.fileno(), MAX_BYTES, 0).decode("utf-8", "replace")


def process_start(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot, which tells a recycled pid; "" when it is gone.

    A process that has ended and that nobody has waited for is gone.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().decode("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def job_state(job_id: str, seconds: float, ask: Callable[..., tuple[int, str]] = ask) -> str:
    """Return what Slurm calls the state of a job, RUNNING of one without Slurm; "" when it is gone, "?" when nobody answers."""
    if local := re.match(r"local-([0-9]{1,9})-([0-9]+)", job_id):
        return "RUNNING" if process_start(int(local[1])) == local[2] else ""
    if not job_id[:1].isdecimal():
        return "?"
    argv = ["squeue", "--noheader", f"--jobs={re.split('[^0-9]', job_id)[0]}", "--format=%T"]
    status, text = ask(argv, seconds)
    if status == 0:
        return text.strip()
    return "" if status > 0 and UNKNOWN_JOB in ask(argv, seconds, errors=True)[1] else "?"
