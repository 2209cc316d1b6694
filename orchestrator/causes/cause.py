"""A cause of a failure: a row of the tables in tables.py and, for Slurm's words, in
evidence/waits.py."""

from __future__ import annotations

from dataclasses import dataclass

MACHINE, PROGRAM, END, SYMPTOM, MENTION, ECHO = range(6)
"""Grades, the deepest first. END: a process ended by itself, without a known reason (an unknown
exception, a crash, a kill). SYMPTOM: a failure that another process may have caused (a time-out,
a silent peer). MENTION: a remark in passing, as shells print of a missing file. ECHO: a
consequence of another process's end."""

RESUME = "orchestrator resume {set}"
LEAVE_OUT = "orchestrator resume {set} --exclude {node}"
PREFLIGHT = "orchestrator preflight --nodes {node}"
LOGS = "orchestrator logs {set} --run {run} --attempt {attempt} --node {node}"


@dataclass(frozen=True)
class Cause:
    """Why something ended or waits. `next`: a command with {set}, {node}, {run}, {attempt} and
    {job} in it.

    `told_by`: its signs in lower case, ` | ` between them. `*` is anything on the same line, `^`
    the start of the line. `~` marks a loose sign: it counts after all others, and as a MENTION
    unless the line calls itself an error.
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
