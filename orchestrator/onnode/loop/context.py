"""Who holds nodes: a preflight that only asks, or a job that works on a set and keeps its own record, jobs/<job id>.json."""

from __future__ import annotations

import gzip
import hashlib
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from ..kernel import records
from ..kernel.events import EventLog
from ..kernel.flow import Flow
from ..kernel.layout import Layout
from ..kernel.records import JobRecord
from ..kernel.settings import Settings
from ..policy.job_state import JobEnd, ending
from ..policy.place import ClusterState, waiting_now
from ..policy.reports import Check, NodeReport
from ..set.folder import Folder
from .host import BatchHost
from .nodes import Nodes
from .status import JobStatus


class ActiveGroup(Protocol):
    """A group of nodes, as far as the job's record tells of it. `at`: the last run and attempt that began there."""

    number: int
    at: tuple[int, int]

    @property
    def cluster(self) -> ClusterState: ...

    @property
    def is_at_work(self) -> bool: ...


class JobContext:
    """What a group of nodes needs of who holds it. Without a set there is nothing to keep a record of."""

    events: EventLog
    scheduler: Nodes
    job_id: str
    has_spares = False
    image = ""
    """The identity of the image that the nodes have."""
    unique: frozenset[str] = frozenset()
    """Variables of the runs that have another value in each job."""
    ending = ""
    """Why nothing more is begun; "" as long as it is."""

    def __init__(self, bundle: Path, settings: Settings, layout: Layout, world: BatchHost) -> None:
        self.bundle, self.settings, self.layout, self.world = bundle, settings, layout, world
        self.environment, self.log = world.environment, world.log
        self.pool: list[str] = []
        """Nodes that are left for all groups."""
        self.rows: dict[str, dict[str, Check]] = {}
        """node -> check -> what it said."""
        self.pulls: dict[int, int] = {}
        """Group -> how many of its nodes pull the image now."""
        self.behind: set[int] = set()
        """Groups that others did not wait for before their first runs."""
        self.reactor = world.reactor(self.look_at_signals)

    def look_at_signals(self) -> None:
        """Take in signals."""
        self.ending = "cancelled"

    def warn(self, text: str) -> None:
        """Put a warning into the job's output and its record, once."""

    def write(self, state: str = "", reason: str = "") -> bool:
        """Write the job's own state; False if the storage does not allow it."""
        return True

    def check_for_end(self) -> bool:
        """Whether nothing more is begun. To be asked before nodes are blamed."""
        return bool(self.ending)

    def exclude(self, node: str, kind: str, reason: str, at: tuple[int, int]) -> None:
        """Put on record that a node is not used any more; `at`: run and attempt (0 before the first)."""

    def others(self, group: int) -> dict[str, NodeReport]:
        """Return what the nodes told that are ready in other groups."""
        return {}

    def meet(self, group: int) -> Flow:
        """Wait until the other groups have their first nodes ready, too, or cannot."""
        yield from ()

    def take_image(self, image: str) -> None:
        """Take note of the identity of the image that the nodes have; "" changes nothing."""
        self.image = image or self.image

    def node_names(self, words: str) -> list[str]:
        """Return the nodes that the scheduler means by `n[1-3]`."""
        return self.scheduler.names(words)

    def append_to(self, path: Path, text: str) -> None:
        """Add a line to a log. One that cannot be written stops nothing."""
        with suppress(OSError):
            self.world.files.append(path, f"{text}\n".encode("utf-8", "replace"))


class SetContext(JobContext):
    """A job with its set."""

    ending_reason = ""

    def __init__(
        self, settings: Settings, scheduler: Nodes, folder: Folder, world: BatchHost
    ) -> None:
        super().__init__(folder.layout.bundle, settings, folder.layout, world)
        self.scheduler, self.folder, self.job_id = scheduler, folder, scheduler.job_id
        self.status = JobStatus(world.wall_ms())
        self.unexplained: list[str] = []
        """The signals that end the job, as long as Slurm has not answered why they came."""
        self.active: list[ActiveGroup] = []
        """The groups of nodes that are at work."""
        self.port_base = int("".join(filter(str.isdecimal, self.job_id))[-6:] or "0") * 101
        self.has_spares = len(scheduler.allocated) > settings.nnodes
        self.side_by_side = False
        self.resume_command = f"orchestrator resume {self.layout.root.name}"

    def environment_file(self) -> None:
        """Write the environment of the runs. Raises SettingsError, OSError."""
        files = self.world.files
        text, self.unique = self.world.config(self.bundle, self.settings, self.folder.record.nexp)
        records.replace(self.layout.environment, text, files=files)
        # Of each job, and small: values that are unique make each of them another one.
        records.replace(
            self.layout.job_environment(self.job_id), gzip.compress(text, mtime=0), files=files
        )
        what = {
            "job_id": self.job_id,
            "restart": self.scheduler.restart,
            "environment": hashlib.sha256(text).hexdigest(),
        }
        self.folder.record_that(("job", {**what, "edited": self.status.edited}))

    def write(self, state: str = "", reason: str = "") -> bool:
        """Write the job's own state, as long as the set is its own: its successor has closed it otherwise.

        Return False if the storage does not allow it. That does not stop the job here: the next state of a run does.
        """
        status = self.status
        status.go_on(state, reason)
        if not self.folder.is_mine:
            return self.folder.is_lost
        final, clusters = status.state in JobRecord.FINAL, [one.cluster for one in self.active]
        nodes = [node for one in clusters for node in one.workers]
        groups = [
            {
                "nodes": one.cluster.workers,
                "run": one.at[0] * one.is_at_work,
                "attempt": one.at[1] * one.is_at_work,
            }
            for one in self.active
        ]
        record = JobRecord(
            job_id=self.job_id,
            state=status.state,
            reason=status.reason,
            host=self.world.host,
            pid=self.world.pid,
            started_ms=status.started_ms,
            updated_ms=self.world.wall_ms(),
            ended_ms=self.world.wall_ms() if final else 0,
            nodes=nodes
            or list(self.scheduler.allocated[: self.settings.nnodes * max(1, len(self.active))]),
            run=status.run,
            attempt=status.attempt,
            image_digest=self.image,
            engine=self.settings.engine,
            spares=[*(node for one in clusters for node in waiting_now(one)), *self.pool],
            set_aside=status.excluded,
            warnings=status.warnings,
            groups=groups if self.side_by_side and not final else [],
            ledger=self.folder.head,
            edited=status.edited,
        )
        try:
            records.write(record, self.layout.job(self.job_id), sync=final, files=self.world.files)
        except OSError as error:
            text = f"error: cannot write {self.layout.job(self.job_id)}: {error.strerror}"
            if status.fail_to_write(text):  # said once, however often it is tried
                self.log(text)
            return False
        status.fail_to_write("")
        return True

    def warn(self, text: str) -> None:
        """Put a warning into the job's output and its record, once."""
        if self.status.warn(text):
            self.log(f"WARNING: {text}")

    def exclude(self, node: str, kind: str, reason: str, at: tuple[int, int]) -> None:
        """Put on record that a node is not used any more; `at`: run and attempt (0 before the first)."""
        self.log(f"node {node} is set aside: {reason}")
        about = {"node": node, "kind": kind, "reason": reason}
        self.status.excluded.append(
            {**about, "run": at[0], "attempt": at[1], "time_ms": self.world.wall_ms()}
        )

    def is_ending(self) -> bool:
        """Whether the set is being closed; also for a signal that came while nothing was waited for."""
        self.reactor.notice()
        self.look_at_signals()
        return bool(self.ending)

    def look_at_signals(self) -> None:
        """Take in signals: the first one says why the set is closed."""
        if self.reactor.signals and not self.ending:
            self.unexplained = [signal.Signals(one).name for one in self.reactor.signals]
            # On record before Slurm is asked, should there be no time for an answer.
            self._end_as(*ending(self.unexplained, JobEnd()))
            self.ask_why()

    def check_for_end(self) -> bool:
        """Whether the set is being closed. Slurm is asked: it signals the processes of a job one by one, perhaps this one last.

        No answer is not a no, so it is asked again, three times in all.
        """
        if not self.is_ending():
            answers = (self.scheduler.job_end() for _ in range(3))
            end = next((end for end in answers if end is not None), JobEnd())
            if end.is_ended:
                self._explain([], end)
        return bool(self.ending)

    def ask_why(self) -> None:
        """Ask Slurm why the job is ended, unless it has answered."""
        if not self.unexplained:
            return
        end = self.scheduler.job_end()
        self._explain(self.unexplained, end or JobEnd())
        if end is not None:
            self.unexplained = []

    def _explain(self, signals: list[str], end: JobEnd) -> None:
        decided = ending(signals, end)
        if decided != (self.ending, self.ending_reason):
            self._end_as(*decided)
        self.note_ending(
            {"signals": signals, "told": end.text, "state": decided[0], "reason": decided[1]}
        )

    def note_ending(self, decided: dict[str, Any]) -> None:
        """Put on record why the set is closed."""

    def _end_as(self, state: str, reason: str) -> None:
        self.ending, self.ending_reason = state, reason
        self.log(f"{reason}: closing the set; `{self.resume_command}` goes on")
        # States first: what follows may not get the time it needs.
        if self.status.state:
            self.write(state, reason)
