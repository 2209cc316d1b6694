"""The parts of a set and of many sets: facts, runs, a headline."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.views.parts import Table
from orchestrator.words import MISSING, duration, local_time, train_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.evidence.events import SetAside
    from orchestrator.evidence.picture import RunPicture, SetPicture
    from orchestrator.onnode.kernel.records import SetRecord
    from orchestrator.published import PublishedResult


def set_table(pictures: Sequence[SetPicture]) -> Table:
    """Return a row per set, with names (`submit --name`) if any has one."""
    labels = [picture.record.label if picture.record else "" for picture in pictures]
    rows = [_set_row(picture) for picture in pictures]
    header = ["set", *_SET_COLUMNS]
    leave = ["attempts", "job", "last eval", "elapsed", "set", "now", "olympic mean", "left"]
    if any(labels):
        header.insert(1, "name")
        leave.insert(-1, "name")
        rows = [
            [row[0], label or MISSING, *row[1:]] for row, label in zip(rows, labels, strict=True)
        ]
    right = ("runs", "attempts", "elapsed", "left", "olympic mean")
    return Table(
        "Sets",
        header,
        rows,
        numeric=[header.index(name) for name in right],
        remark="reason",
        below=[picture.reason for picture in pictures],
        states=[header.index("state")],
        leave=leave,
    )


_SET_COLUMNS = (
    "state", "runs", "attempts", "now", "last eval", "elapsed", "left", "olympic mean", "job",
)  # fmt: skip


def _set_row(picture: SetPicture) -> list[str]:
    nexp = picture.record.nexp if picture.record else 0
    bad = bad_text(picture)
    runs = f"{picture.done}/{nexp}" + (f" ({bad})" if bad else "")
    left = left_s(picture)
    return [
        picture.root.name,  # commands find no other id
        # Without a sign and a colour: a rehearsal looks neither good nor bad.
        f"{picture.state} (rehearsal)" if picture.no_result else picture.state,
        runs,
        str(picture.attempts),
        now_text(picture),
        evaluation_text(picture),
        duration(picture.elapsed_s) if picture.started_ms else MISSING,
        MISSING if left is None else duration(left),
        train_time(picture.score_so_far, missing=MISSING),
        job_text(picture),
    ]


def run_table(runs: Sequence[RunPicture]) -> Table:
    return Table(
        "Runs",
        ("run", "state", "attempts", "time to train", "start-up", "shut-down", "wall", "seed"),
        [_run_row(run) for run in runs],
        numeric=(0, 2, 3, 4, 5, 6, 7),
        remark="reason",
        below=[run.why for run in runs],
        states=(1,),
        leave=("seed", "shut-down", "start-up", "attempts"),
    )


def _run_row(run: RunPicture) -> list[str]:
    return [
        str(run.run),
        run.state.replace("_", " "),
        str(run.attempt or MISSING),
        train_time(run.minutes, missing=MISSING),
        startup_text(run.startup_s, run.cold),
        startup_text(run.shutdown_s, None),
        MISSING if run.seconds is None else duration(run.seconds),
        str(run.seed or MISSING),
    ]


def published(picture: SetPicture) -> list[PublishedResult]:
    """Return published results of the set's system, benchmark and round; [] for a rehearsal, or
    if the set lacks part of their configuration."""
    record = picture.record
    if (
        record is None
        or picture.no_result
        or record.unmet
        or not (record.benchmark and record.system)
    ):
        return []
    from orchestrator.published import find

    return find(benchmark=record.benchmark, round=record.round, system=record.system)


def rehearsal_fact(picture: SetPicture) -> list[tuple[str, str]]:
    why = picture.no_result
    return [("rehearsal", f"not a result: {why}")] if why else []


def state_facts(
    picture: SetPicture, sign: Callable[[str], str] = lambda state: state
) -> list[tuple[str, str]]:
    """Return the state with its meaning; without a sign for a rehearsal, after that fact."""
    state = picture.state if picture.no_result else sign(picture.state)
    return [*rehearsal_fact(picture), ("state", f"{state}: {picture.meaning}")]


def image_fact(picture: SetPicture) -> list[tuple[str, str]]:
    return [("image", picture.pulling)] if picture.pulling else []


def score_fact(picture: SetPicture) -> tuple[str, str]:
    """Return the mean of the runs, by its name."""
    score = train_time(picture.score_so_far)
    return ("olympic mean", score) if picture.state == "complete" else ("score", f"{score} so far")


def warning_facts(picture: SetPicture) -> list[tuple[str, str]]:
    warnings = [("warning", warning) for warning in picture.warnings]
    return [*warnings, *(("damaged", str(finding)) for finding in picture.findings)]


def size_text(record: SetRecord) -> str:
    """Return `8 x 8 GPUs`."""
    return f"{record.nodes} x {record.each}"


def beat_text(entry: PublishedResult) -> str:
    """Return `74.44 min (AMD, round 6.0)`."""
    return f"{entry.minutes:.2f} min ({entry.submitter}, round {entry.round})"


def elapsed_text(picture: SetPicture, so_far: str = "") -> str:
    """Return `2h29m, of which 1m50s in jobs`; the latter only with a pause between jobs."""
    in_jobs = f", of which {duration(picture.in_jobs_s)} in jobs" if picture.idle_ms >= 1000 else ""
    return f"{duration(picture.elapsed_s)}{so_far}{in_jobs}"


def score_name(picture: SetPicture) -> str:
    """Name the mean of the runs: of a complete set it is no estimate."""
    return "olympic mean" if picture.state == "complete" else "score so far"


def left_s(picture: SetPicture) -> float | None:
    """Return seconds to the end, before the first result by the published time."""
    left = picture.left_s()
    if left is None and picture.state == "running" and (known := published(picture)):
        left = picture.left_s(60 * known[0].minutes)
    return left


def left_text(picture: SetPicture, now_s: float | None = None) -> str:
    """Return `about 9h07m, until Sun 14:20` or `about to end`; "" if unknown."""
    left = left_s(picture)
    if left is None:
        return ""
    if left < 1:
        return "about to end"
    now = time.time() if now_s is None else now_s
    day = "" if left < 43_200 else "%a " if left < 518_400 else "%Y-%m-%d "
    end = local_time(1000 * (now + left), f"{day}%H:%M")
    return f"about {duration(left)}" + (f", until {end}" if end != MISSING else "")


def now_text(picture: SetPicture) -> str:
    """Return `run 3 of 10`, with an attempt from 2 on; `runs 3, 4 of 10` side by side."""
    if not picture.current or picture.record is None:
        return MISSING
    if len(picture.going) > 1:
        runs = (
            f"{run.run} (attempt {run.attempt})" if run.attempt > 1 else str(run.run)
            for run in picture.going
        )
        return f"runs {', '.join(runs)} of {picture.record.nexp}"
    again = f", attempt {picture.attempt}" if picture.attempt > 1 else ""
    return f"run {picture.current} of {picture.record.nexp}{again}"


def evaluation_text(picture: SetPicture) -> str:
    evaluations = (
        [run.evaluation for run in picture.going]
        if len(picture.going) > 1
        else [picture.evaluation]
    )
    if not any(evaluations) or picture.record is None:
        return MISSING
    target = "" if picture.record.target is None else f" (target {picture.record.target:g})"
    return ", ".join(f"{each.value:.4g}" if each else "none" for each in evaluations) + target


def job_text(picture: SetPicture) -> str:
    if not picture.job_id:
        return MISSING
    return f"{picture.job_id} ({picture.job_state})" if picture.job_state else picture.job_id


def startup_text(seconds: float | None, cold: bool | None) -> str:
    """Return `7m15s new` for the first run in a new container."""
    return MISSING if seconds is None else duration(seconds) + (" new" if cold else "")


def bad_text(picture: SetPicture) -> str:
    """Return `2 not converged, 1 failed`: the first are done, the second not."""
    kinds = ((picture.not_converged, "not converged"), (picture.failed, "failed"))
    return ", ".join(f"{number} {name}" for number, name in kinds if number)


def headline(picture: SetPicture) -> str:
    nexp = picture.record.nexp if picture.record else 0
    parts = [
        *(["rehearsal"] if picture.no_result else []),
        picture.state,
        f"{picture.done}/{nexp} done",
    ]
    parts += [bad_text(picture)] if bad_text(picture) else []
    parts += [picture.pulling] if picture.pulling else []
    parts += [text] if (text := now_text(picture)) != MISSING else []
    parts += [f"eval {text}"] if (text := evaluation_text(picture)) != MISSING else []
    parts += (
        [f"{score_name(picture)} {train_time(picture.score_so_far)}"]
        if picture.score_so_far is not None
        else []
    )
    return "  ".join(parts) + (f"  ({picture.reason})" if picture.reason else "")


def aside_text(aside: SetAside) -> str:
    """Return `n3 (run 2, attempt 1): reason`."""
    return f"{aside.node} ({aside.when}): {aside.reason or 'no reason recorded'}"


def unfit_facts(picture: SetPicture) -> list[tuple[str, str]]:
    """Return the excluded and the blamed nodes."""
    return [
        *(("excluded", aside_text(aside)) for aside in picture.set_aside),
        *(("blamed", aside_text(aside)) for aside in picture.blamed),
    ]


def describe(picture: SetPicture, score_command: str = "") -> list[tuple[str, str]]:
    """Return the facts of a set. `score_command`, if any, prints the score of a complete
    set."""
    from orchestrator.nodes.names import fold

    record = picture.record
    *rehearsal, state = state_facts(picture)
    name = [("name", record.label)] if record and record.label else []
    pairs = [*rehearsal, *name, ("set", str(picture.root)), state]
    if record is not None:
        bound = "<=" if record.target_is_upper_bound else ">="
        target = "" if record.target is None else f", {record.metric} {bound} {record.target:g}"
        pairs += [
            ("runs", f"{record.system} {record.workload} (round {record.round}{target})"),
            ("nodes", f"{size_text(record)}, engine {record.engine}"),
        ]
    pairs += [("job", job_text(picture)), *image_fact(picture)]
    alone = len(picture.going) < 2
    for run in picture.going:
        each = replace(
            picture, going=(run,), current=run.run, attempt=run.attempt, evaluation=run.evaluation
        )
        where = "" if alone else f" on {fold(run.nodes)}"
        age = f"; {run.age}" if run.age else ""
        text = evaluation_text(each)
        evaluation = "no evaluation yet" if text == MISSING else f"evaluation {text}"
        pairs.append(("now", f"{now_text(each)}{where}, {evaluation}{age}"))
    if picture.started_ms:
        pairs.append(("elapsed", elapsed_text(picture)))
    if left := left_text(picture):
        pairs.append(("left", left))
    pairs += [
        ("left", f"unknown: run {run.run} takes longer than any before it")
        for run in picture.late[:1]
    ]
    if picture.score_so_far is not None:
        title, score = score_fact(picture)
        more = ": mean of the good runs without fastest and slowest"
        if picture.state == "complete":
            more = f" (the score: {score_command})" if score_command else ""
        pairs.append((title, score + more))
    pairs += [("to beat", beat_text(entry)) for entry in published(picture)]
    if picture.spares:
        pairs.append(("spares", f"{fold(picture.spares)} ({len(picture.spares)} waiting)"))
    return [*pairs, *unfit_facts(picture), *warning_facts(picture)]
