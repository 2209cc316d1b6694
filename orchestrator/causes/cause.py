"""A cause: a row of causes.json, evidence/own_causes.py or scheduler/slurm_reasons.py."""

from __future__ import annotations

from dataclasses import dataclass

MACHINE, PROGRAM, END, SYMPTOM, MENTION, ECHO, WRAPPER = range(7)
"""Grades of lines and causes, the deepest first.

END: a process failed, but nothing more exact is known (an exception, a crash, a kill).
SYMPTOM: another process may be the cause (a time-out, a peer that does not answer).
MENTION: words in passing, such as a shell's about a missing file.
ECHO: a consequence of the end of another process.
WRAPPER: a line that only passes a failure on (no cause has this grade).
"""
GRADES = ("machine", "program", "end", "symptom", "mention", "echo")
"""The grades of causes as causes.json names them."""

RESUME = "orchestrator resume {set}"
LEAVE_OUT = "orchestrator resume {set} --exclude {node}"


@dataclass(frozen=True)
class Cause:
    """A cause with its signs. `next` is a command with {set}, {node}, {run}, {attempt} and {job}.

    `told_by` has the signs in small letters, separated by ` | `. `{a,b}` is a choice, `*` some
    words of the same line, ` & ` joins parts in any order; `$` in a choice ends a word. `#`, `!`
    and `@` begin fields of a line (fields.py). Marks before a sign: `^` the start of the line; `~`
    words with other uses, too; `?` a sign of only the kind of failure; `+` a sign that counts
    before all others.
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
