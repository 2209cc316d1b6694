"""Two figures of `explain` on a file of real logs: deciding line quoted, and cause right.

The file has one JSON object a line: `log` (the text of one node and its job as people post it),
`deciding_line` (a line of it), `causes` (names of docs/explain.md that mean the same as the true
cause), and if known `near` (names that are half right), `exit` (the node's exit code, 1 if
missing) and `name`. Lines of srun, slurmstepd and salloc become the job's output, errors of sbatch
a refused submission, the rest the log of the first node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import failures

from orchestrator.causes.prefixes import without_prefixes
from orchestrator.evidence.explanation import UNKNOWN, Explanation

_JOB = re.compile(r"\b(?:srun|slurmstepd|salloc): ")
_REFUSED = re.compile(r"^\s*sbatch: ")
_LEAST = 12
"""A shorter quotation names no line."""


@dataclass(frozen=True)
class Judged:
    """What `explain` says of one log. `verdict`: right, half, none or wrong."""

    name: str
    said: Explanation
    line_hit: bool
    first_hit: bool
    """Whether the deciding line is the first piece of evidence."""
    verdict: str
    row: dict[str, Any]


def as_case(row: dict[str, Any]) -> failures.Case:
    """Return a log as a set that ended."""
    case = failures.Case(str(row.get("name", "log")), "")
    parts: dict[str, list[str]] = {"job": [], "refused": [], "node": []}
    for text in row["log"].split("\n"):
        kind = "job" if _JOB.search(text) else "refused" if _REFUSED.match(text) else "node"
        parts[kind].append(text)
    case.job = "\n".join(parts["job"])
    case.refused = "\n".join(parts["refused"]).strip()
    node = "\n".join(parts["node"])
    if node.strip() and not case.refused:
        case.nodes[0] = ({"exit": int(row.get("exit", 1))}, node + "\n")
    return case


def _plain(text: str) -> str:
    return " ".join(without_prefixes(text).split())


def is_quoted(deciding: str, quotation: str) -> bool:
    """Return whether a quotation is the deciding line, a part of it, or contains it.

    Blanks, prefixes and the end of a line that is cut do not count.
    """
    line, quoted = _plain(deciding), _plain(quotation)
    whole = " ".join(quotation.split())
    if len(quoted) < _LEAST:
        return quoted == line
    return line in whole or quoted in line or quoted in " ".join(deciding.split())


def hits(said: Explanation, deciding: str) -> tuple[bool, bool]:
    """Return whether a line is quoted at all, and whether it is quoted first."""
    quoted = [is_quoted(deciding, proof.text) for proof in said.evidence]
    in_sentence = _plain(deciding)[:150] in " ".join(said.sentence.split())
    return any(quoted) or in_sentence, any(quoted[:1]) or in_sentence


def judge(folder: Path, row: dict[str, Any]) -> Judged:
    case = as_case(row)
    said = failures.explained(folder / case.name, case)
    hit, first_hit = hits(said, row["deciding_line"])
    if said.cause in row["causes"]:
        verdict = "right"
    elif said.cause in row.get("near", ()) or (said.cause == UNKNOWN and hit):
        verdict = "half"
    else:
        verdict = "none" if said.cause == UNKNOWN else "wrong"
    return Judged(case.name, said, hit, first_hit, verdict, row)


def judged(folder: Path, file: Path) -> Iterator[Judged]:
    for number, text in enumerate(file.read_text("utf-8").splitlines(), 1):
        if text.strip():
            row: dict[str, Any] = json.loads(text)
            yield judge(folder, {"name": f"line-{number}", **row})
