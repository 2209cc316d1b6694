"""What a cause is: a row of the tables in causes.py and what it puts together; for Slurm's words, of evidence/waits.py."""

from __future__ import annotations

from dataclasses import dataclass

MACHINE, PROGRAM, END, SYMPTOM, MENTION, ECHO = range(6)
"""Grades, the deepest first. END: a process ended by itself, and that is all that is known (an exception that no table knows, a
crash, a kill). SYMPTOM: what another process may be the cause of (a time-out, a peer that does not answer). MENTION: what is said
in passing, as shells do of a missing file. ECHO: what is only said because another process has ended."""

RESUME = "orchestrator resume {set}"
LEAVE_OUT = "orchestrator resume {set} --exclude {node}"
PREFLIGHT = "orchestrator preflight --nodes {node}"
LOGS = "orchestrator logs {set} --run {run} --attempt {attempt} --node {node}"


@dataclass(frozen=True)
class Cause:
    """Why something ended or waits. `next`: a command with {set}, {node}, {run}, {attempt} and {job} in it.

    `told_by`: the signs of it in small letters, ` | ` between them. `*` is anything on the same line, `^` the begin of the line,
    `~` before a sign: words that are said of other things, too, so they count after all signs without it, and as a MENTION only
    where the line does not call itself an error.
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
