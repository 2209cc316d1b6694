"""Jobs, their states, and requests, common to every scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from orchestrator.scheduler import slurm_states
from orchestrator.scheduler.slurm_states import Account


@dataclass(frozen=True)
class Job:
    """One job as the scheduler sees it. Times are Unix milliseconds, 0 if unknown.

    `state` and `reason` are the scheduler's own terms, to show and to record; decisions use
    `account`.
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
        """Return whether it may still run: in an unknown state too, so that nothing is submitted
        in addition."""
        return not slurm_states.has_ended(self.state)

    @property
    def waiting(self) -> bool:
        """Return whether it is in the queue and holds no nodes."""
        return slurm_states.is_queued(self.state)

    @property
    def account(self) -> Account:
        """Its phase, why it waits or has ended, and the cause of the end, in plain terms."""
        return slurm_states.account(self.id, self.state, self.reason)

    @property
    def wait_reason(self) -> str:
        """Why it waits, in the scheduler's own terms."""
        return slurm_states.wait_reason(self.state, self.reason)


@dataclass(frozen=True)
class JobRequest:
    """A job to submit.

    `env` is the complete environment of the job: nothing of the caller's own is added. The name of
    the file `output` may hold `%j`, which becomes the job id. `options` are further arguments for
    the scheduler's command. `text` is the script as it was verified, "" to run it by its path.
    """

    script: Path
    job_name: str
    workdir: Path
    env: Mapping[str, str]
    output: str
    options: tuple[str, ...] = field(default=())
    text: str = ""


class Scheduler(Protocol):
    """A back end. `name` is its name in set.json and site files."""

    name: str

    def submit(self, request: JobRequest) -> str: ...

    def command(self, request: JobRequest) -> list[str]: ...

    def jobs(self, *, names: Iterable[str] = (), ids: Iterable[str] = ()) -> dict[str, Job]: ...

    def cancel(self, job_id: str, grace_s: float) -> bool: ...

    def comments(self, name: str, job_ids: Iterable[str]) -> dict[str, str]: ...

    def cluster(self) -> str: ...
