"""Why a set is pending, slow, paused, hung or failed: one sentence, its evidence, the next command.
docs/explain.md

The rules are data: causes/causes.json for the output of programs,
scheduler/slurm_reasons.py for Slurm, own_causes.py for the loop.
Only the two ends of each log are read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any

from orchestrator.causes.cause import (
    ECHO,
    LEAVE_OUT,
    MACHINE,
    MENTION,
    PROGRAM,
    RESUME,
    SYMPTOM,
    Cause,
)
from orchestrator.causes.first import (
    ENDED_BY_LOOP,
    Ended,
    ended_first,
    first_cause,
    known,
    sentence,
)
from orchestrator.causes.forms import is_job_cancelled, is_of_slurm, is_outer_end
from orchestrator.causes.lines import cause_in, meaning
from orchestrator.causes.prefixes import stream_of, without_prefixes
from orchestrator.causes.reading import Symptom, symptoms
from orchestrator.causes.tables import BY_NAME, GENERIC, OUTER
from orchestrator.evidence.elastic import first_error, with_error
from orchestrator.evidence.events import read_told
from orchestrator.evidence.files import is_node_name
from orchestrator.evidence.nodes import read_history, suspicions
from orchestrator.evidence.own_causes import (
    ALL_UNFIT,
    LOOP_CAUSES,
    UNFIT,
    is_bookkeeping,
    last_line,
)
from orchestrator.evidence.picture import RunPicture, SetPicture
from orchestrator.evidence.progress import TAIL_BYTES, read_end
from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.silence import RunSilence, most_urgent
from orchestrator.evidence.state import QUEUED, STATES
from orchestrator.onnode.kernel.files import PathLike
from orchestrator.onnode.kernel.log_ends import LogEnds, read_log_ends
from orchestrator.onnode.kernel.mllog_tail import lines, telling_log
from orchestrator.onnode.kernel.node_names import ALL_NODES, fold
from orchestrator.onnode.kernel.records import JobRecord, RunRecord
from orchestrator.onnode.policy.reports import line
from orchestrator.scheduler import advice
from orchestrator.scheduler.slurm_reasons import REASONS, refused_step
from orchestrator.words import count

MOST_EVIDENCE, MOST_EPISODE, MOST_TEXT = 6, 2, 300
MOST_TRIED = 9
"""Attempts that are compared: three jobs with three each."""
_NODES = re.compile(rf"({ALL_NODES}|nodes? \S+)")
_CHECK = re.compile(r"check \w+: (.*)")
_ENGINE = re.compile(r"(?:cannot pull|the container ended at once:) (.*)", re.DOTALL)
"""The engine's error follows, in a program's words."""
_NAN_RECORD = re.compile(rb":::MLLOG [^\n]*: NaN[,}][^\n]*")
_LAST_BYTES = 4096
UNKNOWN = "unknown"
_TRY_AGAIN = "orchestrator resume "
_OF_A_NODE = frozenset({"killed", "crash", "log_missing"})
"""Causes that blame a node that failed first in each attempt, as does an end without any line."""
SLURM_ENDS = ("time_limit", "cancelled", "preempted")
"""How a job ended, not why."""
_NEXT = {
    "new": RESUME,
    "unknown": "orchestrator status {set}",
    "pending": advice.show_start("{job}"),
    "starting": "orchestrator watch {set}",
    "running": "orchestrator watch {set}",
    "ending": "orchestrator watch {set}",
    "complete": "orchestrator score {set}",
    "damaged": "orchestrator score {set}",
}
_LOG = "orchestrator logs {set} --run {run} --attempt {attempt}"
_JOB_LOG = "orchestrator logs {set} --job"
_SILENT = {
    "hung": (
        "nothing to do: the nodes record what their processes do, then the run is repeated",
        "orchestrator watch {set}",
    ),
    "loop_silent": (
        (
            "check the batch host and its storage; if the loop stays silent, cancel the set and "
            "resume it"
        ),
        _JOB_LOG,
    ),
    "silent": ("nothing to do: at the limit the loop ends the attempt and repeats the run", _LOG),
}
"""The help for a silent run or loop, and the next command."""
_SLOW = "check the nodes", "orchestrator nodes {set}"
_LATE = "look at the end of its log; the loop ends a run that hangs at its limit", _LOG
"""The same for a slow node, and for a long run whose nodes are all alike."""


@dataclass(frozen=True)
class Proof:
    """A line of evidence. `line` counts from 1, below 0 from the end of the file (-1: the last
    one), 0: no line of a file."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.text}" if place else self.text


@dataclass
class Explanation:
    """`cause` is a name of docs/explain.md, the set's state if nothing is wrong, or `unknown`."""

    state: str
    cause: str
    sentence: str
    remedy: str = ""
    next: str = ""
    evidence: list[Proof] = field(default_factory=list)
    node: str = ""
    """The node that failed first, if known."""

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "cause": self.cause,
            "known": self.cause != UNKNOWN,
            "sentence": self.sentence,
            "remedy": self.remedy,
            "next": self.next,
            "evidence": [vars(proof) for proof in self.evidence],
        }


def _cut(text: str) -> str:
    """Return one line of at most MOST_TEXT characters, which ends in `...` if it was cut."""
    return line(text, MOST_TEXT) if len(text) <= MOST_TEXT else f"{line(text, MOST_TEXT - 4)} ..."


def _codes(attempt: RunRecord) -> set[int]:
    """Return how an attempt's nodes failed by themselves."""
    return {code for code in attempt.exit_codes.values() if code not in (0, *ENDED_BY_LOOP)}


def _who(first: tuple[str, Symptom]) -> str:
    """Return the node of a line, and its rank if the line has a rank."""
    node, symptom = first
    rank = stream_of(symptom.text, without_prefixes(symptom.text))
    return f"{node} ({rank})" if rank else node


def _is_deeper(output: Symptom, log: Symptom) -> bool:
    """Return whether a line of the job's output explains more than a line of a node's log.

    How Slurm ended the job does not, if a rank had failed before.
    """
    if log.grade <= SYMPTOM and is_outer_end(output.text):
        return False
    return output.grade < log.grade


class _Set:
    """The explanation of one set."""

    def __init__(self, files: SetEvidence, picture: SetPicture) -> None:
        self.files, self.picture, self.root = files, picture, files.layout.root
        self.errors: dict[str, Path] = {}
        """The files with the errors that the processes of a node reported themselves."""
        self.first: dict[tuple[int, int], tuple[str, str]] = {}
        """Run and attempt -> the node that failed first, and its cause."""

    def named(self, path: PathLike) -> str:
        return line(os.path.relpath(path, self.root), MOST_TEXT)

    def in_file(self, path: Path, text: str) -> Proof:
        """Return the line of a small file that contains `text`."""
        ends = read_log_ends(path)
        key = text.encode("utf-8", "replace")[:80]
        offset = ends.text.find(key) if ends and key else -1
        return Proof(
            self.named(path),
            ends.line(offset) if ends and offset >= 0 else 0,
            _cut(text),
        )

    def by(
        self,
        cause: Cause,
        text: str,
        proofs: Sequence[Proof],
        node: str = "",
        attempt: RunRecord | None = None,
    ) -> Explanation:
        return Explanation(
            self.picture.state,
            cause.name,
            text,
            cause.remedy,
            self.command(cause.next, node, attempt),
            [*proofs],
            node,
        )

    def command(self, template: str, node: str = "", attempt: RunRecord | None = None) -> str:
        if ("{node}" in template and not node) or ("{run}" in template and attempt is None):
            template = RESUME
        values = {"set": str(self.root), "node": node, "job": self.picture.job_id or "JOB"}
        values |= self._names()
        values |= {"run": str(attempt.run), "attempt": str(attempt.attempt)} if attempt else {}
        return template.format_map({name: quote(value) for name, value in values.items()})

    def _names(self) -> dict[str, str]:
        """Return the names in commands besides the set."""
        record, job = self.picture.record, self.files.job
        nodes = job.nodes if job else []
        return {
            "system": record.system if record else "SYSTEM",
            "workload": record.workload if record else "WORKLOAD",
            "nexp": str(record.nexp if record else 1),
            "nodes": fold([node for node in nodes if is_node_name(node)]),
            "log_dir": str(self.root.parent),
        }

    # ---- by the state of the set

    def explain(self) -> Explanation:
        picture = self.picture
        if picture.state in (*QUEUED, "refused", "unknown"):
            return self.waits()
        if picture.state in ("paused", "failed", "lost", "time_limit"):
            return self.another_way(self.died())
        if picture.state == "complete" and picture.given_up:
            return self.gave_up()
        if picture.state == "complete" and (diverged := self.diverged()):
            return diverged
        if picture.state == "running":
            return self.goes_on()
        text = picture.pulling or picture.meaning
        again, proofs = self.tried_again()
        template = _NEXT.get(picture.state, RESUME)
        if picture.state == "complete" and (needed := self.files.too_few_runs):
            text = f"{text}; a score needs {count(needed, 'run')}"
            template = f"{RESUME} --nexp {needed}"
        return Explanation(
            picture.state,
            picture.state,
            _cut("; ".join(filter(None, (text, again)))),
            next=self.command(template),
            evidence=proofs,
        )

    def tried_again(self) -> tuple[str, list[Proof]]:
        """Return which good runs took several attempts, and why each attempt before failed."""
        runs = [run for run in self.picture.runs if run.failure and run.state == "success"]
        text = ", ".join(f"run {run.run} took {count(run.attempt, 'attempt')}" for run in runs)
        return text, [self.failure_of(run) for run in runs[-MOST_EVIDENCE:]]

    def failure_of(self, run: RunPicture) -> Proof:
        """Return the record of the last failed attempt of a run that was tried again."""
        path = self.files.layout.attempt_state(run.run, run.failed_attempt)
        return Proof(self.named(path), 0, _cut(run.failure))

    def waits(self) -> Explanation:
        """Explain a set whose job is not running: by Slurm's reason, or sbatch's error."""
        picture, asked, queued = self.picture, self.files.submission, self.picture.state in QUEUED
        text = (asked.error or picture.reason) if not queued and asked else picture.job_reason
        proofs = [Proof(advice.QUEUE_LISTING, 0, _cut(text))] if queued and text else []
        if not queued and asked:
            proofs = [self.in_file(self.files.layout.submission(asked.number), text.split("\n")[0])]
        cause = cause_in(text, REASONS)
        if cause is not None:
            return self.by(cause, picture.reason if queued else cause.sentence, proofs)
        if queued and not text:
            return Explanation(
                "pending",
                "pending",
                "it is in the queue, and Slurm gives no reason yet",
                next=self.command(_NEXT["pending"]),
            )
        return Explanation(
            picture.state,
            UNKNOWN,
            _cut(f"{STATES[picture.state]}: {text}"),
            next=self.command(_NEXT.get(picture.state, RESUME)),
            evidence=proofs,
        )

    def goes_on(self) -> Explanation:
        """Explain a set with active runs: silent, slow or well."""
        picture, text = self.picture, ""
        if urgent := most_urgent(run.silence for run in picture.going):
            return self.silent(urgent)
        proofs = [
            proof
            for run in picture.going
            for proof in self.signs_of_life(run.run, run.attempt, run.silence)
        ]
        slow = suspicions(read_history(self.files))
        late = next(iter(picture.late), None)
        if late:
            longer = f"run {late.run} takes longer than any before it"
            text = "; ".join(filter(None, (longer, late.age, *slow[:1])))
        elif slow:
            text = slow[0]
        if text:
            remedy, template = _SLOW if slow or not late else _LATE
            attempt = RunRecord(run=late.run, attempt=late.attempt) if late else None
            command = self.command(template, attempt=attempt)
            return Explanation("running", "slow", _cut(text), remedy, command, proofs)
        nexp = picture.record.nexp if picture.record else 0
        now = ", ".join(f"run {run.run} (attempt {run.attempt})" for run in picture.going)
        again = [run for run in picture.runs if run.failure and run.state in ("running", "queued")]
        return Explanation(
            "running",
            "running",
            f"{now} of {nexp} is running" if now else f"the next run of {nexp} is about to start",
            next=self.command(_NEXT["running"]),
            evidence=[*proofs, *map(self.failure_of, again[-MOST_EVIDENCE:])],
        )

    def silent(self, run: RunSilence) -> Explanation:
        """Explain a run that its loop counts as silent or hung, or a silent loop."""
        remedy, template = _SILENT[run.cause]
        attempt = RunRecord(run=run.run, attempt=run.attempt)
        proofs = self.signs_of_life(run.run, run.attempt, run)
        command = self.command(template, attempt=attempt)
        return Explanation("running", run.cause, run.sentence, remedy, command, proofs)

    def signs_of_life(self, run: int, attempt: int, silence: RunSilence | None) -> list[Proof]:
        """Return the loop's last record of a run, and its log's last MLLOG key and age."""
        proofs = []
        if silence and silence.silence and silence.silence.quiet_s >= 1 and silence.record:
            proofs = [Proof(self.named(silence.file), 0, silence.record)]
        age = next((one.age for one in self.picture.going if one.run == run), "")
        keys = self.last_key(RunRecord(run=run, attempt=attempt))
        return [*proofs, *(replace(key, text=f"{key.text}; {age}") if age else key for key in keys)]

    # ---- of a set that ended before its runs were done

    def gave_up(self) -> Explanation:
        """Explain the newest of the runs that used all their attempts."""
        died, last = self.died(), self.last_attempt()
        found = self.another_way(died)
        run = last.run if last else self.picture.given_up[-1]
        text = f"run {run} of {len(self.picture.runs)} failed: {found.sentence}"
        remedy = found.remedy or "look at its log, then resume"
        keeps = found is not died or found.cause == UNKNOWN or found.next.startswith(_TRY_AGAIN)
        command = found.next if keeps else self.command(RESUME)
        return replace(found, sentence=_cut(text), remedy=remedy, next=command)

    def another_way(self, found: Explanation) -> Explanation:
        """Replace a command that would repeat what has just failed.

        A node that alone failed alike in every attempt is left out of a set that goes on. If
        another node, or all nodes, failed alike in an earlier job, the log is next: the program or
        a setting is wrong.
        """
        last = self.last_attempt()
        of_a_node = found.cause in _OF_A_NODE or (found.cause == UNKNOWN and not found.remedy)
        if last is None or not of_a_node:
            return found
        jobs = self.failures_by_job(last)
        attempts = [attempt for job in jobs for attempt in job]
        always = self.may_leave_out(last) and self.is_alone(found.node, attempts)
        is_bad = always or (self.may_leave_out(last) and self.is_alone(found.node, jobs[-1]))
        alike = [job for job in jobs[:-1] if self.are_alike(job[-1], last)]
        bad = [self.bad_node(job) for job in alike]
        others = [node for node in dict.fromkeys(bad) if node not in ("", found.node)]
        if alike and (others or found.node in bad or not is_bad):
            if is_bad and not others:
                why = f"{found.node} failed alike in an earlier job: leave it out, or repair it"
            else:
                who = " and ".join([*others, found.node]) if others and is_bad else "it"
                why = f"{who} failed alike before: the cause is in the program or its settings"
            shows = any(log.text.strip() for node, log in self.logs(last) if node == found.node)
            template = f"{_LOG} --node {{node}}" if shows else _LOG
            return replace(found, remedy=why, next=self.command(template, found.node, last))
        if is_bad and self.picture.state == "complete":
            before = [self.bad_node(job) for job in jobs[:-1]]
            excluded = [node for node in before if node and node not in last.nodes]
            command = self.command(LEAVE_OUT, ",".join(dict.fromkeys([*excluded, found.node])))
            of = "run" if always else "last job"
            why = f"{found.node} failed in every attempt of the {of}: leave it out"
            remedy = "; ".join(filter(None, (why, found.remedy)))
            return replace(found, remedy=remedy, next=command)
        return found

    def may_leave_out(self, last: RunRecord) -> bool:
        """Return whether another job could run without a node of an attempt."""
        record = self.picture.record
        return record is not None and record.scheduler == "slurm" and len(last.nodes) > 1

    def bad_node(self, attempts: Sequence[RunRecord]) -> str:
        """Return the node that alone failed, first and alike, in all attempts of a job, or ""."""
        node = self.first_of(attempts[-1])[0]
        return node if self.is_alone(node, attempts) else ""

    def is_alone(self, node: str, attempts: Sequence[RunRecord]) -> bool:
        """Return whether a node alone failed alike in all of several attempts. Of programs that end
        with 0 when they fail, only the order is known."""
        if len(attempts) < 2 or not node:
            return False
        code = attempts[-1].exit_codes.get(node)
        if not code:
            return all(self.first_of(attempt)[0] == node for attempt in attempts)
        return all(
            [other for other, its in attempt.exit_codes.items() if its == code] == [node]
            for attempt in attempts
        )

    def are_alike(self, before: RunRecord, last: RunRecord) -> bool:
        """Return whether two attempts failed alike, on whichever node."""
        same_codes = _codes(before) == _codes(last)
        return same_codes and self.first_of(before)[1] == self.first_of(last)[1]

    def first_of(self, attempt: RunRecord) -> tuple[str, str]:
        """Return the node that failed first, and the cause in its log; "" if unknown."""
        key = (attempt.run, attempt.attempt)
        if key not in self.first:
            ends = self.ends(attempt)
            by_node = {node: symptoms(log.text) for node, log in self.logs(attempt)}
            first = first_cause(by_node, ends)
            self.first[key] = (first[0], first[1].cause) if first else (ended_first(ends), "")
        return self.first[key]

    def failures_by_job(self, last: RunRecord) -> list[list[RunRecord]]:
        """Return the newest failed attempts of an attempt's run by job, its own job last."""
        jobs: dict[str, list[RunRecord]] = {}
        for number in self.files.attempts_of(last.run)[-MOST_TRIED:]:
            attempt = self.files.attempt(last.run, number)
            if attempt is not None and attempt.outcome == "infrastructure":
                jobs.setdefault(attempt.job_id, []).append(attempt)
        own = jobs.pop(last.job_id, [last])
        return [*jobs.values(), own]

    def diverged(self) -> Explanation | None:
        """Explain the newest run that missed the target, if its log shows NaN."""
        missed = [run for run in self.picture.runs if run.outcome == "not_converged"]
        for run in reversed(missed[-MOST_EVIDENCE:]):
            attempt = self.files.attempt(run.run, run.attempt)
            for node, log in self.logs(attempt) if attempt else ():
                if proofs := self.not_finite(log):
                    cause = BY_NAME["nan_loss"]
                    which = f"run {run.run} of {len(self.picture.runs)}"
                    text = f"{which} did not reach the target: {cause.sentence}"
                    return self.by(cause, text, proofs, node, attempt)
        return None

    def not_finite(self, log: LogEnds) -> list[Proof]:
        """Return the first record with NaN of a log, or else its first line about NaN."""
        if record := _NAN_RECORD.search(log.text):
            text = _cut(record[0].decode("utf-8", "replace"))
            return [Proof(self.named(log.path), log.line(record.start()), text)]
        of_nan = (it for it in symptoms(log.text) if it.cause == "nan_loss")
        return [self._proof(log, it) for it in of_nan][:1]

    def died(self) -> Explanation:
        attempt = self.last_attempt()
        logs = dict(self.logs(attempt)) if attempt else {}
        by_node = {node: symptoms(log.text) for node, log in logs.items()}
        if attempt:
            self._take_errors(attempt, by_node)
        ends = self.ends(attempt) if attempt else {}
        first = first_cause(by_node, ends)
        cause = known(first[1]) if first else None
        if first is not None and first[1].grade == MENTION and (end := self.by_slurm(attempt)):
            return end
        if first is None or cause is None or cause.grade > PROGRAM:
            seen = first[1] if first else None
            other = self.by_other_sources(attempt, self._deeper_than(seen, cause), seen)
            if other is not None:
                return other
        if first is not None and cause is not None:
            is_one = len(logs) == 1 and first[0] in logs
            text = sentence(cause, "" if is_one else first[0])
            context: list[Proof] = []
            if first[1].offset >= 0:
                context = self.context(logs[first[0]], first[1].offset)
            if cause.name in GENERIC and (first[1].offset >= 0 or first[1].raised):
                text = _cut(f"{text}: {without_prefixes(first[1].text).strip()}")
            proofs = [*self.proofs(first, logs, by_node), *context, *self.last_key(attempt)]
            return self.by(cause, text, proofs, first[0], attempt)
        return self.not_known(attempt, first, logs, first[0] if first else ended_first(ends))

    def ends(self, attempt: RunRecord) -> dict[str, Ended]:
        """Return how each node of an attempt ended."""
        records = self.files.ends(attempt.run, attempt.attempt)
        return {
            node: Ended(
                attempt.exit_codes.get(node),
                records[rank].end_ms - records[rank].start_ms if rank in records else None,
            )
            for rank, node in enumerate(attempt.nodes)
        }

    def _take_errors(self, attempt: RunRecord, by_node: dict[str, list[Symptom]]) -> None:
        """Put the errors that processes reported themselves before the symptoms of each log."""
        for node in by_node:
            folder = self.files.layout.node_files(attempt.run, attempt.attempt, node)
            if error := first_error(folder):
                self.errors[node] = error.path
                by_node[node] = with_error(by_node[node], error)

    @staticmethod
    def _deeper_than(symptom: Symptom | None, cause: Cause | None) -> int | None:
        """Return the grade that other sources must be deeper than; None if any of them counts."""
        if symptom is None or (cause is None and symptom.grade >= ECHO):
            return None
        return ECHO if cause is None else symptom.grade

    @property
    def suspects(self) -> list[tuple[int, int]]:
        """Return (run, attempt) of all attempts; of a complete set those of its failed runs."""
        if self.picture.state != "complete":
            return self.files.tried
        return [key for key in self.files.tried if key[0] in self.picture.given_up]

    def last_attempt(self) -> RunRecord | None:
        """Return the newest attempt of the last job that died or was cut off."""
        records = [
            record
            for key in self.suspects[-50:]
            if (record := self.files.attempt(*key)) is not None
        ]
        job = self.files.job
        failed = [
            record
            for record in records
            if record.state != "success"
            and record.outcome != "not_converged"
            and (job is None or record.job_id in ("", job.job_id))
        ]
        return max(
            failed, key=lambda record: (record.start_ms, record.run, record.attempt), default=None
        )

    def logs(self, attempt: RunRecord) -> Iterator[tuple[str, LogEnds]]:
        for rank, node in enumerate(attempt.nodes):
            log = read_log_ends(self.files.layout.node_log(attempt.run, attempt.attempt, rank))
            if is_node_name(node) and log is not None:
                yield node, log

    def proofs(
        self,
        first: tuple[str, Symptom],
        logs: dict[str, LogEnds],
        by_node: dict[str, list[Symptom]],
    ) -> list[Proof]:
        """Return the line of the first cause, and equivalent lines: of the log itself the first by
        another speaker (a library and then the exception, or the reverse), and of other nodes."""
        node, symptom = first
        if node not in logs:
            return [Proof("", 0, f"{node}: {symptom.text}")]
        log = logs[node]
        if symptom.offset < 0 and symptom.raised and node in self.errors:
            return [Proof(self.named(self.errors[node]), 0, symptom.text)]
        proofs = [self._proof(log, symptom), *self._episode(log, symptom)]
        places = {symptom.offset, *(offset for _, offset in symptom.episode)}
        again = (
            there
            for there in by_node.get(node, ())
            if symptom.cause and there.cause == symptom.cause and there.raised != symptom.raised
        )
        proofs += [self._proof(log, there) for there in again if there.offset not in places][:1]
        for other, symptoms_there in by_node.items():
            same = (there for there in symptoms_there if there.cause == symptom.cause)
            if other != node and (equivalent := next(same, None)):
                proofs.append(self._proof(logs[other], equivalent))
        return proofs[: MOST_EVIDENCE - 1]

    def _episode(self, log: LogEnds, symptom: Symptom) -> list[Proof]:
        return [
            Proof(self.named(log.path), log.line(offset), text)
            for text, offset in symptom.episode[:MOST_EPISODE]
        ]

    def _proof(self, log: LogEnds, symptom: Symptom) -> Proof:
        number = log.line(symptom.offset) if symptom.offset >= 0 else 0
        return Proof(self.named(log.path), number, symptom.text)

    def context(self, log: LogEnds, offset: int) -> list[Proof]:
        """Return the lines around a line of a log: up to two before it and the next."""
        previous = log.text.rfind(b"\n", 0, max(0, offset - 1))
        start = log.text.rfind(b"\n", 0, max(0, previous)) + 1
        end = log.text.find(b"\n", offset)
        after = log.text[end + 1 :].partition(b"\n")[0] if end >= 0 else b""
        return [
            *self._quoted(log, start, log.text[start:offset]),
            *self._quoted(log, end + 1, after),
        ]

    def _quoted(self, log: LogEnds, offset: int, text: bytes) -> list[Proof]:
        proofs = []
        for raw in text.split(b"\n"):
            shown = _cut(raw[: 2 * MOST_TEXT].decode("utf-8", "replace"))
            if shown.strip() and not (is_bookkeeping(shown) or ":::MLLOG" in shown):
                proofs.append(Proof(self.named(log.path), log.line(offset), shown))
            offset += len(raw) + 1
        return proofs

    def last_lines(self, log: LogEnds) -> list[Proof]:
        end = log.text[-_LAST_BYTES:]
        if len(end) < len(log.text):  # it may start inside a line, such as an MLLOG record
            end = end.partition(b"\n")[2]
        return self._quoted(log, len(log.text) - len(end), end)[-3:]

    def last_key(self, attempt: RunRecord | None) -> list[Proof]:
        if attempt is None:
            return []
        log = telling_log(self.files.layout, attempt.run, attempt.attempt)
        records = list(lines(read_end(log, TAIL_BYTES)))
        key = str(records[-1]["key"])[:60] if records else ""
        key = key if key.isprintable() else ascii(key)
        return [Proof(self.named(log), 0, f"the last MLLOG key is {key}")] if key else []

    def by_other_sources(
        self, attempt: RunRecord | None, deeper_than: int | None, seen: Symptom | None
    ) -> Explanation | None:
        """Explain the end by Slurm, the job's output, the loop and its checks, if it is deeper
        than the logs. A program that raised an exception had been started."""
        began = seen is not None and seen.raised and seen.grade <= PROGRAM
        for cause, text, proofs, node in self.other_sources(attempt):
            if deeper_than is not None and deeper_than <= SYMPTOM and cause.name in SLURM_ENDS:
                continue
            by_slurm = bool(proofs) and is_of_slurm(proofs[0].text)
            if began and (cause.name in OUTER or (by_slurm and cause.grade == PROGRAM)):
                continue
            if deeper_than is None or cause.grade < deeper_than:
                return self.by(cause, text, proofs, node, attempt)
        return None

    def by_slurm(self, attempt: RunRecord | None) -> Explanation | None:
        """Explain the end by Slurm's end of the whole job; its steps the loop cancels, too."""
        for cause, text, proofs, node in self.other_sources(attempt):
            if cause.name == "cancelled" and not any(is_job_cancelled(it.text) for it in proofs):
                continue
            if cause.name in SLURM_ENDS:
                return self.by(cause, text, proofs, node, attempt)
        return None

    def in_output(self) -> tuple[Symptom, list[Proof]] | None:
        """Return the line of the job's output that explains its end, with those around it."""
        job_id = self.picture.job_id
        if not job_id or "/" in job_id:
            return None
        log = read_log_ends(self.files.layout.job_output(job_id))
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
        return symptom, [
            self._proof(log, symptom),
            *self._episode(log, symptom),
            *self.context(log, symptom.offset),
        ]

    @property
    def started_job(self) -> JobRecord | None:
        """The record of the job in charge: None if that never started, as after a resume."""
        return None if self.files.awaited else self.files.job

    def other_sources(
        self, attempt: RunRecord | None
    ) -> Iterator[tuple[Cause, str, list[Proof], str]]:
        job, picture = self.started_job, self.picture
        in_output: tuple[Cause, str, list[Proof], str] | None = None
        if found := self.in_output():
            symptom, proofs = found
            if cause := refused_step(symptom.text) or known(symptom):
                text = cause.sentence
                if cause.name in GENERIC:
                    text = _cut(f"{text}: {without_prefixes(symptom.text).strip()}")
                in_output = (cause, text, proofs, "")
        # Slurm prints "CANCELLED" for every step that the loop ends, so it counts after all else.
        if in_output is not None and in_output[0].grade < ECHO:
            yield in_output
        # Without a record of its own, the job ended before it began: Slurm has the reason.
        ended = f"{picture.job_state} {'' if job else picture.reason}"
        cause = cause_in(ended, REASONS) if picture.state == "lost" else None
        if cause and (cause.grade == MACHINE or not job):
            text = f"job {picture.job_id}: {picture.job_state if job else picture.reason}"
            yield cause, cause.sentence, [Proof(advice.QUEUE_LISTING, 0, _cut(text))], ""
        began = self.files.job.started_ms if self.files.job else 0
        for aside in read_told(self.files).aside:
            if aside.time_ms and aside.time_ms < began:
                continue
            proof = [self.in_file(self.files.layout.events(picture.job_id or "0"), aside.reason)]
            if cause := BY_NAME.get(meaning(aside.reason, ())[0]):
                yield cause, sentence(cause, aside.node), proof, aside.node
            elif aside.kind == "check" and aside.reason:
                unfit = replace(UNFIT, sentence=_cut(aside.reason))
                yield unfit, sentence(unfit, aside.node), proof, aside.node
        for reason, path in (
            (attempt.reason, self.files.layout.attempt_state(attempt.run, attempt.attempt))
            if attempt
            else ("", None),
            (job.reason, self.files.layout.job(job.job_id)) if job else ("", None),
        ):
            if path is None or not reason:
                continue
            cause = cause_in(reason, LOOP_CAUSES)
            if cause is None and (engine := _ENGINE.search(reason)):
                cause = BY_NAME.get(meaning(engine[1], ())[0])
            if cause is None and (check := _CHECK.search(reason)):
                cause = replace(ALL_UNFIT, sentence=_cut(check[1]))
            if cause is not None:
                told = sentence(cause, who[1] if (who := _NODES.match(reason)) else "")
                yield cause, told, [self.in_file(path, reason)], ""
        if picture.state == "time_limit":
            cause = next(cause for cause in REASONS if cause.name == "time_limit")
            proof = [Proof("", 0, picture.reason)] if picture.reason else []
            text = f"{picture.done} of {count(len(picture.runs), 'run')} done"
            if not self.files.finished:
                text = "no run of the last job ended in time"
            yield cause, text, proof, ""
        if in_output is not None and in_output[0].grade == ECHO:
            yield in_output

    def not_known(
        self,
        attempt: RunRecord | None,
        first: tuple[str, Symptom] | None,
        logs: dict[str, LogEnds],
        node: str,
    ) -> Explanation:
        """`node`: to look at first, "" if unknown."""
        proofs = self.proofs(first, logs, {}) if first else []
        if first and first[1].offset >= 0:
            proofs += self.context(logs[first[0]], first[1].offset)
        reason = attempt.reason if attempt and attempt.reason else self.picture.reason
        remedy = ""
        found = self.in_output()
        if found and (first is None or _is_deeper(found[0], first[1])):
            first, proofs, attempt = None, found[1], None
            reason = without_prefixes(found[0].text).strip()
            remedy = "look at the lines around it in the job's output"
        if first and first[1].offset >= 0 and first[1].grade < ECHO:
            reason = f"{_who(first)} failed first: {without_prefixes(first[1].text).strip()}"
            remedy = (
                "look at the frames above the quoted line, at the same time in the other nodes' "
                "logs, and at the node's kernel log"
            )
        log = logs.get(node) or next(iter(logs.values()), None)
        if not proofs and log and (proofs := self.last_lines(log)):
            reason = f"{reason}; the log ends with: {proofs[-1].text.strip()}".removeprefix("; ")
        if not proofs and self.picture.job_id and "/" not in self.picture.job_id:
            output = self.files.layout.job_output(self.picture.job_id)
            last = last_line(output)
            proofs = [self.in_file(output, last)] if last else []
        text = f"cause unknown: {reason}" if reason else "cause unknown"
        template = f"{_LOG} --node {{node}}" if node else _LOG
        template = template if attempt else _JOB_LOG
        if self.picture.state == "lost" and self.started_job and first is None:
            template = RESUME
            remedy = remedy or (
                "its loop was killed, or its host failed; resume closes the run and continues"
            )
        return Explanation(
            self.picture.state,
            UNKNOWN,
            _cut(text),
            remedy,
            self.command(template, node, attempt),
            [*proofs, *self.last_key(attempt)],
            node,
        )


def explain(files: SetEvidence, picture: SetPicture) -> Explanation:
    """Return why the set is in the state of its picture. Never raises: unreadable files are
    ignored."""
    return _Set(files, picture).explain()
