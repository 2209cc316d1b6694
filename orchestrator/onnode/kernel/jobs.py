"""A job: its state with or without Slurm; Slurm's variables, states and messages about it."""

from __future__ import annotations

import re
from collections.abc import Callable

from .system import ask, process_start

JOB_ID, JOB_NODELIST = "SLURM_JOB_ID", "SLURM_JOB_NODELIST"
"""Variables of a job."""
NODENAME = "SLURMD_NODENAME"
"""The variable of a step's node."""
NNODES, NODEID = "SLURM_NNODES", "SLURM_NODEID"
NTASKS, NTASKS_PER_NODE = "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"
PROCID, LOCALID = "SLURM_PROCID", "SLURM_LOCALID"
"""Variables of a task, which images read."""
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


def port_base(job_id: str) -> int:
    """Return an offset for a job's ports. Local jobs may share their start."""
    return sum(int(number[-6:]) for number in re.findall("[0-9]+", job_id)) * 101


def comment(shown: str) -> str:
    """Find a job's comment in `scontrol show job`."""
    match = re.search(r"(?m)^ *Comment=(.*)$", shown)
    return match[1] if match and match[1] != "(null)" else ""
