"""Reading the small files of a set, as they are now, before the scheduler is asked."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.runset.layout import Layout
from orchestrator.runset.records import Finding, JobRecord, Record, SetRecord, SubmissionRecord, numbered, read


@dataclass(slots=True)
class SetFiles:
    """set.json, the newest submission and the jobs (rising by start) of one set."""

    layout: Layout
    record: SetRecord | None = None
    jobs: list[JobRecord] = field(default_factory=list)
    submission: SubmissionRecord | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def job(self) -> JobRecord | None:
        return self.jobs[-1] if self.jobs else None

    @property
    def awaited(self) -> bool:
        """Whether there is a submission whose job has not written a state yet."""
        asked = self.submission
        if asked is None or asked.state == "refused" or any(job.job_id == asked.job_id for job in self.jobs):
            return False
        return self.job is None or asked.requested_ms > self.job.started_ms

    @property
    def job_id(self) -> str:
        """The job in charge: the one that is awaited, or the last one that wrote a state; "" without one."""
        if self.awaited and self.submission is not None:
            return self.submission.job_id
        return self.job.job_id if self.job else ""

    @property
    def settled(self) -> bool:
        """Whether the files alone tell the state: the job in charge closed the set, or there is none."""
        return not self.awaited and (self.job is None or self.job.final)


def set_folders(log_dir: Path) -> list[Path]:
    """Folders below `log_dir`, newest first by the time stamp in a set's name. A folder that is not there has none."""
    try:
        with os.scandir(log_dir) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    except OSError:
        return []
    return [log_dir / name for name in sorted(names, key=_stamp, reverse=True)]


def _stamp(name: str) -> tuple[str, str]:
    parts = name.rsplit("-", 3)  # <system>-<workload>-<date>-<time>-<hex>
    return ("-".join(parts[1:3]) if len(parts) == 4 and parts[1].isdigit() else "", name)


def read_files(root: Path) -> SetFiles:
    """Read the set in `root`. Raises nothing: what cannot be read is in `findings`."""
    files = SetFiles(Layout(root))
    files.record = keep(read(SetRecord, f"{root}/set.json"), files.findings)
    for name in _json_names(f"{root}/jobs"):
        job = keep(read(JobRecord, f"{root}/jobs/{name}"), files.findings)
        if job is not None:
            files.jobs.append(job)
    files.jobs.sort(key=lambda job: job.started_ms)
    last = max(numbered(files.layout.submissions), default=0)
    if last:
        files.submission = keep(read(SubmissionRecord, f"{root}/submissions/{last}.json"), files.findings)
    return files


def surely_settled(root: Path) -> bool:
    """Whether the jobs alone show that the set is settled: every submission has one, and all are closed.

    One small file for most sets instead of three: a log directory can hold a thousand sets.
    """
    names = _json_names(f"{root}/jobs")
    if not names or len(names) < len(_json_names(f"{root}/submissions")):
        return False
    jobs = (read(JobRecord, f"{root}/jobs/{name}") for name in names)
    return all(isinstance(job, JobRecord) and job.final for job in jobs)


def keep(found: Record | Finding | None, findings: list[Finding]) -> Record | None:
    """`found`, or None after it was put with the other findings."""
    if isinstance(found, Finding):
        findings.append(found)
        return None
    return found


def _json_names(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith(".")]
    except OSError:
        return []
