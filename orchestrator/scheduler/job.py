"""Jobs, states and requests of every scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from orchestrator.scheduler import slurm_states
from orchestrator.scheduler.slurm_states import Account


@dataclass(frozen=True)
class Job:
    """A job as the scheduler sees it. Times are Unix milliseconds, 0 if unknown.

    `state` and `reason` are the scheduler's terms, to show and record; decisions use `account`.
    """

    id: str
    name: str
    state: str
    reason: str = ""
    start_ms: int = 0
    end_ms: int = 0
    nodes: str = ""

    @property
    def alive(self) -> bool:
        """True also in an unknown state, so that nothing more is submitted."""
        return not slurm_states.has_ended(self.state)

    @property
    def waiting(self) -> bool:
        """True in the queue, without nodes."""
        return slurm_states.is_queued(self.state)

    @property
    def account(self) -> Account:
        return slurm_states.account(self.id, self.state, self.reason)

    @property
    def as_started(self) -> Job:
        """The job, known to have started: its reason cannot be a failed launch."""
        return replace(self, reason=slurm_states.reason_after_start(self.reason))

    @property
    def wait_reason(self) -> str:
        return slurm_states.wait_reason(self.state, self.reason)


@dataclass(frozen=True)
class JobRequest:
    """A job to submit.

    `env` is complete: nothing of the caller's is added. In the file name of `output`, `%j` becomes
    the job id. `options` are the scheduler command's. `text` is the script as verified, "" to run
    it by its path.
    """

    script: Path
    job_name: str
    workdir: Path
    env: Mapping[str, str]
    output: str
    options: tuple[str, ...] = field(default=())
    text: str = ""


class Scheduler(Protocol):
    """A back end: its `name` in set.json and site files, and its properties (kinds.py)."""

    name: str
    runs_here: bool
    allocates: bool

    def submit(self, request: JobRequest) -> str: ...

    def command(self, request: JobRequest) -> list[str]: ...

    def jobs(self, *, names: Iterable[str] = (), ids: Iterable[str] = ()) -> dict[str, Job]: ...

    def job(self, job_id: str) -> Job | None: ...

    def cancel(self, job_id: str, grace_s: float) -> bool: ...

    def comments(self, name: str, job_ids: Iterable[str]) -> dict[str, str]: ...

    def cluster(self) -> str: ...
