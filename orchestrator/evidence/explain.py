"""Why a set is pending, slow, paused, hung or failed: one sentence, its evidence, the next command.
docs/explain.md

The rules are data: causes/causes.json for the output of programs, waits.py for Slurm and the loop.
Only the two ends of each log are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any

from orchestrator.causes.cause import ECHO, MACHINE, PROGRAM, RESUME, Cause
from orchestrator.causes.first import Ended, first_cause, known, sentence
from orchestrator.causes.lines import cause_in
from orchestrator.causes.prefixes import without_prefixes
from orchestrator.causes.reading import Symptom, symptoms
from orchestrator.causes.tables import GENERIC
from orchestrator.evidence.events import read_told
from orchestrator.evidence.files import is_node_name
from orchestrator.evidence.nodes import read_history, suspicions
from orchestrator.evidence.picture import SetPicture
from orchestrator.evidence.progress import TAIL_BYTES, read_end
from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.silence import RunSilence, most_urgent
from orchestrator.evidence.state import QUEUED, STATES
from orchestrator.evidence.waits import OWN_WORDS, UNFIT, WAITS
from orchestrator.onnode.kernel.files import PathLike
from orchestrator.onnode.kernel.log_ends import LogEnds, read_log_ends
from orchestrator.onnode.kernel.mllog_tail import lines, telling_log
from orchestrator.onnode.kernel.records import RunRecord
from orchestrator.onnode.policy.reports import line

MOST_EVIDENCE, MOST_TEXT = 5, 300
_LAST_BYTES = 4096
UNKNOWN = "unknown"
_NEXT = {
    "new": RESUME,
    "unknown": "orchestrator status {set}",
    "pending": "squeue -j {job} --start",
    "starting": "orchestrator watch {set}",
    "running": "orchestrator watch {set}",
    "ending": "orchestrator watch {set}",
    "complete": "orchestrator score {set}",
    "damaged": "orchestrator score {set}",
}
_LOG = "orchestrator logs {set} --run {run} --attempt {attempt}"
_SILENT = {
    "hung": (
        "nothing to do: the nodes record what their processes do, then the run is repeated",
        "orchestrator watch {set}",
    ),
    "loop_silent": (
        (
            "check the batch host and its storage; if the loop stays silent, `orchestrator cancel` and "
            "`resume`"
        ),
        "orchestrator logs {set} --job",
    ),
    "silent": ("nothing to do: at the limit the loop ends the attempt and repeats the run", _LOG),
}
"""The help for a silent run or loop, and the next command."""


@dataclass(frozen=True)
class Proof:
    """A line of evidence. `line` counts from 1, below 0 from the end of the file (-1: the last
    one), 0: no line of a file."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        at = f"{self.file}:{self.line}" if self.line else self.file
        return f"{at}: {self.text}"


@dataclass
class Explanation:
    """`cause` is a name of docs/explain.md, the set's state if nothing is wrong, or `unknown`."""

    state: str
    cause: str
    sentence: str
    remedy: str = ""
    next: str = ""
    evidence: list[Proof] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "cause": self.cause,
            "known": self.cause != UNKNOWN,
            "sentence": self.sentence,
            "remedy": self.remedy,
            "next": self.next,
            "evidence": [vars(one) for one in self.evidence],
        }


class _Set:
    """The explanation of one set."""

    def __init__(self, files: SetEvidence, one: SetPicture) -> None:
        self.files, self.one, self.root = files, one, files.layout.root

    def named(self, path: PathLike) -> str:
        return line(os.path.relpath(path, self.root), MOST_TEXT)

    def in_file(self, path: Path, words: str) -> Proof:
        """Return the line of a small file that contains `words`."""
        found = read_log_ends(path)
        key = words.encode("utf-8", "replace")[:80]
        at = found.text.find(key) if found and key else -1
        return Proof(
            self.named(path), found.line(at) if found and at >= 0 else 0, line(words, MOST_TEXT)
        )

    def by(
        self,
        cause: Cause,
        text: str,
        proofs: Sequence[Proof],
        node: str = "",
        at: RunRecord | None = None,
    ) -> Explanation:
        return Explanation(
            self.one.state,
            cause.name,
            text,
            cause.remedy,
            self.command(cause.next, node, at),
            [*proofs],
        )

    def command(self, template: str, node: str = "", at: RunRecord | None = None) -> str:
        if ("{node}" in template and not node) or ("{run}" in template and at is None):
            template = RESUME
        values = {"set": str(self.root), "node": node, "job": self.one.job_id or "JOB"}
        values |= {"run": str(at.run), "attempt": str(at.attempt)} if at else {}
        return template.format_map({name: quote(value) for name, value in values.items()})

    # ---- by the state of the set

    def explain(self) -> Explanation:
        one = self.one
        if one.state in (*QUEUED, "refused", "unknown"):
            return self.waits()
        if one.state in ("paused", "failed", "lost", "time_limit"):
            return self.died()
        if one.state == "complete" and any(run.outcome == "infrastructure" for run in one.runs):
            return self.died()
        if one.state == "running":
            return self.goes_on()
        text = one.pulling or one.reason or STATES[one.state]
        template = _NEXT.get(one.state, RESUME)
        return Explanation(one.state, one.state, line(text, MOST_TEXT), next=self.command(template))

    def waits(self) -> Explanation:
        """Explain a set whose job is not running: by Slurm's reason, or sbatch's error."""
        one, asked, queued = self.one, self.files.submission, self.one.state in QUEUED
        text = (asked.error or one.reason) if not queued and asked else one.job_reason
        proofs = [Proof("squeue", 0, line(text, MOST_TEXT))] if queued and text else []
        if not queued and asked:
            proofs = [self.in_file(self.files.layout.submission(asked.number), text.split("\n")[0])]
        cause = cause_in(text, WAITS)
        if cause is not None:
            return self.by(cause, one.reason if queued else cause.sentence, proofs)
        if queued and not text:
            return Explanation(
                "pending",
                "pending",
                "it is in the queue, and Slurm gives no reason yet",
                next=self.command(_NEXT["pending"]),
            )
        return Explanation(
            one.state,
            UNKNOWN,
            line(f"{STATES[one.state]}: {text}", MOST_TEXT),
            next=self.command(_NEXT.get(one.state, RESUME)),
            evidence=proofs,
        )

    def goes_on(self) -> Explanation:
        """Explain a set with active runs: silent, slow or well."""
        one, text = self.one, ""
        if urgent := most_urgent(run.silence for run in one.going):
            return self.silent(urgent)
        proofs = [
            proof
            for run in one.going
            for proof in self.signs_of_life(run.run, run.attempt, run.silence)
        ]
        slow = suspicions(read_history(self.files))
        usual = [run.seconds for run in one.runs if run.done and run.seconds]
        late = [run.run for run in one.going if usual and (run.seconds or 0) > 1.2 * max(usual)]
        if late:
            text = f"run {late[0]} takes longer than any before it" + (
                f"; {slow[0]}" if slow else ""
            )
        elif slow:
            text = slow[0]
        if text:
            return Explanation(
                "running",
                "slow",
                line(text, MOST_TEXT),
                "look at the nodes",
                self.command("orchestrator nodes {set}"),
                proofs,
            )
        now = (
            ", ".join(f"run {run.run} (attempt {run.attempt})" for run in one.going)
            or "the first run is about to begin"
        )
        return Explanation(
            "running",
            "running",
            f"{now} of {one.record.nexp if one.record else 0} goes on",
            next=self.command(_NEXT["running"]),
            evidence=proofs,
        )

    def silent(self, run: RunSilence) -> Explanation:
        """Explain a run that its loop counts as silent or hung, or a silent loop."""
        remedy, template = _SILENT[run.cause]
        at = RunRecord(run=run.run, attempt=run.attempt)
        proofs = self.signs_of_life(run.run, run.attempt, run)
        command = self.command(template, at=at)
        return Explanation("running", run.cause, run.sentence, remedy, command, proofs)

    def signs_of_life(self, run: int, attempt: int, silence: RunSilence | None) -> list[Proof]:
        """Return the loop's last record of a run, and the last MLLOG key of its log."""
        recorded = silence.silence if silence else None
        proofs = [Proof(self.named(silence.file), 0, recorded.text)] if silence and recorded else []
        return [*proofs, *self.last_key(RunRecord(run=run, attempt=attempt))]

    # ---- of a set that ended before its runs were done

    def died(self) -> Explanation:
        at = self.last_attempt()
        logs = dict(self.logs(at)) if at else {}
        told = {node: symptoms(log.text) for node, log in logs.items()}
        ends = {}
        if at:
            own = self.files.ends(at.run, at.attempt)
            ends = {
                node: Ended(
                    at.exit_codes.get(node),
                    own[rank].end_ms - own[rank].start_ms if rank in own else None,
                )
                for rank, node in enumerate(at.nodes)
            }
        found = first_cause(told, ends)
        cause = known(found[1]) if found else None
        if found is None or cause is None or cause.grade > PROGRAM:
            other = self.words(at, self._deeper_than(found[1] if found else None, cause))
            if other is not None:
                return other
        if found is not None and cause is not None:
            text = sentence(cause, found[0] if len(logs) > 1 else "")
            context: list[Proof] = []
            if cause.name in GENERIC and found[1].offset >= 0:
                text = line(f"{text}: {without_prefixes(found[1].text).strip()}", MOST_TEXT)
                context = self.context(logs[found[0]], found[1].offset)
            proofs = [*self.proofs(found, logs, told), *context, *self.last_key(at)]
            return self.by(cause, text, proofs, found[0], at)
        return self.not_known(at, found, logs)

    @staticmethod
    def _deeper_than(symptom: Symptom | None, cause: Cause | None) -> int | None:
        """Return the grade that other sources must be deeper than; None if any of them counts."""
        if symptom is None or (cause is None and symptom.grade == ECHO):
            return None
        return ECHO if cause is None else symptom.grade

    def last_attempt(self) -> RunRecord | None:
        """Return the newest attempt of the last job that died or was cut off."""
        tried = [
            record
            for key in self.files.tried[-50:]
            if (record := self.files.attempt(*key)) is not None
        ]
        job = self.files.job
        found = [
            one
            for one in tried
            if one.state != "success"
            and one.outcome != "not_converged"
            and (job is None or one.job_id in ("", job.job_id))
        ]
        return max(found, key=lambda one: (one.start_ms, one.run, one.attempt), default=None)

    def logs(self, at: RunRecord) -> Iterator[tuple[str, LogEnds]]:
        for rank, node in enumerate(at.nodes):
            log = read_log_ends(self.files.layout.node_log(at.run, at.attempt, rank))
            if is_node_name(node) and log is not None:
                yield node, log

    def proofs(
        self, found: tuple[str, Symptom], logs: dict[str, LogEnds], told: dict[str, list[Symptom]]
    ) -> list[Proof]:
        """Return the line of the first cause, and the first equivalent line of other nodes."""
        node, first = found
        rest = [
            (name, next((one for one in own if one.cause == first.cause), None))
            for name, own in told.items()
            if name != node
        ]
        lines = [(node, first), *((name, one) for name, one in rest if one is not None)][
            : MOST_EVIDENCE - 1
        ]
        return [
            Proof(
                self.named(logs[name].path),
                logs[name].line(one.offset) if one.offset >= 0 else 0,
                one.text,
            )
            for name, one in lines
        ]

    def context(self, log: LogEnds, offset: int) -> list[Proof]:
        """Return the lines around a line of a log: up to two before it and one after it."""
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
            shown = line(raw[:MOST_TEXT].decode("utf-8", "replace"), MOST_TEXT)
            if shown.strip():
                proofs.append(Proof(self.named(log.path), log.line(offset), shown))
            offset += len(raw) + 1
        return proofs

    def last_lines(self, log: LogEnds) -> list[Proof]:
        """Return the last lines of a log, at most three."""
        end = log.text[-_LAST_BYTES:]
        return self._quoted(log, len(log.text) - len(end), end)[-3:]

    def last_key(self, at: RunRecord | None) -> list[Proof]:
        if at is None:
            return []
        log = telling_log(self.files.layout, at.run, at.attempt)
        records = list(lines(read_end(log, TAIL_BYTES)))
        key = str(records[-1]["key"])[:60] if records else ""
        key = key if key.isprintable() else ascii(key)
        return [Proof(self.named(log), 0, f"the last MLLOG key is {key}")] if key else []

    def words(self, at: RunRecord | None, deeper_than: int | None) -> Explanation | None:
        """Explain the end by Slurm, the job's output, the loop and its checks, if that is deeper
        than the logs."""
        for cause, text, proofs, node in self.said(at):
            if deeper_than is None or cause.grade < deeper_than:
                return self.by(cause, text, proofs, node, at)
        return None

    def said(self, at: RunRecord | None) -> Iterator[tuple[Cause, str, list[Proof], str]]:
        job, one = self.files.job, self.one
        output = (
            self.files.layout.job_output(one.job_id)
            if one.job_id and "/" not in one.job_id
            else None
        )
        log = read_log_ends(output) if output else None
        in_output: tuple[Cause, str, list[Proof], str] | None = None
        if log:
            own = [
                item
                for item in symptoms(log.text)
                if b" orchestrator: " not in log.text[item.offset : item.offset + 80]
            ]
            found = first_cause({"job": own}, {})
            cause = known(found[1]) if found else None
            if found and cause:
                quoted = Proof(self.named(log.path), log.line(found[1].offset), found[1].text)
                in_output = (cause, cause.sentence, [quoted], "")
        # Slurm prints "CANCELLED" for every step that the loop ends, so it counts after all else.
        if in_output is not None and in_output[0].grade < ECHO:
            yield in_output
        if (
            one.state == "lost"
            and (cause := cause_in(one.job_state, WAITS))
            and cause.grade == MACHINE
        ):
            yield (
                cause,
                cause.sentence,
                [Proof("squeue", 0, f"job {one.job_id}: {one.job_state}")],
                "",
            )
        began = job.started_ms if job else 0
        for aside in read_told(self.files).aside:
            if aside.time_ms and aside.time_ms < began:
                continue
            proof = [self.in_file(self.files.layout.events(one.job_id or "0"), aside.reason)]
            if cause := cause_in(aside.reason):
                yield cause, sentence(cause, aside.node), proof, aside.node
            elif aside.kind == "check" and aside.reason:
                unfit = replace(UNFIT, sentence=line(aside.reason, MOST_TEXT))
                yield unfit, sentence(unfit, aside.node), proof, aside.node
        for reason, path in (
            (at.reason, self.files.layout.attempt_state(at.run, at.attempt)) if at else ("", None),
            (job.reason, self.files.layout.job(job.job_id)) if job else ("", None),
        ):
            if path is not None and (cause := cause_in(reason, OWN_WORDS)):
                yield cause, cause.sentence, [self.in_file(path, reason)], ""
        if one.state == "time_limit":
            cause = next(cause for cause in WAITS if cause.name == "time_limit")
            yield cause, cause.sentence, [Proof("", 0, one.reason)] if one.reason else [], ""
        if in_output is not None and in_output[0].grade == ECHO:
            yield in_output

    def not_known(
        self, at: RunRecord | None, found: tuple[str, Symptom] | None, logs: dict[str, LogEnds]
    ) -> Explanation:
        proofs = self.proofs(found, logs, {}) if found else []
        if found and found[1].offset >= 0:
            proofs += self.context(logs[found[0]], found[1].offset)
        reason = at.reason if at and at.reason else self.one.reason
        if not proofs and self.one.job_id and "/" not in self.one.job_id:
            output = self.files.layout.job_output(self.one.job_id)
            words = [
                text
                for text in read_end(output, 2048).decode("utf-8", "replace").split("\n")
                if text.strip()
            ]
            proofs = [self.in_file(output, words[-1].strip())] if words else []
        if not proofs and logs:
            proofs = self.last_lines(next(iter(logs.values())))
        text = f"cause unknown: {reason}" if reason else "cause unknown"
        template = _LOG if at else "orchestrator logs {set} --job"
        return Explanation(
            self.one.state,
            UNKNOWN,
            line(text, MOST_TEXT),
            next=self.command(template, at=at),
            evidence=[*proofs, *self.last_key(at)],
        )


def explain(files: SetEvidence, one: SetPicture) -> Explanation:
    """Return why the set is in the state of its picture. Never raises: unreadable files are
    ignored."""
    return _Set(files, one).explain()
