"""A cause: a row of causes.json, or of the tables of evidence/own_causes.py and
scheduler/slurm_reasons.py."""

from __future__ import annotations

from dataclasses import dataclass

MACHINE, PROGRAM, END, SYMPTOM, MENTION, ECHO = range(6)
"""Grades, the deepest first.

END: a process failed, but nothing more exact is known (an exception, a crash, a kill).
SYMPTOM: another process may be the cause (a time-out, a peer that does not answer).
MENTION: words in passing, such as a shell's about a missing file.
ECHO: a consequence of the end of another process.
"""
GRADES = ("machine", "program", "end", "symptom", "mention", "echo")
"""The grades as causes.json names them."""

RESUME = "orchestrator resume {set}"
LEAVE_OUT = "orchestrator resume {set} --exclude {node}"


@dataclass(frozen=True)
class Cause:
    """A cause with its signs. `next` is a command with {set}, {node}, {run}, {attempt} and {job}.

    `told_by` has the signs in small letters, separated by ` | `. `*` is anything on the same line
    and `^` the start of the line. `~` before a sign marks words that are used for other things,
    too: they count after all other signs, and only as a MENTION unless the line is an error.
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
