"""Commands on a node through srun, and srun's own messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

STEP = "srun"
"""The way to a node inside an allocation, as --via names it."""
STEP_REMARKS = r"srun: cluster configuration lacks support for cpu binding$|cpu[-_]bind="
"""Starts of lines that report no error: of a cluster without task/affinity or task/cgroup; the mask
of each task, if the user's environment asks for it."""
_ERROR = "srun: error:"
_TASK_ENDED = re.compile(rf"{_ERROR} \S+: task \d+: ")


def step_command(job: str, node: str, argv: Sequence[str]) -> list[str]:
    """Return the step that runs `argv` on a node of the allocation `job`, next to other steps."""
    return [
        STEP,
        f"--jobid={job}",
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={node}",
        "--immediate=60",
        "--unbuffered",
        "--chdir=/",
        *argv,
    ]


def job_command(options: Sequence[str], *, wait_s: int, argv: Sequence[str]) -> list[str]:
    """Return the job that runs `argv` on any node: within `wait_s` or not at all, for at most two
    minutes."""
    return [
        STEP,
        "--job-name=orch-init",
        "--nodes=1",
        "--ntasks=1",
        f"--immediate={wait_s}",
        "--time=2",
        "--quiet",
        *options,
        *argv,
    ]


def launch_problem(stderr: str) -> str:
    """Return why a step could not start; "" if the command itself failed, with the same exit
    code."""
    errors = [line for line in stderr.splitlines() if _ERROR in line]
    if not errors or _TASK_ENDED.search(stderr):
        return ""
    return f"{STEP}: {errors[0].partition(_ERROR)[2].strip()}"


def without_step_messages(lines: Iterable[str]) -> list[str]:
    """Drop srun's lines: it adds a last line with the exit code."""
    return [line for line in lines if not line.startswith(f"{STEP}:")]
