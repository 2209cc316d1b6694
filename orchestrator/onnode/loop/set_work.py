"""What a job that works on a set knows of itself, and its own record: jobs/<job id>.json."""

from __future__ import annotations

import os
import signal

from .. import records
from ..events import now_ms
from ..policy.place import Standing, waiting_now
from ..records import JobRecord
from ..settings import Settings, evaluate_config
from .folder import Folder
from .nodes import Local, Slurm
from .work import Work, log

TIME_LIMIT = ("time_limit", "the time limit of the job is near")
CANCELLED = ("cancelled", "ended by a signal (scancel or cancel)")


class SetWork(Work):
    """A job with its set. `standing` and `image` are its nodes' as far as there are some."""

    def __init__(
        self, settings: Settings, scheduler: Slurm | Local, folder: Folder, environment: dict[str, str]
    ) -> None:
        super().__init__(folder.layout.bundle, settings, folder.layout, environment)
        self.scheduler, self.folder, self.job_id = scheduler, folder, scheduler.job_id
        self.started_ms = now_ms()
        self.run = self.attempt = 0
        self.state, self.reason, self.ending_reason = "", "", ""
        self.standing: Standing | None = None
        self.image = ""
        digits = "".join(char for char in self.job_id if char.isdecimal())[-6:]
        self.port_base = int(digits or "0") * 101
        self.has_spares = len(scheduler.allocated) > settings.nnodes

    def environment_file(self) -> None:
        """Write the environment of the runs. Raises SettingsError, OSError."""
        text = evaluate_config(self.layout.bundle, self.settings, self.folder.record.nexp)
        records.write_bytes(self.layout.environment, text)

    def write(self, state: str = "", reason: str = "") -> None:
        """Write the job's own state, as long as the set is its own: its successor has closed it otherwise.

        A disk that is full does not stop the job here: the next state of a run does.
        """
        self.state, self.reason = state or self.state, reason or self.reason
        if not self.folder.is_mine:
            return
        standing = self.standing
        final = self.state in JobRecord.FINAL
        record = JobRecord(
            job_id=self.job_id,
            state=self.state,
            reason=self.reason,
            host=os.uname().nodename,
            pid=os.getpid(),
            started_ms=self.started_ms,
            updated_ms=now_ms(),
            ended_ms=now_ms() if final else 0,
            nodes=(standing.workers if standing else []) or list(self.scheduler.allocated[: self.settings.nnodes]),
            run=self.run,
            attempt=self.attempt,
            image_digest=self.image,
            engine=self.settings.engine,
            spares=waiting_now(standing) if standing else [],
            set_aside=self.aside,
            warnings=self.warnings,
        )
        try:
            records.write(record, self.layout.job(self.job_id), sync=final)
        except OSError as error:
            log(f"error: cannot write {self.layout.job(self.job_id)}: {error.strerror}")

    def warn(self, text: str) -> None:
        """Put a warning into the job's output and its record, once."""
        if text not in self.warnings:
            self.warnings.append(text)
            log(f"WARNING: {text}")

    def put_aside(self, node: str, kind: str, reason: str) -> None:
        """Put on record that a node is not used any more, with the run that was going on (0 before the first)."""
        log(f"node {node} is set aside: {reason}")
        about = {
            "node": node,
            "kind": kind,
            "reason": reason,
            "run": self.run,
            "attempt": self.attempt,
            "time_ms": now_ms(),
        }
        self.aside.append(about)

    @property
    def resume_command(self) -> str:
        return f"orchestrator resume {self.layout.root.name}"

    def is_ending(self) -> bool:
        """Whether the set is being closed; also for a signal that came while nothing was waited for."""
        self.look_at_signals()
        return bool(self.ending)

    def look_at_signals(self) -> None:
        """Take in signals: the first one says why the set is closed."""
        if self.reactor.signals and not self.ending:
            only_usr1 = tuple(self.reactor.signals) == (signal.SIGUSR1,)
            self.ending, self.ending_reason = TIME_LIMIT if only_usr1 else CANCELLED
            log(f"{self.ending_reason}: closing the set; `{self.resume_command}` goes on")
            # States first: what follows may not get the time it needs.
            if self.state:
                self.write(self.ending, self.ending_reason)
