"""One set's folder: its top-level files, and the walk over its runs and attempts, each file read at
most once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from orchestrator.errors import SetError
from orchestrator.evidence.files import Findings, is_node_name
from orchestrator.mllog.source import bundle_problem
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.records import (
    Finding,
    JobRecord,
    NodeRunRecord,
    RunRecord,
    SetRecord,
    read,
)
from orchestrator.onnode.kernel.records import SubmissionRecord as SubmissionRecord
from orchestrator.onnode.kernel.walk import MOST_RUNS, FilesInside
from orchestrator.words import quoted


@dataclass(frozen=True, slots=True)
class RunSet:
    """An existing set: its place and its record."""

    layout: Layout
    record: SetRecord

    @property
    def name(self) -> str:
        return self.record.set_id


def began_after(job: JobRecord, asked: SubmissionRecord) -> bool:
    """Compare by the ledger, which only grows, else by the clocks of two hosts."""
    of_job, of_request = _length(job.ledger), _length(asked.ledger)
    if of_job and of_request and of_job != of_request:
        return of_job > of_request
    return job.started_ms >= asked.requested_ms


def _length(head: str) -> int:
    """Return a ledger's length, 0 if unknown."""
    number = head.partition(" ")[0]
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 10 else 0


class SetEvidence:
    """The content of a set's folder. Its top is read at once, runs and attempts on demand.

    Never raises: `findings` has the unusable files. `jobs` are in order, `submission` is the
    newest.
    """

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root)
        self.findings = Findings(root)
        self.record = self._record()
        jobs = self._jobs()
        self.submission = self._submission()
        self.jobs = self._in_order(jobs)
        self._runs: dict[int, RunRecord | None] = {}
        self._ends: dict[tuple[int, int], dict[int, NodeRunRecord]] = {}

    def _record(self) -> SetRecord | None:
        record = read_set_record(self.layout, self.findings.inside)
        if isinstance(record, Finding):
            self.findings.put(record)
            return None
        return record

    def _jobs(self) -> list[JobRecord]:
        # Not through Layout: a log directory can hold a thousand sets, and most need these two.
        folder = f"{self.layout.root}/jobs"
        names = [name for name in self.findings.names(folder) if name.endswith(".json")]
        records = (self.findings.record(JobRecord, f"{folder}/{name}") for name in names)
        jobs = sorted((job for job in records if job is not None), key=lambda job: job.started_ms)
        if all(_length(job.ledger) for job in jobs):
            jobs.sort(key=lambda job: _length(job.ledger))
        return jobs

    def _in_order(self, jobs: list[JobRecord]) -> list[JobRecord]:
        """Sort jobs by their submissions: clocks differ by hours."""
        if len(jobs) < 2 or (
            self.submission is not None and self.submission.job_id == jobs[-1].job_id
        ):
            return jobs
        asked = [record.job_id for record in self.submissions]
        submitted = iter(
            sorted(
                (job for job in jobs if job.job_id in asked),
                key=lambda job: asked.index(job.job_id),
            )
        )
        return [next(submitted) if job.job_id in asked else job for job in jobs]

    def _submission(self) -> SubmissionRecord | None:
        last = max(self.findings.walk.submissions(), default=0)
        path = f"{self.layout.root}/submissions/{last}.json"
        return self.findings.record(SubmissionRecord, path) if last else None

    @cached_property
    def submissions(self) -> list[SubmissionRecord]:
        """Return the readable submissions, first to last."""
        records = (
            self.findings.record(SubmissionRecord, self.layout.submission(number))
            for number in self.findings.walk.submissions()
        )
        return [record for record in records if record is not None]

    # ---- the job in charge ----

    @property
    def job(self) -> JobRecord | None:
        return self.jobs[-1] if self.jobs else None

    @property
    def awaited(self) -> bool:
        """Return whether a submission's job has not written a state so far, and can be needed."""
        asked = self.submission
        if (
            asked is None
            or asked.state == "refused"
            or any(job.job_id == asked.job_id for job in self.jobs)
            or (asked.settled and self._needs_no_job)
        ):
            return False
        if self.job is None or any(record.job_id == self.job.job_id for record in self.submissions):
            return True
        return not began_after(self.job, asked)

    @property
    def _needs_no_job(self) -> bool:
        """Return whether all runs are done, and no job works on the set. A job submitted meanwhile,
        after the scheduler gave up the job's host, has nothing to do."""
        return (self.job is None or self.job.final) and self.has_every_run

    @property
    def has_every_run(self) -> bool:
        return self.record is not None and not self.missing(self.record.nexp)

    @property
    def job_id(self) -> str:
        """Return the job in charge: the awaited job, or the last with a state; "" if missing."""
        if self.awaited and self.submission is not None:
            return self.submission.job_id
        return self.job.job_id if self.job else ""

    @property
    def is_one(self) -> bool:
        """Return whether the folder is a set, or the remains of one."""
        return bool(self.record or self.findings or self.jobs or self.submission)

    @property
    def settled(self) -> bool:
        """Return whether the files alone show the state: the job in charge closed the set, or there
        is none."""
        return not self.awaited and (self.job is None or self.job.final)

    @cached_property
    def copy_of(self) -> str:
        """Return the original of a copied set, or "": a copy's jobs are the original's."""
        try:
            from orchestrator.evidence.copies import original
            from orchestrator.onnode.set import ledger

            entries = ledger.read(self.layout.root, self.findings.inside)[0]
            return original(self.layout.root, entries)
        except OSError:
            return ""

    @cached_property
    def extended(self) -> bool:
        """Return whether runs were added to the set after its declaration."""
        try:
            from orchestrator.onnode.set import ledger

            entries = ledger.read(self.layout.root, self.findings.inside)[0]
            return bool(ledger.extensions(entries))
        except OSError:
            return False

    @property
    def added_runs(self) -> int:
        """Return the number of added runs of a complete set that have not started."""
        if not (self.settled and self.record and self.job and self.job.state == "complete"):
            return 0
        runs = map(self.run, range(1, self.record.nexp + 1))
        queued = sum(run is None or run.state == "queued" for run in runs)
        return queued if queued and self.extended else 0

    @property
    def finished(self) -> list[int]:
        if self.record is None or self.job is None:
            return []
        records = (self.run(run) for run in range(1, self.record.nexp + 1))
        return [run.run for run in records if run and run.done and run.job_id == self.job.job_id]

    @property
    def bundle_problem(self) -> str:
        """Return why the declared bundle is unusable, or ""."""
        return bundle_problem(
            str(self.layout.root), self.record.bundle_sha256 if self.record else ""
        )

    @property
    def too_few_runs(self) -> int:
        """Return how many runs a score needs if fewer were declared, by the bundle; else 0. A
        rehearsal gets no more runs."""
        if self.record is None or self.record.rehearsed:
            return 0
        number = self.findings.json(self.layout.bundle / "workload.json").get("runs_required")
        if isinstance(number, int) and self.record.nexp < number <= MOST_RUNS:
            return number
        return 0

    # ---- the walk ----

    def run(self, run: int) -> RunRecord | None:
        if run not in self._runs:
            path = f"{self.findings.walk.run(run)}/state.json"
            self._runs[run] = self.findings.record(RunRecord, path)
        return self._runs[run]

    def missing(self, nexp: int) -> list[int]:
        """Return the runs of 1 .. `nexp` without a final result."""
        records = ((run, self.run(run)) for run in range(1, nexp + 1))
        return [run for run, record in records if record is None or not record.done]

    def attempts_of(self, run: int) -> list[int]:
        """Return the attempts of a run with a folder, in ascending order."""
        return self.findings.walk.attempts(run)

    @cached_property
    def tried(self) -> list[tuple[int, int]]:
        """Return (run, attempt) of every attempt with a folder, in order."""
        runs = self.findings.walk.runs()
        return [(run, attempt) for run in runs for attempt in self.attempts_of(run)]

    def attempt(self, run: int, attempt: int) -> RunRecord | None:
        return self.findings.record(RunRecord, self.layout.attempt_state(run, attempt))

    def ends(self, run: int, attempt: int) -> dict[int, NodeRunRecord]:
        """Return the nodes' records of an attempt's end, by rank."""
        key = (run, attempt)
        if key not in self._ends:
            records = (
                (k, self.findings.record(NodeRunRecord, self.layout.node_state(run, attempt, k)))
                for k in self.findings.walk.ranks(run, attempt, ".json")
            )
            self._ends[key] = {rank: record for rank, record in records if record is not None}
        return self._ends[key]

    @cached_property
    def node_folders(self) -> list[str]:
        return list(self._node_folders())

    def _node_folders(self) -> Iterator[str]:
        for name in self.findings.names(self.layout.nodes):
            if not is_node_name(name):
                self.findings.add(self.layout.nodes, f"{ascii(name)[:300]} is no name of a node")
            elif (self.layout.nodes / name).is_dir():
                yield name

    def job_tables(self, prefix: str = "") -> list[tuple[str, str]]:
        """Return (job, content) of preflight/<prefix><job>.tsv, by the jobs' starts."""
        started = {job.job_id: job.started_ms for job in self.jobs}
        names = (
            name for name in self.findings.names(self.layout.preflight) if name.endswith(".tsv")
        )
        jobs = [
            name.removeprefix(prefix).removesuffix(".tsv")
            for name in names
            if name.startswith(prefix)
        ]
        jobs = [job for job in jobs if prefix or not job.startswith("deep-")]
        jobs.sort(key=lambda job: (started.get(job, 0), job))
        return [
            (job, self.findings.text(self.layout.preflight / f"{prefix}{job}.tsv")) for job in jobs
        ]


def going(job: JobRecord) -> list[tuple[int, int]]:
    """Return (run, attempt) of a job's active or last runs; (0, 0) before the first."""
    pairs = (
        (group.get("run"), group.get("attempt")) for group in job.groups if isinstance(group, dict)
    )
    runs = [
        (run, attempt)
        for run, attempt in pairs
        if type(run) is int and type(attempt) is int and run > 0 < attempt
    ]
    return sorted(runs) or [(job.run, job.attempt)]


def read_set_record(layout: Layout, files: FilesInside | None = None) -> SetRecord | Finding | None:
    """Return set.json; None if missing, a Finding if it is unusable. `files`: those of the set."""
    path = f"{layout.root}/set.json"
    files = files or FilesInside(layout.root)
    record = read(SetRecord, path, files)
    if not isinstance(record, SetRecord):
        record = _declared(layout, files) or record
    if isinstance(record, SetRecord) and not 0 <= record.nexp <= MOST_RUNS:
        return Finding(
            Path(path), f"`nexp` is {record.nexp}, and a set has at most {MOST_RUNS} runs"
        )
    return record


def _declared(layout: Layout, files: FilesInside) -> SetRecord | None:
    """Return the declared set, if its set.json is lost."""
    from orchestrator.onnode.set import ledger

    try:
        return ledger.declared(ledger.read(layout.root, files)[0])
    except OSError:
        return None


def is_set(folder: Path) -> bool:
    """Return whether a folder is a set that may be read."""
    from orchestrator.onnode.set.ledger import NAME

    # Path.exists raises PermissionError.
    return os.path.exists(folder / "set.json") or os.path.exists(folder / NAME)


def entry_of(record: SetRecord) -> list[str]:
    """Return the arguments of other commands for the set's system, workload and round."""
    return [record.system, record.workload, *(["--round", record.round] if record.round else [])]


def again(record: SetRecord, nexp: int = 0) -> list[str]:
    """Return the command, after `orchestrator`, that submits the same set again, with `nexp`
    runs."""
    label = ["--name", record.label] if record.label else []
    return ["submit", *entry_of(record), "--nexp", str(nexp or record.nexp), *label]


def open_set(root: Path) -> RunSet:
    """Return the set in `root`. Raises SetError if its set.json is missing or unusable."""
    layout = Layout(root)
    record = read_set_record(layout)
    if isinstance(record, SetRecord):
        return RunSet(layout, record)
    if isinstance(record, Finding):
        raise SetError(
            f"{record}",
            hint=f"the set's results may be fine all the same: orchestrator score {quoted(root)}",
        )
    raise SetError(
        f"{root} is no set: it has no set.json", hint="orchestrator status lists the sets"
    )


def check_log_dir(log_dir: Path) -> None:
    if not log_dir.is_dir():
        raise SetError(
            f"the log directory {log_dir} does not exist here",
            hint=(
                f"is the shared storage mounted? Otherwise mkdir -p {quoted(log_dir)} there, or "
                "correct "
                "log_dir in the site file"
            ),
        )


def set_folders(log_dir: Path) -> list[Path]:
    """Return the folders below `log_dir`, newest first by the stamps in their names, those of the
    same second by their records; [] without the folder. Raises SetError if it is unreadable."""
    try:
        with os.scandir(log_dir) as entries:
            names = [
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and _is_folder(entry)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise SetError(
            f"{log_dir} cannot be read: {error.strerror}",
            hint=f"its owner and mode: ls -ld {quoted(log_dir)}"
            if isinstance(error, PermissionError)
            else "the storage may have failed for a moment: try again",
        ) from error
    of_second = Counter(map(_stamp, names))  # records are read only where the second is not enough

    def age(name: str) -> tuple[str, int, str]:
        stamp = _stamp(name)
        is_clear = not stamp or of_second[stamp] == 1
        return stamp, 0 if is_clear else _created_ms(log_dir / name), name

    return [log_dir / name for name in sorted(names, key=age, reverse=True)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a loop of links, or a link to a closed folder
        return False


def _stamp(name: str) -> str:
    parts = name.rsplit("-", 3)  # <system>-<workload>-<date>-<time>-<hex>
    return "-".join(parts[1:3]) if len(parts) == 4 and parts[1].isdigit() else ""


def _created_ms(root: Path) -> int:
    record = read(SetRecord, f"{root}/set.json", FilesInside(root))
    return record.created_ms if isinstance(record, SetRecord) else 0


def surely_settled(root: Path) -> bool:
    """Return whether the jobs alone show that the set is settled: every submission has a closed
    one.

    One small file for most sets instead of three: a log directory can hold a thousand sets.
    """
    files = Findings(root)
    jobs, submissions = _json_names(files, "jobs"), _json_names(files, "submissions")
    if not jobs or len(jobs) < len(submissions):
        return False
    records = (files.record(JobRecord, f"{root}/jobs/{name}") for name in jobs)
    return all(job is not None and job.final for job in records)


def _json_names(files: Findings, folder: str) -> list[str]:
    names = files.names(f"{files.walk.root}/{folder}")
    return [name for name in names if name.endswith(".json")]
