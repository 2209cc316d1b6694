"""The folder of a set, written: making it, taking it for one job, settling what a killed job left, states and results.

What it writes is described in docs/set-folder.md. A published result is final: nothing here replaces one.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ..kernel import records
from ..kernel.events import number
from ..kernel.files import Files, is_temporary
from ..kernel.layout import Layout
from ..kernel.mllog_tail import last_status
from ..kernel.records import JobRecord, NodeRunRecord, RunRecord, SetRecord
from ..kernel.settings import Settings
from ..kernel.world import THIS, World, stamp
from ..set import bundle as bundle_files
from ..set import ledger, sharing
from ..set.lease import HeldError, Lease, remove_abandoned, remove_unfinished
from ..set.seeds import draw_root, largest_root, seed_of
from ..set.submissions import settle_own
from .host import BatchHost
from .nodes import Flow, Nodes

NO_ROOM = "disk full, quota, or the folder is gone"
_BUNDLE_COPY = ".bundle.tmp."
"""How the names of unfinished copies of a bundle begin."""


class FolderError(Exception):
    """The set cannot be worked on; the message says why."""


@dataclass
class Folder:
    """The set folder of one job. `job_id` has taken it: `check_mine` before everything that others may see."""

    layout: Layout
    record: SetRecord
    job_id: str
    world: World = THIS
    lease: Lease | None = None
    head: str = ""
    """Of the ledger, after what this job put on record."""
    _known: dict[tuple[str, object, object], ledger.LedgerRecord] = field(default_factory=dict)

    @property
    def files(self) -> Files:
        return self.world.files

    # ---- runs and attempts ----

    def run_state(self, run: int, *, strict: bool = False) -> RunRecord | None:
        """Return the state of a run; None without one that can be used. `strict`: raise OSError if the storage does not answer."""
        found = records.read(RunRecord, self.layout.run_state(run), self.files, strict=strict)
        return found if isinstance(found, RunRecord) else None

    def is_done(self, run: int) -> bool:
        """Whether a run has a result that counts. Raises OSError: a run must not be repeated for a read that failed."""
        state = self.run_state(run, strict=True)
        return state is not None and state.done

    def missing(self) -> list[int]:
        """Return the runs without a result that counts. Raises OSError."""
        return [run for run in range(1, self.record.nexp + 1) if not self.is_done(run)]

    def last_attempt(self, run: int) -> int:
        return max(self._attempts(run), default=0)

    def has_results(self) -> bool:
        """Whether a run has a published result."""
        return any(self.files.has_name(self.layout.result(run)) for run in range(1, self.record.nexp + 1))

    def _attempts(self, run: int) -> list[int]:
        return records.numbered(self.layout.run(run), "", "attempt_", self.files, strict=True)

    def _ranks(self, run: int, attempt: int, suffix: str) -> list[int]:
        return records.numbered(self.layout.attempt(run, attempt), suffix, "node_", self.files, strict=True)

    def begin(self, state: RunRecord) -> None:
        """Make the folder of an attempt and say that it runs. Raises FolderError, OSError."""
        self.check_mine()
        self.files.make_folder(self.layout.attempt(state.run, state.attempt))
        for path in self._states(state):
            self._write(state, path, sync=False)
        self.record_that(_began(state), once=True)  # a try that failed after this line is repeated

    def record_that(self, *said: ledger.Said, once: bool = False) -> None:
        """Put something into the set's ledger; `once`: what is not on record already. Raises OSError."""
        root, world = self.layout.root, self.world
        cluster = self.lease.me.cluster if self.lease else ""
        try:
            self.head = ledger.append(root, *said, job=self.job_id, cluster=cluster, once=once, world=world)
        except HeldError as held:
            raise OSError(errno.EBUSY, f"the ledger is held: {held}", str(held.path)) from held

    def verify_bundle(self, kept: str) -> list[str]:
        """Return the files of the bundle that were edited since it was made, and are meant so.

        `kept`: its hash in the environment that the scheduler has kept since the submission, "" of a job started by hand. Raises
        FolderError for a bundle that is not what was declared, or meant later; OSError.
        """
        found = bundle_files.hashes(self.layout.bundle)
        now = bundle_files.changed(found, self.layout.bundle, self.record.bundle_sha256)
        if wrong := bundle_files.unexpected(now, bundle_files.accepted(ledger.read(self.layout.root, self.files)[0])):
            raise FolderError(
                f"the bundle was edited since it was declared: {', '.join(wrong[:8])}; if that is meant: "
                f"orchestrator resume {self.layout.root} --edited"
            )
        if kept and bundle_files.digest(found) != kept:
            raise FolderError(
                "the bundle was edited since this job was submitted; `orchestrator resume` submits it anew"
            )
        return sorted(now)

    def close(self, state: RunRecord, rank: int | None) -> None:
        """Publish the log of `rank` as the run's result, where there is one, and write the final states.

        The ledger first: what it says and is not there yet, the next job makes so. Then the result: a state never speaks of one
        that is not there. What is final is on the disk before anybody can see it. Raises FolderError, OSError.
        """
        self.check_mine()
        if rank is not None:
            self._publish(state.run, state.attempt, rank, _ended(state))
        else:
            self.record_that(_ended(state), once=True)
        for path in self._states(state):
            self._write(state, path)

    def _write(self, record: records.StateFile, path: Path, *, sync: bool = True) -> None:
        records.write(record, path, sync=sync, files=self.files)

    def _states(self, state: RunRecord) -> tuple[Path, Path]:
        return self.layout.attempt_state(state.run, state.attempt), self.layout.run_state(state.run)

    def _publish(self, run: int, attempt: int, rank: int, *said: ledger.Said) -> None:
        """Make a log the result of its run. `said` and the result are put on record before."""
        result, temporary = self.layout.result(run), self.layout.run(run) / f".result.tmp.{self.world.token()}"
        try:
            self.files.join(temporary, (self.layout.cache_log(run, attempt), self.layout.node_log(run, attempt, rank)))
            self.check_mine()  # the log may be long
            if self.files.has_name(result):
                raise FolderError(f"{result} is there already; a published result is never replaced")
            # A job that was killed before the next line has put it on record already.
            self.record_that(*said, _result(temporary, run, attempt, rank, self.files), once=True)
            self._put_in_place(temporary, result)
        finally:
            self.files.remove(temporary)
        self.link(run)

    def _put_in_place(self, temporary: Path, result: Path) -> None:
        """Give a result its name, unless there is one already. Raises FolderError, OSError."""
        try:
            self.files.link(temporary, result)  # fails if there is one already
        except OSError as error:
            if self.files.has_name(result):
                raise FolderError(f"{result} is there already; a published result is never replaced") from error
            self.files.rename(temporary, result)  # a file system without hard links
        self.files.sync_folder(result.parent)

    def link(self, run: int) -> None:
        link = self.layout.result_link(run)
        if not self.files.has_name(link):
            self.files.point(link, f"../runs/{run}/result_{run}.txt")

    # ---- one job at a time ----

    def taking(self, scheduler: Nodes, lost: Callable[[], object] = lambda: None) -> Flow:
        """Take the set for this job; return who had it and is gone, or "". Raises FolderError when another works on it.

        A job that the scheduler does not show any more is waited for until it is silent for long enough: it may live on. `lost`
        is called, perhaps in another thread, when the set turns out to be another job's.
        """
        lock, me = self.layout.loop_lock, self.world.holder(scheduler.job_id, scheduler.cluster, scheduler.restart)
        self.lease = Lease(lock, me, sees=scheduler.sees, lost=lost, world=self.world)
        try:
            gone = yield from self.lease.taking(wait=True)
        except HeldError as held:
            raise FolderError(
                f"{held.holder} is already working on {self.layout.root}: {held.verdict.why}"
                f" (if it is gone for certain: rm {lock})"
            ) from held
        except OSError as error:
            words = "disk full, quota, or a read-only file system"
            raise FolderError(f"cannot write {lock} ({words}): {error.strerror or error}") from error
        return str(gone) if gone else ""

    @property
    def is_mine(self) -> bool:
        """Whether this job still has the set. A loop that Slurm has given up may live on, its successor may be done."""
        try:
            return self.lease is not None and self.lease.mine
        except OSError:
            return False

    @property
    def is_lost(self) -> bool:
        """Whether another job has the set, for certain: not only because the storage does not answer, or is not mounted."""
        try:
            return (self.lease is None or not self.lease.mine) and self.files.state(self.layout.root) is not None
        except OSError:
            return False

    def check_mine(self) -> None:
        """Raise FolderError when another job has taken the set, OSError when that cannot be told."""
        if self.lease is None or not self.lease.mine:
            raise FolderError(f"{self.layout.loop_lock} is not this job's any more: another job has the set, or had it")

    def let_go(self) -> None:
        if self.lease is not None:
            if self.is_mine:
                self._sweep()
                with suppress(OSError):
                    settle_own(self.layout, self.job_id, self.lease.me.cluster, self.world)
            self.lease.release()
            remove_abandoned(self.world)

    def _sweep(self) -> None:
        """Remove the unfinished files of nodes and jobs that were killed while they wrote."""
        layout = self.layout
        folders = [layout.root, layout.jobs, layout.preflight, *self._below(layout.nodes)]
        for run in self._below(layout.runs):
            attempts = self._below(run)
            folders += [run, *attempts, *(attempt / "hang" for attempt in attempts)]
        for folder in folders:
            with suppress(OSError):
                for name in self.files.names(folder):
                    if name.startswith(_BUNDLE_COPY):  # the set has its bundle: nobody makes one any more
                        self.files.remove_tree(folder / name)
                    elif is_temporary(name):
                        self.files.remove(folder / name)
        with suppress(OSError):
            remove_unfinished(layout.loop_lock, self.world)

    def _below(self, folder: Path) -> list[Path]:
        """Return the folders in a folder; none if it cannot be listed."""
        try:
            return [folder / name for name in sorted(self.files.names(folder)) if "." not in name]
        except OSError:
            return []

    # ---- what a killed job left ----

    def settle(self) -> None:
        """Say how attempts ended that a killed job left as `running`, and give every run a state. Raises OSError, FolderError."""
        for name in sorted(self.files.names(self.layout.jobs)):
            path = self.layout.jobs / name
            job = records.read(JobRecord, path, self.files, strict=True) if name.endswith(".json") else None
            if isinstance(job, JobRecord) and not job.ended_ms and job.job_id != self.job_id:
                words = job.reason or "the job ended without a word"
                self._write(replace(job, state="failed", reason=words, ended_ms=self.world.wall_ms()), path)
        self._sweep()
        self._known = {_key(one): one for one in ledger.read(self.layout.root, self.files)[0]}
        for run in range(1, self.record.nexp + 1):
            self.files.make_folder(self.layout.run(run), parents=True, exist_ok=True)
            self._settle_run(run)
        for folder in (self.layout.runs, self.layout.root, self.layout.root.parent):
            with suppress(PermissionError):  # the log directory may be another's
                self.files.sync_folder(folder)  # a result that is on the disk is found there
        self._complete_ledger()

    def _complete_ledger(self) -> None:
        """Put on record what a killed job had no time to."""
        known, missing = {_key(one) for one in ledger.read(self.layout.root, self.files)[0]}, list[ledger.Said]()
        for run in range(1, self.record.nexp + 1):
            for attempt in self._attempts(run):
                state = records.read(RunRecord, self.layout.attempt_state(run, attempt), self.files, strict=True)
                if isinstance(state, RunRecord):
                    missing += [] if ("attempt", run, attempt) in known else [_began(state)]
                    missing += [] if ("end", run, attempt) in known or state.state == "running" else [_ended(state)]
            result = self.files.state(self.layout.result(run))
            if result is not None and not result.is_folder and ("result", run, 0) not in known:
                last = self.run_state(run, strict=True)
                missing.append(_result(self.layout.result(run), run, last.attempt if last else 0, -1, self.files))
        if missing:
            self.record_that(*missing)

    def _settle_run(self, run: int) -> None:
        """Make the run's state that of its last attempt, or of the one whose result is out. A job can be killed at any step."""
        last = RunRecord(run=run, state="queued")
        states = [self._settled(run, attempt) for attempt in self._attempts(run)]
        found = [state for state in states if state is not None]
        done = [state for state in found if state.done]
        last = next((state for state in done if self._is_result_of(state)), (done or found or [last])[-1])
        if self.files.exists(self.layout.result(run)):
            self.link(run)
            if not last.done:  # the states were lost, the result is not
                last = self._rebuilt(run, last)
        elif last.done:
            last = self._published_again(last)
        if self.run_state(run, strict=True) != last:
            self._write(last, self.layout.run_state(run), sync=last.state != "queued")

    def _is_result_of(self, state: RunRecord) -> bool:
        """Whether the run's result is a log of this attempt. Sizes tell: logs only grow, and nothing else is published."""
        logs = self.layout.attempt(state.run, state.attempt)
        try:
            head = self._size(self.layout.cache_log(state.run, state.attempt))
            result = self.files.state(self.layout.result(state.run))
            sizes = [self._size(logs / f"node_{rank}.log") for rank in self._ranks(state.run, state.attempt, ".log")]
            return result is not None and any(size + head == result.size for size in sizes)
        except OSError:
            return False

    def _published_again(self, state: RunRecord) -> RunRecord:
        """The result of a run that is done is not there: publish it once more; without its log the run has none."""
        stops = self._stops(state.run, state.attempt)
        for rank, status in stops.items():
            if (status == "success") == (state.outcome == "success") and status:
                self._publish(state.run, state.attempt, rank)
                return state
        state = replace(state, state="failed", outcome="infrastructure", reason="its result and its log are lost")
        self._write(state, self.layout.attempt_state(state.run, state.attempt))
        return state

    def _stops(self, run: int, attempt: int) -> dict[int, str]:
        """Rank -> status of the last run_stop in its log."""
        ranks = self._ranks(run, attempt, ".log")
        logs = {rank: self.layout.node_log(run, attempt, rank) for rank in ranks}
        return {rank: last_status(log, files=self.files, strict=True) for rank, log in logs.items()}

    def _settled(self, run: int, attempt: int) -> RunRecord | None:
        """Return the final state of an attempt; None for one that had not begun."""
        path = self.layout.attempt_state(run, attempt)
        state = records.read(RunRecord, path, self.files, strict=True)
        if state is None and ("attempt", run, attempt) not in self._known:
            with suppress(OSError):
                self.files.remove_folder(path.parent)
                return None
        if not isinstance(state, RunRecord) or (state.run, state.attempt) != (run, attempt):
            state = self._as_left(run, attempt)
        if state.state == "running" and (ended := self._on_record(run, attempt)) is not None:
            told = [rank for rank, status in self._stops(run, attempt).items() if status]
            if ended.done and told and not self.files.exists(self.layout.result(run)):
                self._publish(run, attempt, told[0])
            self._write(ended, path)
            return ended
        if state.state != "running":
            return state
        stops = self._stops(run, attempt)
        good = next((rank for rank, status in stops.items() if status == "success"), None)
        outcome = "interrupted"
        if good is not None:
            # It was a finished run: it is published, not repeated.
            outcome = "success"
            if not self.files.exists(self.layout.result(run)):
                self._publish(run, attempt, good)
        elif any(stops.values()) and self._is_result_of(state):
            outcome = "not_converged"
        word = "success" if outcome == "success" else "failed"
        reason = state.reason or f"job {state.job_id or 'unknown'} ended without closing this attempt"
        state = replace(state, state=word, outcome=outcome, reason=reason, end_ms=self._last_change_ms(state))
        self._write(state, path)
        return state

    def _last_change_ms(self, state: RunRecord) -> int:
        """Return when the logs of an attempt were written last: by now its nodes may have been gone for a day."""
        ranks = self._ranks(state.run, state.attempt, ".log")
        logs = [self.files.state(self.layout.node_log(state.run, state.attempt, rank)) for rank in ranks]
        changed = [int(1000 * log.mtime) for log in logs if log is not None]
        return min(max([state.start_ms, *changed]), self.world.wall_ms())

    def _on_record(self, run: int, attempt: int) -> RunRecord | None:
        """Return how an attempt ended by the ledger; None where that says nothing, or not what its logs say."""
        found = self._known.get(("end", run, attempt))
        data = found.data.get("state") if found else None
        state = records.checked(RunRecord, data) if isinstance(data, dict) else None
        if state is None or (state.run, state.attempt) != (run, attempt) or state.state == "running":
            return None
        return state if not state.done or any(self._stops(run, attempt).values()) else None

    def _as_left(self, run: int, attempt: int) -> RunRecord:
        """Return what is known of an attempt whose own state is lost, or damaged."""
        ranks = self._ranks(run, attempt, ".json")
        paths = [self.layout.node_state(run, attempt, rank) for rank in ranks]
        told = [records.read(NodeRunRecord, path, self.files, strict=True) for path in paths]
        nodes = {one.rank: one for one in told if isinstance(one, NodeRunRecord)}
        began = self._known.get(("attempt", run, attempt))
        names = began.data.get("nodes") if began else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            names = [nodes[rank].node for rank in sorted(nodes)]  # those that had time to say how they ended
        return RunRecord(
            run=run, attempt=attempt, state="running", reason="its state was lost; this is what its logs say",
            seed=seed_of(self.record.root_seed, run, attempt), nodes=names,
            exit_codes={one.node: one.exit for one in nodes.values()},
            start_ms=min((one.start_ms for one in nodes.values()), default=0),
        )  # fmt: skip

    def _size(self, path: Path) -> int:
        """Return the size of a file; 0 when there is none."""
        state = self.files.state(path)
        return state.size if state else 0

    def _rebuilt(self, run: int, last: RunRecord) -> RunRecord:
        status = last_status(self.layout.result(run), files=self.files, strict=True)
        word, outcome = ("success", "success") if status == "success" else ("failed", "not_converged")
        reason = "the run's state was lost; this is what its published result says"
        return replace(last, state=word, outcome=outcome, reason=reason, end_ms=last.end_ms or self.world.wall_ms())


def _began(state: RunRecord) -> ledger.Said:
    return "attempt", {"run": state.run, "attempt": state.attempt, "seed": state.seed, "nodes": state.nodes}


def _ended(state: RunRecord) -> ledger.Said:
    return "end", {"run": state.run, "attempt": state.attempt, "state": asdict(state)}


def _result(path: Path, run: int, attempt: int, rank: int, files: Files) -> ledger.Said:
    """What is on record of a result; `rank` is -1 where it was published before it was put on record."""
    whole = hashlib.sha256()
    with files.open(path) as file:
        while piece := file.read(1 << 20):
            whole.update(piece)
        size = file.tell()
    return "result", {"run": run, "attempt": attempt, "rank": rank, "sha256": whole.hexdigest(), "bytes": size}


def _key(one: ledger.LedgerRecord) -> tuple[str, object, object]:
    """What a record is about; of a result the run alone."""
    return one.kind, one.data.get("run"), 0 if one.kind == "result" else one.data.get("attempt")


def open_folder(bundle: Path, settings: Settings, scheduler: Nodes, world: BatchHost) -> Folder:
    """Find or make the set folder. The controller names it in ORCH_SET_DIR; a job started by hand makes a new one.

    Raises FolderError.
    """
    named, files = world.environment.get("ORCH_SET_DIR", ""), world.files
    made = stamp(world.wall_ms(), "%Y%m%d-%H%M%S", utc=True)
    name = f"{settings.system}-{settings.workload}-{made}-{world.token(2)}"
    root = Path(named) if named else Path(settings.logdir) / name
    if named and not files.is_folder(root):
        raise FolderError(
            f"ORCH_SET_DIR={root} does not exist on {world.host}; is the log directory on shared storage?"
        )
    layout = Layout(root)
    try:
        if settings.shared_group and not files.exists(root):
            files.make_folder(root, parents=True)
            sharing.give(root, settings.shared_group)
        for folder in (layout.jobs, layout.runs, layout.results, layout.nodes):
            files.make_folder(folder, parents=True, exist_ok=True)
        layout = Layout(Path(files.real_path(root)))
        said = ledger.read(layout.root, files)[0]
        record, before = records.read(SetRecord, layout.set_file, files, strict=True), ledger.declared(said)
        if record is None and before is None:
            if records.numbered(layout.runs, "", files=files, strict=True) or said:
                raise FolderError(f"{layout.set_file} is gone, and the set has runs; put it back, or start a new set")
            _describe(bundle, settings, scheduler, layout, world)
            record = records.read(SetRecord, layout.set_file, files)
        elif before is not None and not isinstance(record, SetRecord):
            record = before
            records.write(record, layout.set_file, files=files)
        if not isinstance(record, SetRecord):
            raise FolderError(f"{record or layout.set_file}; it is damaged")
        if before is not None and (before.nexp, before.root_seed) != (record.nexp, record.root_seed):
            raise FolderError(
                f"{layout.set_file} says {record.nexp} runs with root seed {record.root_seed}, and {before.nexp} with "
                f"{before.root_seed} were declared ({ledger.NAME}); put it back, or start a new set"
            )
        _check_range(record, layout.set_file)
        if not files.is_folder(layout.bundle):
            _copy(bundle, layout, settings.shared_group, world)
        if before is None:
            state = files.state(layout.root)
            first = [ledger.declaration(record, layout.root, state.inode if state else 0)]
            if record.bundle_sha256:  # a set that a job makes is of the bundle as it is
                edits = bundle_files.changed(bundle_files.hashes(layout.bundle), layout.bundle, record.bundle_sha256)
                first += [("edit", {"files": edits})] if edits else []
            ledger.append(layout.root, *first, job=scheduler.job_id, world=world)
    except HeldError as held:
        raise FolderError(f"{held}; try again") from held
    except LookupError as error:
        raise FolderError(f"{error} (`shared_group` of the site file)") from error
    except OSError as error:
        raise FolderError(f"cannot write to {root}: {error.strerror or error} (LOGDIR={settings.logdir})") from error
    return Folder(layout, record, scheduler.job_id, world)


def _check_range(record: SetRecord, path: Path) -> None:
    """Raise FolderError for a set whose runs cannot all have a seed."""
    if not 0 < record.nexp < 10_000 or record.root_seed < 1:
        raise FolderError(f"{path}: `root_seed` or `nexp` is out of its range; it is damaged")
    if record.root_seed > (largest := largest_root(record.nexp)):
        raise FolderError(
            f"{path}: `root_seed` is {record.root_seed}; seeds of {record.nexp} runs stay below 2^31 only up to "
            f"{largest}; start a new set, or put the file back if it is damaged"
        )


def _copy(bundle: Path, layout: Layout, group: str, world: World) -> None:
    """Keep what runs: nodes run from this copy, and an edit of the original cannot reach a running set. Raises OSError."""
    temporary = layout.root / f"{_BUNDLE_COPY}{world.pid}"
    try:
        world.files.copy_tree(bundle, temporary)  # what a group can change, it can have run
        if group:
            sharing.show(temporary, group)
        world.files.rename(temporary, layout.bundle)
    except OSError:
        world.files.remove_tree(temporary)
        raise


def _describe(bundle: Path, settings: Settings, scheduler: Nodes, layout: Layout, world: BatchHost) -> None:
    given = world.environment.get("ROOT_SEED", "")
    seed, largest = number(given, 10) if given else draw_root(settings.nexp, world), largest_root(settings.nexp)
    if seed is None or not 1 <= seed <= largest:
        raise FolderError(
            f"ROOT_SEED={given} must be a number from 1 to {largest}: seeds of {settings.nexp} runs stay below 2^31"
        )
    try:
        sha = hashlib.sha256(world.files.read_bytes(bundle / "manifest.json")).hexdigest()
    except OSError:
        sha = ""
    same = ("system", "workload", "benchmark", "round", "ruleset", "nexp", "gpus_per_node", "engine", "metric")
    record = SetRecord(
        **{name: getattr(settings, name) for name in (*same, "max_attempts", "run_timeout_s")},
        set_id=layout.root.name, root_seed=seed, created_ms=world.wall_ms(), created_by="job", scheduler=scheduler.name,
        job_name=f"orch-{layout.root.name}", nodes=settings.nnodes, image=settings.cont, bundle_sha256=sha,
        target=float(settings.target) if settings.target else None,
        target_is_upper_bound=settings.target_is_upper_bound == "true", pass_env=list(settings.pass_env),
    )  # fmt: skip
    records.write(record, layout.set_file, files=world.files)
