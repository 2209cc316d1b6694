"""The end of a set's last job: by its nodes' logs, its output, the scheduler and the loop."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from orchestrator.causes.cause import ECHO, MACHINE, MENTION, PROGRAM, RESUME, SYMPTOM, Cause
from orchestrator.causes.first import first_cause, known, sentence
from orchestrator.causes.forms import is_job_cancelled, is_of_scheduler, is_outer_end
from orchestrator.causes.lines import cause_in, meaning
from orchestrator.causes.prefixes import stream_of, without_prefixes
from orchestrator.causes.reading import Symptom, symptoms
from orchestrator.causes.tables import BY_NAME, GENERIC, OUTER
from orchestrator.evidence.events import read_job_notes
from orchestrator.evidence.explanation import (
    JOB_LOG,
    NODE_LOG,
    RUN_LOG,
    UNKNOWN,
    Explanation,
    Wording,
)
from orchestrator.evidence.failures import AttemptEvidence
from orchestrator.evidence.own_causes import (
    ALL_UNFIT,
    LOOP_CAUSES,
    UNFIT,
    is_bookkeeping,
    last_line,
)
from orchestrator.evidence.quotes import Proof, Quotes, shortened
from orchestrator.onnode.kernel.log_ends import read_log_ends
from orchestrator.onnode.kernel.node_names import ALL_NODES
from orchestrator.onnode.kernel.records import JobRecord
from orchestrator.scheduler import advice
from orchestrator.scheduler.reasons import TIME_LIMIT, cause_of, ends_job, refused_step
from orchestrator.words import count

_NODES = re.compile(rf"({ALL_NODES}|nodes? \S+)")
_CHECK = re.compile(r"check \w+: (.*)")
_ENGINE = re.compile(r"(?:cannot pull|the container ended at once:) (.*)", re.DOTALL)
"""The engine's error follows, in a program's words."""

_SourceReport = tuple[Cause, str, list[Proof], str]
"""The report of a source: cause, sentence, evidence, and node ("" if none)."""


class LastEnd:
    """The end of a set's last job. `attempt`: its newest failed attempt."""

    def __init__(self, wording: Wording, quotes: Quotes, attempt: AttemptEvidence | None) -> None:
        self.files, self.picture = wording.files, wording.picture
        self.wording, self.quotes, self.attempt = wording, quotes, attempt

    def explain(self) -> Explanation:
        """Explain the end by the deepest source: of a grade, a line of the logs comes first."""
        attempt = self.attempt
        first = attempt.first if attempt else None
        cause = known(first[1]) if first else None
        if first is not None and first[1].grade == MENTION and (end := self._by_job_end()):
            return end
        if first is None or cause is None or cause.grade > PROGRAM:
            seen = first[1] if first else None
            if other := self._by_other_sources(_deeper_than(seen, cause), seen):
                return other
        if attempt is None or first is None or cause is None:
            return self._unknown(first)
        return self._by_logs(attempt, first, cause)

    def _by_logs(
        self, attempt: AttemptEvidence, first: tuple[str, Symptom], cause: Cause
    ) -> Explanation:
        node, symptom = first
        is_one = len(attempt.logs) == 1 and node in attempt.logs
        text = sentence(cause, "" if is_one else node)
        if cause.name in GENERIC and (symptom.offset >= 0 or symptom.raised):
            text = shortened(f"{text}: {without_prefixes(symptom.text).strip()}")
        proofs = self.quotes.of_cause(first, attempt.logs, attempt.by_node, attempt.error_of(node))
        if symptom.offset >= 0:
            proofs += self.quotes.context(attempt.logs[node], symptom.offset)
        proofs += self.quotes.last_key(attempt.record)
        return self.wording.explain(cause, text, proofs, node, attempt.record)

    # ---- other sources

    def _by_other_sources(
        self, deeper_than: int | None, seen: Symptom | None
    ) -> Explanation | None:
        """Explain the end by the scheduler, the job's output, the loop or its checks, if that is
        deeper than the logs. A program that raised an exception had been started."""
        began = seen is not None and seen.raised and seen.grade <= PROGRAM
        for report in self._other_sources():
            cause, _, proofs, _ = report
            if deeper_than is not None and deeper_than <= SYMPTOM and ends_job(cause):
                continue
            by_scheduler = bool(proofs) and is_of_scheduler(proofs[0].text)
            if began and (cause.name in OUTER or (by_scheduler and cause.grade == PROGRAM)):
                continue
            if deeper_than is None or cause.grade < deeper_than:
                return self._explained(report)
        return None

    def _by_job_end(self) -> Explanation | None:
        """Explain the end by the scheduler's end of the whole job; the loop cancels steps, too."""
        for report in self._other_sources():
            cause, _, proofs, _ = report
            if cause.name == "cancelled" and not any(is_job_cancelled(it.text) for it in proofs):
                continue
            if ends_job(cause):
                return self._explained(report)
        return None

    def _explained(self, report: _SourceReport) -> Explanation:
        return self.wording.explain(*report, self.attempt.record if self.attempt else None)

    def _other_sources(self) -> Iterator[_SourceReport]:
        # A step that the loop ends looks cancelled, so an echo counts last.
        output = self._cause_of_output()
        if output is not None and output[0].grade < ECHO:
            yield output
        yield from self._of_a_lost_job()
        yield from self._of_unfit_nodes()
        yield from self._of_reasons()
        yield from self._of_the_time_limit()
        if output is not None and output[0].grade == ECHO:
            yield output

    def _cause_of_output(self) -> _SourceReport | None:
        if self._in_output is None:
            return None
        symptom, proofs = self._in_output
        cause = refused_step(symptom.text) or known(symptom)
        if cause is None:
            return None
        text = cause.sentence
        if cause.name in GENERIC:
            text = shortened(f"{text}: {without_prefixes(symptom.text).strip()}")
        return cause, text, proofs, ""

    @cached_property
    def _in_output(self) -> tuple[Symptom, list[Proof]] | None:
        """The line of the job's output that explains its end, with those around it."""
        job_id = self.picture.job_id
        if not job_id or "/" in job_id:
            return None
        log = read_log_ends(self.files.layout.job_output(job_id), self.files.findings.inside)
        if log is None:
            return None
        foreign = [
            item
            for item in symptoms(log.text)
            if b" orchestrator: " not in log.text[item.offset : item.offset + 80]
            and not is_bookkeeping(item.text)
        ]
        first = first_cause({"job": foreign}, {})
        if first is None:
            return None
        symptom = first[1]
        around = self.quotes.context(log, symptom.offset)
        return symptom, [*self.quotes.episode(log, symptom), *around]

    @property
    def _started_job(self) -> JobRecord | None:
        """The record of the job in charge; None if that never started, as after a resume."""
        return None if self.files.awaited else self.files.job

    def _of_a_lost_job(self) -> Iterator[_SourceReport]:
        """Yield the scheduler's reason. A job without a record ended before it began."""
        picture, job = self.picture, self._started_job
        if picture.state != "lost":
            return
        cause = cause_of(f"{picture.job_state} {'' if job else picture.reason}")
        if cause and (cause.grade == MACHINE or not job):
            text = f"job {picture.job_id}: {picture.job_state if job else picture.reason}"
            yield cause, cause.sentence, [Proof(advice.QUEUE_LISTING, 0, shortened(text))], ""

    def _of_unfit_nodes(self) -> Iterator[_SourceReport]:
        began = self.files.job.started_ms if self.files.job else 0
        events = self.files.layout.events(self.picture.job_id or "0")
        notes = read_job_notes(self.files)
        for aside in (*notes.aside, *notes.blamed):
            if aside.time_ms and aside.time_ms < began:
                continue
            cause = BY_NAME.get(meaning(aside.reason, ())[0])
            if cause is None and aside.kind == "check" and aside.reason:
                cause = replace(UNFIT, sentence=shortened(aside.reason))
            if cause is not None:
                proof = self.quotes.in_file(events, aside.reason)
                yield cause, sentence(cause, aside.node), [proof], aside.node

    def _of_reasons(self) -> Iterator[_SourceReport]:
        """Yield the reasons in the attempt's and the job's records."""
        layout, job = self.files.layout, self._started_job
        records = []
        if self.attempt:
            record = self.attempt.record
            records.append((record.reason, layout.attempt_state(record.run, record.attempt)))
        if job:
            records.append((job.reason, layout.job(job.job_id)))
        for reason, path in records:
            if reason and (cause := _cause_of_reason(reason)):
                who = _NODES.match(reason)
                text = sentence(cause, who[1] if who else "")
                yield cause, text, [self.quotes.in_file(path, reason)], ""

    def _of_the_time_limit(self) -> Iterator[_SourceReport]:
        picture = self.picture
        if picture.state != "time_limit":
            return
        text = f"{picture.done} of {count(len(picture.runs), 'run')} done"
        if not self.files.finished:
            text = "no run of the last job ended in time"
        yield TIME_LIMIT, text, [Proof("", 0, picture.reason)] if picture.reason else [], ""

    # ---- no source has a known cause

    def _unknown(self, first: tuple[str, Symptom] | None) -> Explanation:
        """Quote the lines, and name the place to check first."""
        record = self.attempt.record if self.attempt else None
        logs = self.attempt.logs if self.attempt else {}
        node = self.attempt.first_node if self.attempt else ""
        error = self.attempt.error_of(node) if self.attempt else None
        proofs = self.quotes.of_cause(first, logs, {}, error) if first else []
        if first and first[1].offset >= 0:
            proofs += self.quotes.context(logs[first[0]], first[1].offset)
        reason = record.reason if record and record.reason else self.picture.reason
        remedy = ""
        output_line = self._in_output
        if output_line and (first is None or _is_deeper(output_line[0], first[1])):
            first, proofs, record = None, output_line[1], None
            reason = without_prefixes(output_line[0].text).strip()
            remedy = "look at the lines around it in the job's output"
        if first and first[1].offset >= 0 and first[1].grade < ECHO:
            reason = f"{_who(first)} failed first: {without_prefixes(first[1].text).strip()}"
            remedy = (
                "look at the frames above the quoted line, at the same time in the other nodes' "
                "logs, and at the node's kernel log"
            )
        log = logs.get(node) or next(iter(logs.values()), None)
        if not proofs and log and (proofs := self.quotes.last_lines(log)):
            reason = f"{reason}; the log ends with: {proofs[-1].text.strip()}".removeprefix("; ")
        if not proofs and self.picture.job_id and "/" not in self.picture.job_id:
            output = self.files.layout.job_output(self.picture.job_id)
            last = last_line(output, self.files.findings.inside)
            proofs = [self.quotes.in_file(output, last)] if last else []
        template = (NODE_LOG if node else RUN_LOG) if record else JOB_LOG
        if self.picture.state == "lost" and self._started_job and first is None:
            template = RESUME
            remedy = remedy or (
                "its loop was killed, or its host failed; resume closes the run and continues"
            )
        return Explanation(
            self.picture.state,
            UNKNOWN,
            shortened(f"cause unknown: {reason}" if reason else "cause unknown"),
            remedy,
            self.wording.command(template, node, record),
            [*proofs, *self.quotes.last_key(record)],
            node,
        )


def _deeper_than(symptom: Symptom | None, cause: Cause | None) -> int | None:
    """Return the grade that other sources must be deeper than; None if any counts."""
    if symptom is None or (cause is None and symptom.grade >= ECHO):
        return None
    return ECHO if cause is None else symptom.grade


def _is_deeper(output: Symptom, log: Symptom) -> bool:
    """Return whether a line of the job's output explains more than a line of a node's log.

    The end of the job does not, if a rank had failed before.
    """
    if log.grade <= SYMPTOM and is_outer_end(output.text):
        return False
    return output.grade < log.grade


def _cause_of_reason(reason: str) -> Cause | None:
    """Return the cause in the loop's reason: its own, the engine's, or a check's."""
    cause = cause_in(reason, LOOP_CAUSES)
    if cause is None and (engine := _ENGINE.search(reason)):
        cause = BY_NAME.get(meaning(engine[1], ())[0])
    if cause is None and (check := _CHECK.search(reason)):
        cause = replace(ALL_UNFIT, sentence=shortened(check[1]))
    return cause


def _who(first: tuple[str, Symptom]) -> str:
    """Return a line's node, and its rank if it has one."""
    node, symptom = first
    rank = stream_of(symptom.text, without_prefixes(symptom.text))
    return f"{node} ({rank})" if rank else node
