"""The state of each step: one small JSON file in the data folder, written atomically.

The writer holds the lock: a step that is `running` while the lock is free has died.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from orchestrator.errors import InputError, SetError, is_full
from orchestrator.onnode.kernel.regular import parse, read_bytes


@dataclass(frozen=True, slots=True)
class StepState:
    """The state of a step. Times are Unix milliseconds; `ended_ms` 0 and `exit_code` -1 while it
    runs."""

    step: str
    state: Literal["running", "done", "failed"]
    fingerprint: str
    image: str
    host: str
    pid: int
    started_ms: int
    ended_ms: int = 0
    exit_code: int = -1
    reason: str = ""
    schema: int = 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def read_state(folder: Path, step: str) -> StepState | None:
    """Return the step's state; None without a readable one, so the step must run."""
    try:
        return StepState(**parse(read_bytes(folder / f"{step}.json")))
    except (OSError, ValueError, TypeError):
        return None


def write_state(folder: Path, state: StepState) -> None:
    """Write the step's state. Raises InputError if the folder is not writable."""
    path = folder / f"{state.step}.json"
    temporary = folder / f".{path.name}.tmp.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary.open("w") as file:
            json.dump(state.to_json(), file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise (SetError if is_full(error) else InputError)(
            f"{path}: cannot be written: {error.strerror or error}", hint=f"ls -ld {folder.parent}"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
