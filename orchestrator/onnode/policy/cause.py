"""What a cause is: a row of the tables in host_causes.py, causes.py and, for Slurm's words, orchestrator/evidence/waits.py."""

from __future__ import annotations

from dataclasses import dataclass

MACHINE, PROGRAM, OTHER, SYMPTOM, ECHO = range(5)
"""Grades, the deepest first. OTHER: an exception that no table knows. SYMPTOM: what a deeper cause may hide behind.
ECHO: what is only said because another process has ended."""

RESUME = "orchestrator resume {set}"
LEAVE_OUT = "orchestrator resume {set} --exclude {node}"
PREFLIGHT = "orchestrator preflight --nodes {node}"
LOGS = "orchestrator logs {set} --run {run} --attempt {attempt} --node {node}"


@dataclass(frozen=True)
class Cause:
    """Why something ended or waits. `next`: a command with {set}, {node}, {run}, {attempt} and {job} in it.

    `told_by`: the signs of it in small letters, ` | ` between them. `*` is anything on the same line, `^` the begin of the line.
    """

    name: str
    grade: int
    next: str
    sentence: str
    remedy: str
    told_by: str

    @property
    def signs(self) -> list[str]:
        return self.told_by.split(" | ")
