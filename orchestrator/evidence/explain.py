"""Explain why a set is pending, slow, paused, hung or failed: one sentence, its evidence, the next
command (docs/explain.md).

The rules are data: causes/causes.json for programs, scheduler/reasons.py for the scheduler,
own_causes.py for the loop. Only the two ends of each log are read.
"""

from __future__ import annotations

import re
from dataclasses import replace

from orchestrator.causes.cause import RESUME
from orchestrator.causes.reading import symptoms
from orchestrator.causes.tables import BY_NAME
from orchestrator.evidence.explanation import JOB_LOG, RUN_LOG, UNKNOWN, Explanation, Wording
from orchestrator.evidence.failures import AttemptEvidence, FailedAttempts
from orchestrator.evidence.last_end import LastEnd
from orchestrator.evidence.nodes import read_history, suspicions
from orchestrator.evidence.picture import RunPicture, SetPicture
from orchestrator.evidence.quotes import MOST_EVIDENCE, Proof, Quotes, shortened
from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.silence import RunSilence, most_urgent
from orchestrator.evidence.state import QUEUED, STATES
from orchestrator.evidence.way_out import way_out
from orchestrator.onnode.kernel.log_ends import LogEnds
from orchestrator.onnode.kernel.records import RunRecord
from orchestrator.scheduler import advice
from orchestrator.scheduler.reasons import cause_of
from orchestrator.words import count

_NAN_RECORD = re.compile(rb":::MLLOG [^\n]*: NaN[,}][^\n]*")
_TRY_AGAIN = "orchestrator resume "
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
_SILENT = {
    "hung": (
        "nothing to do: the nodes record the state of their processes, then the run is repeated",
        "orchestrator watch {set}",
    ),
    "loop_silent": (
        (
            "check the batch host and its storage; if the loop stays silent, cancel the set and "
            "resume it"
        ),
        JOB_LOG,
    ),
    "silent": (
        "nothing to do: at the limit the loop ends the attempt and repeats the run",
        RUN_LOG,
    ),
}
"""The help for a silent run or loop, and its command."""
_SLOW = "check the nodes", "orchestrator nodes {set}"
_LATE = "look at the end of its log; the loop ends a run that hangs at its limit", RUN_LOG
"""The same for a slow node, and for a long run whose nodes are alike."""


class _Set:
    """The explanation of one set."""

    def __init__(self, files: SetEvidence, picture: SetPicture) -> None:
        self.files, self.picture = files, picture
        self.wording, self.quotes = Wording(files, picture), Quotes(files.layout)
        self.failures = FailedAttempts(files, picture)

    def explain(self) -> Explanation:
        picture = self.picture
        if picture.state in (*QUEUED, "refused", "unknown"):
            return self.waits()
        if picture.state in ("paused", "failed", "lost", "time_limit"):
            return way_out(self.died(), self.failures, self.wording)
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
            shortened("; ".join(filter(None, (text, again)))),
            next=self.wording.command(template),
            evidence=proofs,
        )

    def tried_again(self) -> tuple[str, list[Proof]]:
        """Return which good runs took several attempts, and why the attempts before failed."""
        runs = [run for run in self.picture.runs if run.failure and run.state == "success"]
        text = ", ".join(f"run {run.run} took {count(run.attempt, 'attempt')}" for run in runs)
        return text, [self.failure_of(run) for run in runs[-MOST_EVIDENCE:]]

    def failure_of(self, run: RunPicture) -> Proof:
        """Return the record of the last failed attempt of a run."""
        path = self.files.layout.attempt_state(run.run, run.failed_attempt)
        return self.quotes.record(path, run.failure)

    def waits(self) -> Explanation:
        """Explain a set whose job is not running, by the scheduler's reason or refusal."""
        picture, asked, queued = self.picture, self.files.submission, self.picture.state in QUEUED
        text = (asked.error or picture.reason) if not queued and asked else picture.job_reason
        proofs = [Proof(advice.QUEUE_LISTING, 0, shortened(text))] if queued and text else []
        if not queued and asked:
            record = self.files.layout.submission(asked.number)
            proofs = [self.quotes.in_file(record, text.split("\n")[0])]
        cause = cause_of(text)
        if cause is not None:
            return self.wording.explain(cause, picture.reason if queued else cause.sentence, proofs)
        if queued and not text:
            return Explanation(
                "pending",
                "pending",
                f"it is in the queue, and {advice.SCHEDULER} gives no reason yet",
                next=self.wording.command(_NEXT["pending"]),
            )
        return Explanation(
            picture.state,
            UNKNOWN,
            shortened(f"{STATES[picture.state]}: {text}"),
            next=self.wording.command(_NEXT.get(picture.state, RESUME)),
            evidence=proofs,
        )

    def goes_on(self) -> Explanation:
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
            command = self.wording.command(template, attempt=attempt)
            return Explanation("running", "slow", shortened(text), remedy, command, proofs)
        nexp = picture.record.nexp if picture.record else 0
        now = ", ".join(f"run {run.run} (attempt {run.attempt})" for run in picture.going)
        again = [run for run in picture.runs if run.failure and run.state in ("running", "queued")]
        return Explanation(
            "running",
            "running",
            f"{now} of {nexp} is running" if now else f"the next run of {nexp} is about to start",
            next=self.wording.command(_NEXT["running"]),
            evidence=[*proofs, *map(self.failure_of, again[-MOST_EVIDENCE:])],
        )

    def silent(self, run: RunSilence) -> Explanation:
        """Explain a silent loop, or a run that its loop counts as silent or hung."""
        remedy, template = _SILENT[run.cause]
        attempt = RunRecord(run=run.run, attempt=run.attempt)
        proofs = self.signs_of_life(run.run, run.attempt, run)
        command = self.wording.command(template, attempt=attempt)
        return Explanation("running", run.cause, run.sentence, remedy, command, proofs)

    def signs_of_life(self, run: int, attempt: int, silence: RunSilence | None) -> list[Proof]:
        """Return the loop's last record of a run, and its log's last MLLOG key and age."""
        proofs = []
        if silence and silence.silence and silence.silence.quiet_s >= 1 and silence.record:
            proofs = [Proof(self.quotes.named(silence.file), 0, silence.record)]
        age = next((picture.age for picture in self.picture.going if picture.run == run), "")
        keys = self.quotes.last_key(RunRecord(run=run, attempt=attempt))
        return [*proofs, *(replace(key, text=f"{key.text}; {age}") if age else key for key in keys)]

    # ---- the set ended before its runs were done

    def gave_up(self) -> Explanation:
        """Explain the newest run that used all its attempts."""
        died, last = self.died(), self.failures.last
        explanation = way_out(died, self.failures, self.wording)
        run = last.record.run if last else self.picture.given_up[-1]
        text = f"run {run} of {len(self.picture.runs)} failed: {explanation.sentence}"
        remedy = explanation.remedy or "look at its log, then resume"
        keeps = (
            explanation is not died
            or explanation.cause == UNKNOWN
            or explanation.next.startswith(_TRY_AGAIN)
        )
        command = explanation.next if keeps else self.wording.command(RESUME)
        return replace(explanation, sentence=shortened(text), remedy=remedy, next=command)

    def died(self) -> Explanation:
        return LastEnd(self.wording, self.quotes, self.failures.last).explain()

    def diverged(self) -> Explanation | None:
        """Explain the newest run that missed the target, if its log shows NaN."""
        missed = [run for run in self.picture.runs if run.outcome == "not_converged"]
        for run in reversed(missed[-MOST_EVIDENCE:]):
            attempt = self.files.attempt(run.run, run.attempt)
            logs = AttemptEvidence(self.files, attempt).logs if attempt else {}
            for node, log in logs.items():
                if proofs := self.not_finite(log):
                    cause = BY_NAME["nan_loss"]
                    which = f"run {run.run} of {len(self.picture.runs)}"
                    text = f"{which} did not reach the target: {cause.sentence}"
                    return self.wording.explain(cause, text, proofs, node, attempt)
        return None

    def not_finite(self, log: LogEnds) -> list[Proof]:
        """Return a log's first record with NaN, or else its first line about it."""
        if record := _NAN_RECORD.search(log.text):
            text = shortened(record[0].decode("utf-8", "replace"))
            return [Proof(self.quotes.named(log.path), log.line(record.start()), text)]
        of_nan = (it for it in symptoms(log.text) if it.cause == "nan_loss")
        return [self.quotes.symptom(log, it) for it in of_nan][:1]


def explain(files: SetEvidence, picture: SetPicture) -> Explanation:
    """Return why the set is in its state. Never raises: unreadable files are ignored."""
    return _Set(files, picture).explain()
