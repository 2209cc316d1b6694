"""The error files of torch.distributed.elastic: exceptions that processes reported themselves.

A program with `@record` writes one per process; its launcher copies the first of its node to the
place from the agent (onnode/agent/launch.py).
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.causes.cause import ECHO, PROGRAM
from orchestrator.causes.forms import grade_of
from orchestrator.causes.reading import Symptom
from orchestrator.onnode.kernel.files import PathLike
from orchestrator.onnode.kernel.walk import FilesInside
from orchestrator.onnode.policy.reports import MOST_QUOTED, line

NAMES = "elastic_error*.json"
_MOST_FILES, _MOST_BYTES = 16, 1 << 18


@dataclass(frozen=True)
class ElasticError:
    """An exception of a process, and when it was raised (0: unknown)."""

    path: Path
    text: str
    raised_s: float


def first_error(folder: Path, root: PathLike = "") -> ElasticError | None:
    """Return the first exception in the error files of a node's run in the set `root`."""
    files = FilesInside(root)
    try:
        names = sorted(fnmatch.filter(files.names(folder), NAMES))[:_MOST_FILES]
    except OSError:
        return None
    errors = [error for name in names if (error := _read(folder / name, files)) is not None]
    return min(errors, key=lambda error: error.raised_s, default=None)


def _read(path: Path, files: FilesInside) -> ElasticError | None:
    try:
        with files.open(path) as file:
            value: Any = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    message: Any = value.get("message") if isinstance(value, dict) else None
    stamp: Any = None
    if isinstance(message, dict):
        extra: Any = message.get("extraInfo")
        stamp = extra.get("timestamp") if isinstance(extra, dict) else None
        message = message.get("message")
    if not isinstance(message, str) or not message.strip():
        return None
    try:
        raised_s = float(stamp)
    except (TypeError, ValueError, OverflowError):
        raised_s = 0.0
    text = line(message.strip().split("\n")[0], MOST_QUOTED)
    return ElasticError(path, text, raised_s if raised_s > 0 else 0.0)


def with_error(symptoms: Sequence[Symptom], error: ElasticError) -> list[Symptom]:
    """Return the symptoms of a log after the error that its process reported.

    If the log has that line, it is quoted there. The loss of a peer comes last.
    """
    grade = grade_of(error.text, error.text)
    if grade is not None and grade >= ECHO:
        return [*symptoms]
    same = next((symptom for symptom in symptoms if error.text[:80] in symptom.text), None)
    if same is not None:
        others = [symptom for symptom in symptoms if symptom is not same]
        return [replace(same, grade=min(same.grade, PROGRAM)), *others]
    return [Symptom(PROGRAM if grade is None else grade, error.text, -1, raised=True), *symptoms]
