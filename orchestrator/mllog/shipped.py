"""The rulesets: shipped rounds, made by tools/build_rule_data.py, and OWN."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ROUNDS = ("5.0.0", "5.1.0", "6.0.0", "6.1.0")
OWN = "own"
"""Ruleset of a workload that is no MLPerf benchmark (mllog/own.py)."""
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")


def packaged(kind: str, ruleset: str) -> dict[str, Any]:
    """Return a built-in round's data of `kind` ("rules", "rcp")."""
    with open(os.path.join(DATA, f"{kind}-{ruleset}.json"), encoding="utf-8") as file:
        document: dict[str, Any] = json.load(file)
    return document
