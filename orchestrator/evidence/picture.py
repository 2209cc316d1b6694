"""A picture of sets, from their files and one scheduler query.

The files are the truth about runs. The scheduler adds why a job waits, and whether a silent job has
ended. Without its answer the picture has only the files, and is marked so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import SchedulerError
from orchestrator.evidence.events import SetAside, read_job_notes
from orchestrator.evidence.files import is_node_name
from orchestrator.evidence.progress import (
    Evaluation,
    Logs,
    age_s,
    score_so_far,
    stand_in,
    time_left,
)
from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.state import LIVE, QUEUED, STATES, judge
from orchestrator.evidence.training_log import training_log
from orchestrator.mllog.source import why_no_result
from orchestrator.onnode.kernel.records import Finding, JobRecord, RunRecord, SetRecord
from orchestrator.onnode.kernel.world import now_ms
from orchestrator.words import count, duration, quoted

if TYPE_CHECKING:
    from orchestrator.evidence.silence import RunSilence
    from orchestrator.onnode.policy.queue import Queue
    from orchestrator.scheduler.job import Job, Scheduler


AT_WORK = ("starting", "running", "ending", "suspended")
"""States of a set whose job has active runs."""
_ENDS = ("not_converged", "interrupted")
"""Outcomes of failed runs that are states in a picture."""
QUIET_S = 5.0
"""A log written so lately is growing: loops and storage buffer for seconds."""


@dataclass(frozen=True, slots=True)
class RunPicture:
    """One run. `minutes` is a good run's time to train; `seconds` the last attempt's wall time."""

    run: int
    state: str
    """queued, running, success, not_converged, failed (no result) or interrupted; success and
    not_converged are done."""
    outcome: str = ""
    attempt: int = 0
    reason: str = ""
    seed: int = 0
    minutes: float | None = None
    seconds: float | None = None
    startup_s: float | None = None
    """From the start of its script to run_start; from run_stop to the script's end."""
    shutdown_s: float | None = None
    cold: bool | None = None
    """True for the first run in its container."""
    done: bool = False
    nodes: tuple[str, ...] = ()
    evaluation: Evaluation | None = None
    """The last evaluation of an active run."""
    evaluations: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    """An active run's last logged samples per second; `evaluations`: its last values."""
    silent_s: float | None = None
    """Seconds since the last write to an active run's log."""
    failed_attempt: int = 0
    """The last failed attempt of a run that was or will be tried again, or 0; `failure`: why."""
    failure: str = ""
    silence: RunSilence | None = None
    """The loop's last record about an active run, if it makes any."""

    @property
    def age(self) -> str:
        """Return `last line 25s ago` of an active run, "" while its log grows."""
        if self.silent_s is None or self.silent_s < QUIET_S:
            return ""
        return f"last line {duration(self.silent_s)} ago"

    @property
    def why(self) -> str:
        """Return why it failed, or was tried again; "" if neither."""
        before = f"attempt {self.failed_attempt}: {self.failure}" if self.failure else ""
        return "; ".join(filter(None, (self.reason, before)))


@dataclass(frozen=True, slots=True)
class SetPicture:
    """One set. Times are Unix milliseconds, scores minutes; `current` is the active run, or 0."""

    root: Path
    set_id: str
    state: str
    reason: str = ""
    record: SetRecord | None = None
    job_id: str = ""
    job_state: str = ""
    """The scheduler's state, "" if unknown, or "no answer"."""
    job_reason: str = ""
    """The scheduler's reason for a waiting job."""
    runs: tuple[RunPicture, ...] = ()
    done: int = 0
    """Runs with a result, `not_converged` among them. `failed`: given up without one."""
    not_converged: int = 0
    failed: int = 0
    current: int = 0
    attempt: int = 0
    going: tuple[RunPicture, ...] = ()
    """The active runs, side by side."""
    attempts: int = 0
    """All attempts so far."""
    evaluation: Evaluation | None = None
    started_ms: int = 0
    ended_ms: int = 0
    idle_ms: int = 0
    """Time between its jobs, and until now while the next waits."""
    score_so_far: float | None = None
    """Mean of the finished runs as the score takes it (mllog/olympic.py), until the set is
    scored."""
    findings: tuple[Finding, ...] = ()
    spares: tuple[str, ...] = ()
    """Waiting spare nodes of a working job."""
    set_aside: tuple[SetAside, ...] = ()
    """Excluded nodes, in order."""
    blamed: tuple[SetAside, ...] = ()
    warnings: tuple[str, ...] = ()
    """Warnings of the last job."""
    pulling: str = ""
    """While a job starts: how many nodes have the image, and the others' progress."""
    stand_in: bool = False
    """A small workload runs in the benchmark's place; known from the first log on."""

    @property
    def rehearsed(self) -> bool:
        return self.record is not None and self.record.rehearsed

    @property
    def no_result(self) -> str:
        """Return why nothing of the set is a result, or ""."""
        return why_no_result(rehearsed=self.rehearsed, stand_in=self.stand_in)

    @property
    def meaning(self) -> str:
        """Return why the set is in its state, else the state's meaning."""
        if self.state == "complete" and not self.reason and self.done == len(self.runs):
            runs = count(self.done, "run")
            return f"all {runs} are done" if self.done > 1 else "its run is done"
        return self.reason or STATES[self.state]

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def given_up(self) -> list[int]:
        """Return the runs that failed without a result; `resume` tries them again."""
        return [run.run for run in self.runs if run.state == "failed"]

    @property
    def late(self) -> list[RunPicture]:
        """Return the active runs that take a fifth longer than any before."""
        usual = [run.seconds for run in self.runs if run.done and run.seconds]
        return [run for run in self.going if usual and (run.seconds or 0) > 1.2 * max(usual)]

    @property
    def elapsed_s(self) -> float:
        """Return seconds from the first job's start until the end, or now."""
        if not self.started_ms:
            return 0.0
        return max(0.0, ((self.ended_ms or now_ms()) - self.started_ms) / 1000)

    @property
    def in_jobs_s(self) -> float:
        """Return the part of elapsed_s in which a job had the set."""
        return max(0.0, self.elapsed_s - self.idle_ms / 1000)

    @property
    def usual_s(self) -> float | None:
        """Return the mean wall time of the finished runs."""
        ended = [run.seconds for run in self.runs if run.done and run.seconds is not None]
        return sum(ended) / len(ended) if ended else None

    def left_s(self, usual_s: float | None = None) -> float | None:
        """Return the seconds until the last run of a running set ends; None if unknown.

        Missing runs are assumed to take as long as those so far, which a late run does not;
        `usual_s` is for a set without a finished run.
        """
        usual = self.usual_s or usual_s
        if self.state != "running" or usual is None or self.late:
            return None
        open_runs = sum(not run.done for run in self.runs)
        return time_left(
            usual, [run.seconds or 0.0 for run in self.going], open_runs - len(self.going)
        )


def ask_all(sets: Iterable[SetEvidence], scheduler: Scheduler) -> dict[str, Job] | None:
    """Return the jobs of all unsettled sets by id, with one query; None without an answer."""
    names, ids = [], []
    for files in sets:
        if files.settled or files.record is None or files.record.scheduler != scheduler.name:
            continue
        if files.record.rehearsed:  # its jobs share numbers with other people's jobs
            continue
        if files.submission is not None:
            names.append(files.record.job_name)
        if files.job_id and (files.submission is None or scheduler.runs_here):
            ids.append(files.job_id)
    if not names and not ids:
        return {}
    try:
        return scheduler.jobs(names=names, ids=ids)
    except SchedulerError:
        return None


def picture(
    files: SetEvidence, jobs: dict[str, Job] | None, logs: Logs, *, asked: bool = True
) -> SetPicture:
    """Return the picture of one set. `jobs` is ask_all()'s answer; `asked` False: not asked so
    far."""
    if files.record is None:
        problem = str(files.findings[0].problem) if files.findings else "is missing"
        return SetPicture(
            files.layout.root,
            files.layout.root.name,
            "damaged",
            f"set.json {problem}",
            findings=tuple(files.findings),
        )
    state, reason, job = judge(files, jobs, asked=asked)
    if problem := files.bundle_problem:
        files.findings.add(files.layout.bundle, problem)
    runs = tuple(_run(files, run, logs) for run in range(1, files.record.nexp + 1))
    working = files.job if state in ("starting", "running", "ending") else None
    notes = read_job_notes(files)
    if working:
        runs = tuple(_queued_again(run) if _is_due(run, notes.queue) else run for run in runs)
    running = (
        [_evaluated(files, run, logs) for run in runs if run.state == "running"] if working else []
    )
    running = _with_silences(files, running) if state == "running" else running
    urgent = _urgent(running)
    runs = tuple({run.run: run for run in (*runs, *running)}.values())
    ended = (files.job.ended_ms or files.job.updated_ms) if files.job and state not in LIVE else 0
    times_known = [run.minutes for run in runs if run.minutes is not None]
    silent = jobs is None and asked and not files.settled
    if state not in AT_WORK:
        runs = tuple(map(_interrupted, runs))
    misses = sum(run.state == "not_converged" for run in runs)
    if state == "complete" and (added := files.added_runs):
        state, reason = "paused", f"{count(added, 'run')} added; resume runs them"
    elif state == "complete":
        reason = reason or _failures(runs)
    return SetPicture(
        root=files.layout.root,
        set_id=files.record.set_id,
        state=state,
        reason="; ".join(text for text in (reason, urgent.sentence if urgent else "") if text),
        record=files.record,
        job_id=files.job_id or (job.id if job else ""),
        job_state="no answer" if silent else job.state if job else "",
        job_reason=job.wait_reason if job and state in QUEUED else "",
        runs=runs,
        done=sum(run.done for run in runs),
        not_converged=misses,
        failed=sum(run.state == "failed" for run in runs),
        current=running[-1].run if running else 0,
        attempt=running[-1].attempt if running else 0,
        going=tuple(running),
        attempts=sum(run.attempt for run in runs),
        evaluation=running[-1].evaluation if running else None,
        started_ms=files.jobs[0].started_ms if files.jobs else 0,
        ended_ms=ended,
        idle_ms=_idle_ms(files.jobs, now_ms() if state in LIVE and state not in AT_WORK else 0),
        score_so_far=score_so_far(files.record.benchmark, times_known, misses),
        spares=tuple(filter(is_node_name, working.spares)) if working else (),
        set_aside=tuple(notes.aside),
        blamed=tuple(notes.blamed),
        warnings=tuple(files.job.warnings) if files.job else (),
        findings=tuple(files.findings),
        pulling=_pulling(files.job, notes.lacking) if files.job and state == "starting" else "",
        stand_in=logs.stand_in(lambda: _stand_in(files, runs)),
    )


def _idle_ms(jobs: list[JobRecord], until_ms: int) -> int:
    """Return the time between jobs, and from the last end to `until_ms` unless 0."""
    starts = [*(job.started_ms for job in jobs[1:]), *([until_ms] if until_ms else [])]
    ends = (job.ended_ms or job.updated_ms for job in jobs)
    return sum(max(0, start - end) for end, start in zip(ends, starts, strict=False) if end)


def _stand_in(files: SetEvidence, runs: tuple[RunPicture, ...]) -> bool | None:
    """Return whether the first log that names its benchmark is of a stand-in; None without any."""
    for run in runs:
        if run.state == "success":  # one small read, for tables of many sets
            answer = stand_in(files.layout.result(run.run), files.findings.inside)
        else:
            log = training_log(files.layout, run.run, run.attempt) if run.attempt else None
            answer = stand_in(log, files.findings.inside) if log else None
        if answer is not None:
            return answer
    return None


def _failures(runs: tuple[RunPicture, ...]) -> str:
    """Return `2 of 10 runs did not converge, 1 failed in all its attempts`, or ""."""
    missed = sum(run.state == "not_converged" for run in runs)
    failed = sum(run.state == "failed" for run in runs)
    whose = "its" if failed == 1 else "their"
    kinds = [(missed, "did not converge"), (failed, "failed in all " + whose + " attempts")]
    texts = [(number, text) for number, text in kinds if number]
    whole = f" of {count(len(runs), 'run')}"
    return ", ".join(f"{n}{'' if k else whole} {text}" for k, (n, text) in enumerate(texts))


def _pulling(job: JobRecord, lacking: dict[str, str]) -> str:
    """Return `pulling: the image is on 3 of 8 nodes (n4: 12 of 40 layers)`, or ""."""
    if not lacking:
        return ""
    nodes = len({*job.nodes, *job.spares, *lacking})
    progress = "; ".join(f"{node}: {text}" for node, text in lacking.items() if text)
    return f"pulling: the image is on {nodes - len(lacking)} of {count(nodes, 'node')}" + (
        f" ({progress})" if progress else ""
    )


def _run(files: SetEvidence, run: int, logs: Logs) -> RunPicture:
    record = files.run(run)
    if record is None:
        return RunPicture(run, "queued")
    end_ms = record.end_ms or (now_ms() if record.state == "running" else 0)
    key = run, record.attempt
    around = None
    if record.end_ms and not logs.brief:
        from orchestrator.evidence.startup import read_startup  # not for many sets

        around = logs.once(key, lambda: read_startup(files, *key))
    failed_attempt, failure = (0, "") if logs.brief else _last_failure(files, run, record)
    minutes = None
    if record.state == "success":
        minutes = logs.minutes(files.layout.result(run), files.findings.inside)
    return RunPicture(
        run,
        record.outcome if record.state == "failed" and record.outcome in _ENDS else record.state,
        record.outcome,
        record.attempt,
        record.reason,
        record.seed,
        minutes=minutes,
        seconds=(end_ms - record.start_ms) / 1000 if record.start_ms and end_ms else None,
        startup_s=around.startup_s if around else None,
        shutdown_s=around.shutdown_s if around else None,
        cold=around.cold if around else None,
        done=record.done,
        nodes=tuple(filter(is_node_name, record.nodes)),
        failed_attempt=failed_attempt,
        failure=failure,
    )


def _is_due(run: RunPicture, queue: Queue | None) -> bool:
    """Return whether the working job will try a failed run again."""
    is_left = not queue or not queue.most or run.run in queue.missing or run.run in queue.in_hand
    return run.state in ("failed", "interrupted") and is_left


def _interrupted(run: RunPicture) -> RunPicture:
    """Return a run of an ended job, which may have had no time to write its end."""
    return replace(run, state="interrupted") if run.state == "running" else run


def _queued_again(run: RunPicture) -> RunPicture:
    before = replace(run, failed_attempt=run.attempt, failure=run.reason)
    return replace(before, state="queued", outcome="", reason="")


def _last_failure(files: SetEvidence, run: int, state: RunRecord) -> tuple[int, str]:
    """Return (attempt, reason) of a run's last failed attempt; (0, "") if it failed in the end."""
    if state.state not in ("success", "running"):
        return 0, ""
    for number in reversed(files.attempts_of(run)):
        before = files.attempt(run, number) if number < state.attempt else None
        if before is not None and before.state == "failed":
            return number, before.reason
    return 0, ""


def _urgent(running: list[RunPicture]) -> RunSilence | None:
    """Return the silence to report."""
    if not running:
        return None
    from orchestrator.evidence.silence import most_urgent

    return most_urgent(run.silence for run in running)


def _with_silences(files: SetEvidence, running: list[RunPicture]) -> list[RunPicture]:
    if not running:
        return running
    from orchestrator.evidence.silence import read_silences

    silences = read_silences(files)
    return [replace(run, silence=silences.get((run.run, run.attempt))) for run in running]


def _evaluated(files: SetEvidence, run: RunPicture, logs: Logs) -> RunPicture:
    log = training_log(files.layout, run.run, run.attempt)
    tail, age = logs.tail(log, files.findings.inside), age_s(log)
    return replace(
        run,
        evaluation=tail.evaluation,
        evaluations=tuple(tail.evaluations),
        rates=tuple(tail.rates),
        silent_s=age if age < math.inf else None,
    )


def look(roots: Iterable[Path], schedulers: Iterable[Scheduler]) -> list[SetPicture]:
    """Return the pictures of the sets in `roots`, with one query to each scheduler."""
    return draw([SetEvidence(root) for root in roots], schedulers)


def draw(sets: list[SetEvidence], schedulers: Iterable[Scheduler]) -> list[SetPicture]:
    """Return the pictures of sets already read."""
    answers = {scheduler.name: ask_all(sets, scheduler) for scheduler in schedulers}
    logs, drawn = Logs(brief=len(sets) > 1), _drawn if len(sets) == 1 else _drawn_among_others
    return [
        drawn(files, answers.get(files.record.scheduler if files.record else ""), logs)
        for files in sets
    ]


def _drawn(files: SetEvidence, jobs: dict[str, Job] | None, logs: Logs) -> SetPicture:
    drawn = picture(files, jobs, logs)
    # A job may close its set and end between our read and the scheduler's answer.
    return picture(SetEvidence(files.layout.root), jobs, logs) if drawn.state == "lost" else drawn


def _drawn_among_others(files: SetEvidence, jobs: dict[str, Job] | None, logs: Logs) -> SetPicture:
    try:
        return _drawn(files, jobs, logs)
    except Exception as error:  # an internal error of one set must not hide the others
        root, why = files.layout.root, f"{type(error).__name__}: {error}"[:300]
        return SetPicture(
            root,
            root.name,
            "damaged",
            f"cannot be shown: {why}; orchestrator status {quoted(root)} shows more",
            files.record,
        )


def as_json(drawn: SetPicture) -> dict[str, Any]:
    """Return the stable JSON form; times in Unix milliseconds, scores in minutes."""
    record = drawn.record
    return {
        "set": str(drawn.root),
        "set_id": drawn.set_id,
        "name": record.label if record else "",
        "state": drawn.state,
        "reason": drawn.reason,
        "system": record.system if record else None,
        "workload": record.workload if record else None,
        "nexp": record.nexp if record else None,
        "done": drawn.done,
        "not_converged": drawn.not_converged,
        "failed": drawn.failed,
        "attempts": drawn.attempts,
        "job_id": drawn.job_id,
        "job_state": drawn.job_state,
        "current_run": drawn.current,
        "current_attempt": drawn.attempt,
        "current_runs": [run.run for run in drawn.going],
        "evaluation": drawn.evaluation._asdict() if drawn.evaluation else None,
        "target": record.target if record else None,
        "started_ms": drawn.started_ms,
        "ended_ms": drawn.ended_ms,
        "elapsed_s": round(drawn.elapsed_s, 1),
        "score_so_far_minutes": drawn.score_so_far,
        "left_s": None if (left := drawn.left_s()) is None else round(left, 1),
        "runs": [_run_json(run) for run in drawn.runs],
        "findings": [str(finding) for finding in drawn.findings],
        "spares": list(drawn.spares),
        "set_aside": [aside._asdict() for aside in drawn.set_aside],
        "blamed": [aside._asdict() for aside in drawn.blamed],
        "warnings": list(drawn.warnings),
        "pulling": drawn.pulling,
        "rehearsal": drawn.rehearsed,
        "stand_in": drawn.stand_in,
    }


def _run_json(run: RunPicture) -> dict[str, Any]:
    """Return the JSON form, with the last rate only: whole curves would make a stream long."""
    members = asdict(run)
    del members["evaluations"], members["rates"], members["silence"]
    silence = run.silence.silence if run.silence else None
    return {
        **members,
        "evaluation": run.evaluation._asdict() if run.evaluation else None,
        "rate": run.rates[-1] if run.rates else None,
        "quiet_s": silence.quiet_s if silence and not silence.unheard else None,
        "hang_limit_s": silence.limit_s if silence and silence.limit_ms else None,
    }
