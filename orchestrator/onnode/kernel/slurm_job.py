"""A job in Slurm: its state, comment, end and node."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from .system import ask, process_start

UNKNOWN_JOB = "Invalid job id"
"""In replies of squeue and scontrol about a forgotten job."""
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
"""Final states (Slurm shows PREEMPTED only without a requeue)."""


def job_state(job_id: str, seconds: float, ask: Callable[..., tuple[int, str]] = ask) -> str:
    """Return Slurm's state, RUNNING without Slurm; "" if forgotten, "?" without an answer."""
    if local := re.match(r"local-([0-9]{1,9})-([0-9]+)", job_id):
        return "RUNNING" if process_start(int(local[1])) == local[2] else ""
    if not job_id[:1].isdecimal():
        return "?"
    argv = ["squeue", "--noheader", f"--jobs={re.split('[^0-9]', job_id)[0]}", "--format=%T"]
    status, text = ask(argv, seconds)
    if status == 0:
        return text.strip()
    return "" if status > 0 and UNKNOWN_JOB in ask(argv, seconds, errors=True)[1] else "?"


def job_end_s(environment: Mapping[str, str]) -> int | None:
    """Return the end of the job in Unix seconds; None if unknown."""
    end = environment.get("SLURM_JOB_END_TIME", "")
    return int(end) if re.fullmatch("[0-9]{1,15}", end) else None


def step_node(environment: Mapping[str, str]) -> str:
    """Return the node of the step, or ""."""
    return environment.get("SLURMD_NODENAME", "")


def comment(shown: str) -> str:
    """Find a job's comment in `scontrol show job`."""
    match = re.search(r"(?m)^ *Comment=(.*)$", shown)
    return match[1] if match and match[1] != "(null)" else ""
