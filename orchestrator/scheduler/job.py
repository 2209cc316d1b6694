"""Jobs, their states, and requests, common to every scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from orchestrator.onnode.kernel.system import ENDED_STATES

WAITING = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
"""Queued: nothing of ours runs. Slurm may start (or restart) the job."""

ACTIVE = frozenset(
    {
        "CONFIGURING",
        "RUNNING",
        "COMPLETING",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
        "STOPPED",
        "SUSPENDED",
    }
)
"""The job holds nodes."""


@dataclass(frozen=True)
class Job:
    """One job as the scheduler sees it. Times are Unix milliseconds, 0 if unknown."""

    id: str
    name: str
    state: str
    reason: str = ""
    start_ms: int = 0
    end_ms: int = 0
    nodes: str = ""

    @property
    def alive(self) -> bool:
        """Return whether it may still run. An unknown state counts as alive: nothing is
        submitted in addition."""
        return self.state not in ENDED_STATES

    @property
    def waiting(self) -> bool:
        return self.state in WAITING


@dataclass(frozen=True)
class JobRequest:
    """A job to submit.

    `env` is the complete environment of the job: nothing of the caller's own is added. The name of
    the file `output` may hold `%j`, which becomes the job id. `options` are further arguments for
    the scheduler's command.
    """

    script: Path
    job_name: str
    workdir: Path
    env: Mapping[str, str]
    output: str
    options: tuple[str, ...] = field(default=())


class Scheduler(Protocol):
    """A back end. `name` is its name in set.json and site files."""

    name: str

    def submit(self, request: JobRequest) -> str: ...

    def command(self, request: JobRequest) -> list[str]: ...

    def jobs(self, *, names: Iterable[str] = (), ids: Iterable[str] = ()) -> dict[str, Job]: ...

    def cancel(self, job_id: str, grace_s: float) -> bool: ...

    def cluster(self) -> str: ...
