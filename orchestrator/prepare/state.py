"""The state of each step: one small JSON file in the data folder, written to a temporary name and renamed.

`running` with nobody behind it is a step that died. While a step runs its file is touched every `BEAT_S` seconds, so
that another machine can tell.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from orchestrator.errors import InputError

BEAT_S = 20.0
STALE_S = 120.0


@dataclass(frozen=True, slots=True)
class StepState:
    """What is known of a step. Times are Unix milliseconds; `ended_ms` 0 and `exit_code` -1 while it runs."""

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
    """Return the step's state; None when there is none that can be read, which means that it is to be run."""
    try:
        return StepState(**json.loads((folder / f"{step}.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def write_state(folder: Path, state: StepState) -> None:
    """Write the step's state. Raises InputError when the folder cannot be written."""
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
        raise InputError(
            f"{path}: cannot be written: {error.strerror or error}", hint=f"ls -ld {folder.parent}"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def runs_elsewhere(folder: Path, state: StepState) -> bool:
    """Whether another machine is at work on the step: it says so, and its file was touched a moment ago."""
    if state.state != "running" or state.host == os.uname().nodename:
        return False
    # Compared with a file written now, in the same place: the clocks of file server and machines may differ.
    probe = folder / f".{state.step}.clock.{os.getpid()}"
    try:
        probe.touch()
        return probe.stat().st_mtime - (folder / f"{state.step}.json").stat().st_mtime < STALE_S
    except OSError:
        return False
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


@contextmanager
def beating(folder: Path, step: str) -> Iterator[None]:
    """Touch the step's file every BEAT_S seconds while the block runs."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_S):
            with suppress(OSError):
                os.utime(folder / f"{step}.json")

    thread = threading.Thread(target=beat, name="beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
