"""Settle a killed job's remains: attempts marked as running, results without a state.

A job can be killed at any step, and small files lost. The next job derives every state from logs,
result and ledger.
"""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..kernel import records
from ..kernel.files import make_below, raise_if_away
from ..kernel.mllog_tail import last_status
from ..kernel.records import JobRecord, NodeRunRecord, RunRecord
from . import ledger
from .folder import Folder, sweep
from .new import seed_of


def settle(folder: Folder) -> None:
    """Close `running` attempts of dead jobs; give every run a state. Raises OSError,
    FolderError."""
    _settle_jobs(folder)
    sweep(folder.layout, folder.world)
    settling = Settling(folder)
    for run in range(1, folder.record.nexp + 1):
        make_below(folder.layout.root, folder.layout.run(run), folder.files)
        settling.settle_run(run)
    layout = folder.layout
    for place in (layout.runs, layout.root, layout.root.parent):
        with suppress(PermissionError):  # the log directory may be another user's
            folder.files.sync_folder(place)  # a result on the disk is found
    settling.complete_ledger()


def _settle_jobs(folder: Folder) -> None:
    """Close earlier jobs' records. Raises OSError."""
    files = folder.files
    for name in sorted(files.names(folder.layout.jobs)):
        path = folder.layout.jobs / name
        if not name.endswith(".json"):
            continue
        job = records.read(JobRecord, path, files, strict=True)
        if isinstance(job, JobRecord) and not job.ended_ms and job.job_id != folder.job_id:
            folder.write(as_failed(folder, job), path)


def as_failed(folder: Folder, job: JobRecord) -> JobRecord:
    """Return a dead job's record with an end. Raises OSError."""
    reason = job.reason or "the job ended without a word"
    return replace(job, state="failed", reason=reason, ended_ms=last_seen_ms(folder, job))


def last_seen_ms(folder: Folder, job: JobRecord) -> int:
    """Return the last change of a job's record or events: it may have been dead for days. Raises
    OSError."""
    root, files = folder.layout.root, folder.files
    begins = f"{folder.layout.events(job.job_id).stem}."  # of all its groups
    states = (files.state(root / name) for name in files.names(root) if name.startswith(begins))
    changed_ms = (int(1000 * state.mtime) for state in states if state is not None)
    last_ms = min(max([job.updated_ms, *changed_ms]), folder.world.wall_ms())
    return max(1, job.started_ms, last_ms)


class Settling:
    """Settles a set's runs and attempts."""

    def __init__(self, folder: Folder) -> None:
        """Raises OSError."""
        self._folder = folder
        self._layout, self._files = folder.layout, folder.files
        self._known = {ledger.subject(entry): entry for entry in self._ledger()}
        self._recorded: dict[int, list[int]] = {}
        for kind, run, attempt in self._known:
            if kind == "attempt" and attempt:
                self._recorded.setdefault(run, []).append(attempt)

    def _ledger(self) -> list[ledger.LedgerRecord]:
        return ledger.read(self._layout.root, self._files)[0]

    def attempts(self, run: int) -> list[int]:
        """Return a run's attempts, also those on record whose folder is lost. Raises OSError."""
        return sorted({*self._folder.attempts(run), *self._recorded.get(run, ())})

    def settle_run(self, run: int) -> None:
        """Give the run the state of its published or last attempt. Raises OSError, FolderError."""
        folder = self._folder
        states = [self._settled(run, attempt) for attempt in self.attempts(run)]
        usable = [state for state in states if state is not None]
        done = [state for state in usable if state.done]
        last = (done or usable or [RunRecord(run=run, state="queued")])[-1]
        last = next((state for state in done if self._is_result_of(state)), last)
        if self._files.exists(self._layout.result(run)):
            folder.link(run)
            if not last.done:  # states lost, result present
                last = self._rebuilt(run, last)
        elif last.done:
            last = self._published_again(last)
        if folder.run_state(run, strict=True) != last:
            folder.write(last, self._layout.run_state(run), sync=last.state != "queued")

    def _rebuilt(self, run: int, last: RunRecord) -> RunRecord:
        """Nothing but the run's result is left."""
        status = last_status(self._layout.result(run), files=self._files, strict=True)
        is_good = status == "success"
        return replace(
            last,
            state="success" if is_good else "failed",
            outcome="success" if is_good else "not_converged",
            reason="the run's state was lost; this is what its published result says",
            end_ms=last.end_ms or self._folder.world.wall_ms(),
        )

    def _published_again(self, state: RunRecord) -> RunRecord:
        """Publish a finished run's lost result again, if its log exists."""
        if self._publish(state):
            return state
        reason = "its result and its log are lost"
        state = replace(state, state="failed", outcome="infrastructure", reason=reason)
        self._folder.write(state, self._layout.attempt_state(state.run, state.attempt))
        return state

    def _settled(self, run: int, attempt: int) -> RunRecord | None:
        """Return an attempt's final state; None if it never started."""
        path = self._layout.attempt_state(run, attempt)
        state = records.read(RunRecord, path, self._files, strict=True)
        if state is None and ("attempt", run, attempt) not in self._known:
            try:
                self._files.remove_folder(path.parent)
                return None
            except FileNotFoundError:  # the server's reply was lost
                return None
            except OSError as error:  # it has logs
                raise_if_away(path, error)
        if not isinstance(state, RunRecord) or (state.run, state.attempt) != (run, attempt):
            state = self._as_left(run, attempt)
        if state.state != "running":
            return state
        ended = self.on_record(run, attempt)
        if ended is None:
            ended = self._by_its_logs(state)
            if missing := _unrecorded(ended, self._known):  # the ledger first, as in Folder.close
                self._folder.record_that(*missing)
        if ended.done and not self._files.exists(self._layout.result(run)):
            self._publish(ended)
        make_below(self._layout.root, path.parent, self._files)
        self._folder.write(ended, path)
        return ended

    def _by_its_logs(self, state: RunRecord) -> RunRecord:
        """Return an attempt's end by its logs. A successful run_stop finishes the run."""
        stops = self._stops(state.run, state.attempt)
        outcome = "interrupted"
        if "success" in stops.values():
            outcome = "success"
        elif any(stops.values()) and self._is_result_of(state):
            outcome = "not_converged"
        job = state.job_id or "unknown"
        return replace(
            state,
            state="success" if outcome == "success" else "failed",
            outcome=outcome,
            reason=state.reason or f"job {job} ended without closing this attempt",
            end_ms=self._last_change_ms(state),
        )

    def _publish(self, state: RunRecord) -> bool:
        """Publish a log with the state's outcome; False if missing."""
        for rank, status in self._stops(state.run, state.attempt).items():
            if status and (status == "success") == (state.outcome == "success"):
                self._folder.publish(state.run, state.attempt, rank)
                return True
        return False

    def on_record(self, run: int, attempt: int) -> RunRecord | None:
        """None without an end in the ledger, or if the logs contradict it."""
        entry = self._known.get(("end", run, attempt))
        data = entry.data.get("state") if entry else None
        state = records.checked(RunRecord, data) if isinstance(data, dict) else None
        if state is None or (state.run, state.attempt) != (run, attempt):
            return None
        if state.state == "running":
            return None
        return state if not state.done or any(self._stops(run, attempt).values()) else None

    def _as_left(self, run: int, attempt: int) -> RunRecord:
        """For an attempt without a usable state."""
        nodes = self._ends_of_nodes(run, attempt)
        return RunRecord(
            run=run,
            attempt=attempt,
            state="running",
            reason="its state was lost; this is what its logs say",
            seed=seed_of(self._folder.record.root_seed, run, attempt),
            nodes=self._names(run, attempt) or [nodes[rank].node for rank in sorted(nodes)],
            exit_codes={node.node: node.exit for node in nodes.values()},
            start_ms=min((node.start_ms for node in nodes.values()), default=0),
        )

    def _ends_of_nodes(self, run: int, attempt: int) -> dict[int, NodeRunRecord]:
        ranks = self._folder.ranks(run, attempt, ".json")
        paths = [self._layout.node_state(run, attempt, rank) for rank in ranks]
        records_read = [
            records.read(NodeRunRecord, path, self._files, strict=True) for path in paths
        ]
        return {node.rank: node for node in records_read if isinstance(node, NodeRunRecord)}

    def _names(self, run: int, attempt: int) -> list[str]:
        began = self._known.get(("attempt", run, attempt))
        names = began.data.get("nodes") if began else None
        is_whole = isinstance(names, list) and all(isinstance(name, str) for name in names)
        return list(names) if isinstance(names, list) and is_whole else []

    def _last_change_ms(self, state: RunRecord) -> int:
        """The last change of its logs: its nodes may have been dead for a day."""
        run, attempt = state.run, state.attempt
        ranks = self._folder.ranks(run, attempt, ".log")
        logs = [self._files.state(self._layout.node_log(run, attempt, rank)) for rank in ranks]
        changed = [int(1000 * log.mtime) for log in logs if log is not None]
        return min(max([state.start_ms, *changed]), self._folder.world.wall_ms())

    def _stops(self, run: int, attempt: int) -> dict[int, str]:
        ranks = self._folder.ranks(run, attempt, ".log")
        logs = {rank: self._layout.node_log(run, attempt, rank) for rank in ranks}
        return {
            rank: last_status(log, files=self._files, strict=True) for rank, log in logs.items()
        }

    def _is_result_of(self, state: RunRecord) -> bool:
        """Compare sizes: logs only grow, and nothing else is published."""
        run, attempt = state.run, state.attempt
        path = self._layout.result(run)
        try:
            head = self._size(self._layout.cache_log(run, attempt))
            result = self._files.state(path)
            ranks = self._folder.ranks(run, attempt, ".log")
            sizes = [self._size(self._layout.node_log(run, attempt, rank)) for rank in ranks]
        except OSError as error:
            raise_if_away(path, error)
            return False
        return result is not None and any(size + head == result.size for size in sizes)

    def _size(self, path: Path) -> int:
        state = self._files.state(path)
        return state.size if state else 0

    def complete_ledger(self) -> None:
        """Add records that a killed job did not write. Raises OSError."""
        known, missing = (
            {ledger.subject(entry) for entry in self._ledger()},
            list[ledger.NewRecord](),
        )
        for run in range(1, self._folder.record.nexp + 1):
            for attempt in self._folder.attempts(run):
                path = self._layout.attempt_state(run, attempt)
                state = records.read(RunRecord, path, self._files, strict=True)
                missing += _unrecorded(state, known) if isinstance(state, RunRecord) else []
            result = self._files.state(self._layout.result(run))
            if result is None or result.is_folder or ("result", run, 0) in known:
                continue
            last = self._folder.run_state(run, strict=True)
            path, attempt = self._layout.result(run), last.attempt if last else 0
            missing.append(ledger.published(path, run, attempt, -1, self._files))
        if missing:
            self._folder.record_that(*missing)


def _unrecorded(state: RunRecord, known: Container[tuple[str, int, int]]) -> list[ledger.NewRecord]:
    """Return an attempt's records missing among `known` subjects."""
    missing = []
    if ("attempt", state.run, state.attempt) not in known:
        missing.append(ledger.attempt_started(state))
    if ("end", state.run, state.attempt) not in known and state.state != "running":
        missing.append(ledger.attempt_ended(state))
    return missing
