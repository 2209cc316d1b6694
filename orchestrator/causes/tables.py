"""The causes of failures, from causes.json.

`causes`: names, grades, texts and signs (cause.py); a long sign is a list of its parts. `not_by`
matches lines of other speakers with the same words. The others are names of causes. `exacter`:
causes that describe the same failure more exactly. `parents`: causes that count after their special
cases. `outer`: they name only who failed. `generic`: they answer if no other is known.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from orchestrator.causes.cause import GRADES, Cause

FILE = Path(__file__).with_name("causes.json")


def _cause(row: dict[str, Any]) -> Cause:
    signs = " | ".join("".join(sign) for sign in row["signs"])
    grade = GRADES.index(row["grade"])
    return Cause(row["name"], grade, row["next"], row["sentence"], row["remedy"], signs)


_DATA: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
CAUSES = tuple(_cause(row) for row in _DATA["causes"])
NOT_BY = {row["name"]: re.compile(row["not_by"]) for row in _DATA["causes"] if "not_by" in row}
BY_NAME = {cause.name: cause for cause in CAUSES}
GENERIC = frozenset[str](_DATA["generic"])
EXACTER: dict[str, list[str]] = _DATA["exacter"]
PARENTS = frozenset[str](_DATA["parents"])
OUTER = frozenset[str](_DATA["outer"])
