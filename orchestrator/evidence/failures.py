"""The failed attempts of a set: logs, errors of processes, exit codes, the node that failed
first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from orchestrator.causes.first import ENDED_BY_LOOP, Ended, ended_first, first_cause
from orchestrator.causes.reading import Symptom, symptoms
from orchestrator.evidence.elastic import first_error, with_error
from orchestrator.evidence.files import is_node_name
from orchestrator.evidence.picture import SetPicture
from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.kernel.log_ends import LogEnds, read_log_ends
from orchestrator.onnode.kernel.records import RunRecord

_MOST_TRIED = 9
"""Attempts that are compared: three of three jobs."""


class AttemptEvidence:
    """One attempt with its nodes' logs, each read when first needed."""

    def __init__(self, files: SetEvidence, record: RunRecord) -> None:
        self.files, self.record = files, record

    @cached_property
    def logs(self) -> dict[str, LogEnds]:
        """The two ends of each node's log, by rank, without nodes without a log."""
        layout, run, attempt = self.files.layout, self.record.run, self.record.attempt
        files = self.files.findings.inside
        logs = {
            node: read_log_ends(layout.node_log(run, attempt, rank), files)
            for rank, node in enumerate(self.record.nodes)
            if is_node_name(node)
        }
        return {node: log for node, log in logs.items() if log is not None}

    @cached_property
    def ends(self) -> dict[str, Ended]:
        """Return how each node ended."""
        records = self.files.ends(self.record.run, self.record.attempt)
        return {
            node: Ended(
                self.record.exit_codes.get(node),
                records[rank].end_ms - records[rank].start_ms if rank in records else None,
            )
            for rank, node in enumerate(self.record.nodes)
        }

    @cached_property
    def _reported(self) -> dict[str, tuple[list[Symptom], Path | None]]:
        """Each node's symptoms, and the file with the error that its processes reported."""
        reported: dict[str, tuple[list[Symptom], Path | None]] = {}
        for node, log in self.logs.items():
            layout = self.files.layout
            folder = layout.node_files(self.record.run, self.record.attempt, node)
            read, error = symptoms(log.text), first_error(folder, layout.root)
            reported[node] = (with_error(read, error), error.path) if error else (read, None)
        return reported

    @cached_property
    def by_node(self) -> dict[str, list[Symptom]]:
        """Each node's symptoms; an error reported by its processes comes first."""
        return {node: reported for node, (reported, _) in self._reported.items()}

    def error_of(self, node: str) -> Path | None:
        return self._reported[node][1] if node in self._reported else None

    @cached_property
    def first(self) -> tuple[str, Symptom] | None:
        """The node and the line of the first cause."""
        return first_cause(self.by_node, self.ends)

    @property
    def first_node(self) -> str:
        """The node that failed first, "" if unknown."""
        return self.first[0] if self.first else ended_first(self.ends)

    def is_like(self, other: AttemptEvidence) -> bool:
        """Return whether two attempts failed by the same exit codes and cause, on whichever
        node."""
        return self._codes == other._codes and self._cause == other._cause

    @property
    def _codes(self) -> set[int]:
        """Return the exit codes of nodes that ended by themselves."""
        return {code for code in self.record.exit_codes.values() if code not in (0, *ENDED_BY_LOOP)}

    @property
    def _cause(self) -> str:
        return self.first[1].cause if self.first else ""


class FailedAttempts:
    """The failed attempts of a set; of a complete set those of runs without a result."""

    def __init__(self, files: SetEvidence, picture: SetPicture) -> None:
        self.files, self.picture = files, picture

    @cached_property
    def last(self) -> AttemptEvidence | None:
        """The newest attempt of the last job that died or was cut off."""
        job = self.files.job
        tried = self.files.tried
        if self.picture.state == "complete":
            tried = [key for key in tried if key[0] in self.picture.given_up]
        records = (self.files.attempt(*key) for key in tried)
        failed = [
            record
            for record in records
            if record is not None
            and record.state != "success"
            and record.outcome != "not_converged"
            and (job is None or record.job_id in ("", job.job_id))
        ]
        if not failed:
            return None
        newest = max(failed, key=lambda record: (record.start_ms, record.run, record.attempt))
        return AttemptEvidence(self.files, newest)

    def by_job(self, last: AttemptEvidence) -> list[list[AttemptEvidence]]:
        """Return the newest failed attempts of an attempt's run, by job, its own job last."""
        jobs: dict[str, list[AttemptEvidence]] = {}
        for number in self.files.attempts_of(last.record.run)[-_MOST_TRIED:]:
            record = self.files.attempt(last.record.run, number)
            if record is not None and record.outcome == "infrastructure":
                is_last = number == last.record.attempt
                attempt = last if is_last else AttemptEvidence(self.files, record)
                jobs.setdefault(record.job_id, []).append(attempt)
        attempts = jobs.pop(last.record.job_id, [last])
        return [*jobs.values(), attempts]


def failed_alone(node: str, attempts: Sequence[AttemptEvidence]) -> bool:
    """Return whether one node, and no other, failed alike in several attempts."""
    if len(attempts) < 2 or not node:
        return False
    code = attempts[-1].record.exit_codes.get(node)
    if not code:  # if programs end with 0 when they fail, only the order is known
        return all(attempt.first_node == node for attempt in attempts)
    return all(_nodes_with(code, attempt.record) == [node] for attempt in attempts)


def failed_in(attempts: Sequence[AttemptEvidence]) -> str:
    """Return the node that failed alone in all attempts of a job, or ""."""
    node = attempts[-1].first_node
    return node if failed_alone(node, attempts) else ""


def _nodes_with(code: int, record: RunRecord) -> list[str]:
    return [node for node, its in record.exit_codes.items() if its == code]
