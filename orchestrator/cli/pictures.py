"""Sets as lines and tables."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.words import TextTable, duration, quoted, train_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.evidence.events import SetAside
    from orchestrator.evidence.picture import RunPicture, SetPicture
    from orchestrator.published import PublishedResult
    from orchestrator.simulation.rehearsal import Moment
    from orchestrator.simulation.trials import SparesResult

SETS = TextTable(
    "SET", "STATE", "RUNS", "ATTEMPTS", "NOW", "LAST EVAL",
    "ELAPSED", "LEFT", "OLYMPIC MEAN", "JOB", "REASON",
    right=("RUNS", "ATTEMPTS", "ELAPSED", "LEFT", "OLYMPIC MEAN"),
    below=("REASON",),
    leave=("ATTEMPTS", "JOB", "LAST EVAL", "ELAPSED", "SET", "NOW", "OLYMPIC MEAN", "LEFT"),
)  # fmt: skip
NAMED_SETS = TextTable(
    "SET", "NAME", *SETS.columns[1:],
    right=SETS.right, below=SETS.below, leave=(*SETS.leave[:-1], "NAME", "LEFT"),
)  # fmt: skip
"""With the names from `submit --name`."""
RUNS = TextTable(
    "RUN", "STATE", "ATTEMPTS", "TIME TO TRAIN", "START-UP", "SHUT-DOWN", "WALL", "SEED", "REASON",
    right=("RUN", "ATTEMPTS", "TIME TO TRAIN", "START-UP", "SHUT-DOWN", "WALL", "SEED"),
    below=("REASON",),
    leave=("SEED", "SHUT-DOWN", "START-UP", "ATTEMPTS"),
)  # fmt: skip

TIMELINE = TextTable("TIME", "WHO", "WHAT HAPPENS", right=("TIME",), states=())


def spares_table(limit: str) -> TextTable:
    """Return the table of spares_row(); `limit`: the time to finish within, or ""."""
    columns = [
        "SPARES",
        "NODES",
        "FAILURES",
        "NODE-HOURS",
        "MEDIAN",
        "90 %",
        "99 %",
        "WITHOUT RESUME",
        "COMPLETE",
    ]
    columns += [f"WITHIN {limit}"] if limit else []
    return TextTable(*columns, right=columns, states=())


def spares_row(result: SparesResult, within_s: float | None) -> list[str]:
    """Return finishing times, and shares of the sets."""
    failures = sum(trial.failures for trial in result.trials) / len(result.trials)
    times = [result.quantile(share) for share in (0.5, 0.9, 0.99)]
    shares = [
        result.unattended,
        result.complete,
        *([] if within_s is None else [result.within(within_s)]),
    ]
    return [
        str(result.spares),
        str(result.nodes),
        f"{failures:.2f}",
        f"{result.node_hours:.0f}",
        *(duration(time) if time < float("inf") else "never" for time in times),
        *(f"{100 * share:.1f} %" for share in shares),
    ]


def moment_row(moment: Moment) -> list[str]:
    """Return `5:33:20`, actor, event."""
    minutes, second = divmod(int(moment.at_s), 60)
    return [f"{minutes // 60}:{minutes % 60:02}:{second:02}", moment.kind, moment.text]


def set_row(picture: SetPicture) -> list[str]:
    nexp = picture.record.nexp if picture.record else 0
    bad = bad_text(picture)
    runs = f"{picture.done}/{nexp}" + (f" ({bad})" if bad else "")
    left = left_s(picture)
    return [
        picture.set_id,
        # Without a sign and a colour: a rehearsal looks neither good nor bad.
        f"{picture.state} (rehearsal)" if picture.no_result else picture.state,
        runs,
        str(picture.attempts),
        now_text(picture),
        evaluation_text(picture),
        duration(picture.elapsed_s) if picture.started_ms else "-",
        "-" if left is None else duration(left),
        train_time(picture.score_so_far),
        job_text(picture),
        picture.reason,
    ]


def sets_table(pictures: Sequence[SetPicture]) -> tuple[TextTable, list[list[str]]]:
    """Add a column of names if any set has a name."""
    rows = [set_row(picture) for picture in pictures]
    labels = [picture.record.label if picture.record else "" for picture in pictures]
    if not any(labels):
        return SETS, rows
    return NAMED_SETS, [
        [row[0], label or "-", *row[1:]] for row, label in zip(rows, labels, strict=True)
    ]


def published(picture: SetPicture) -> list[PublishedResult]:
    """Return published results of the set's system, benchmark and round; [] if the set lacks part
    of the published configuration, or is no result."""
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
    """Say first that the set is no result, and why."""
    why = picture.no_result
    return [("rehearsal", f"not a result: {why}")] if why else []


def score_name(picture: SetPicture) -> str:
    """Name the mean of the runs: for a complete set it is no estimate."""
    return "olympic mean" if picture.state == "complete" else "score so far"


def left_s(picture: SetPicture) -> float | None:
    """Return seconds to the end; before the first result use the same system's published time."""
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
    return (
        f"about {duration(left)}, until {time.strftime(f'{day}%H:%M', time.localtime(now + left))}"
    )


def in_jobs_text(picture: SetPicture) -> str:
    """Return `, of which 1m50s in jobs`; "" without a pause between jobs."""
    between = picture.idle_ms >= 1000
    return f", of which {duration(picture.in_jobs_s)} in jobs" if between else ""


def now_text(picture: SetPicture) -> str:
    """Return `run 3 of 10`, with the attempt from the second on; `runs 3, 4 of 10` side by side."""
    if not picture.current or picture.record is None:
        return "-"
    if len(picture.going) > 1:
        runs = (
            f"{run.run} (attempt {run.attempt})" if run.attempt > 1 else str(run.run)
            for run in picture.going
        )
        return f"runs {', '.join(runs)} of {picture.record.nexp}"
    again = f", attempt {picture.attempt}" if picture.attempt > 1 else ""
    return f"run {picture.current} of {picture.record.nexp}{again}"


def evaluation_text(picture: SetPicture) -> str:
    """Return active runs' last evaluations, against the target."""
    evaluations = (
        [run.evaluation for run in picture.going]
        if len(picture.going) > 1
        else [picture.evaluation]
    )
    if not any(evaluations) or picture.record is None:
        return "-"
    target = "" if picture.record.target is None else f" (target {picture.record.target:g})"
    return ", ".join(f"{each.value:.4g}" if each else "-" for each in evaluations) + target


def job_text(picture: SetPicture) -> str:
    if not picture.job_id:
        return "-"
    return f"{picture.job_id} ({picture.job_state})" if picture.job_state else picture.job_id


def startup_text(seconds: float | None, cold: bool | None) -> str:
    """Return `7m15s new` for the first run in a new container. Only compile caches are cold or
    warm."""
    return "-" if seconds is None else duration(seconds) + (" new" if cold else "")


def bad_text(picture: SetPicture) -> str:
    """Return `2 not converged, 1 failed`; "" for neither. The first are done, the second not."""
    kinds = ((picture.not_converged, "not converged"), (picture.failed, "failed"))
    return ", ".join(f"{number} {name}" for number, name in kinds if number)


def run_row(run: RunPicture) -> list[str]:
    return [
        str(run.run),
        run.state.replace("_", " "),
        str(run.attempt or "-"),
        train_time(run.minutes),
        startup_text(run.startup_s, run.cold),
        startup_text(run.shutdown_s, None),
        "-" if run.seconds is None else duration(run.seconds),
        str(run.seed or "-"),
        run.why,
    ]


def headline(picture: SetPicture) -> str:
    nexp = picture.record.nexp if picture.record else 0
    parts = [
        *(["rehearsal"] if picture.no_result else []),
        picture.state,
        f"{picture.done}/{nexp} done",
    ]
    parts += [bad_text(picture)] if bad_text(picture) else []
    parts += [picture.pulling] if picture.pulling else []
    parts += [now_text(picture)] if picture.current else []
    parts += [f"eval {evaluation_text(picture)}"] if evaluation_text(picture) != "-" else []
    parts += (
        [f"{score_name(picture)} {train_time(picture.score_so_far)}"]
        if picture.score_so_far is not None
        else []
    )
    return "  ".join(parts) + (f"  ({picture.reason})" if picture.reason else "")


def aside_text(aside: SetAside) -> str:
    """Return `n3 (run 2, attempt 1): reason`."""
    return f"{aside.node} ({aside.when}): {aside.reason or 'no reason recorded'}"


def describe(picture: SetPicture, site: str | None = None) -> list[tuple[str, str]]:
    """Return the facts of a set. `site`: file of --site."""
    from orchestrator.cli.closing import with_short_name
    from orchestrator.nodes.names import fold

    record = picture.record
    pairs = rehearsal_fact(picture)
    pairs += [("name", picture.record.label)] if picture.record and picture.record.label else []
    pairs += [
        ("set", str(picture.root)),
        ("state", f"{picture.state}: {picture.meaning}"),
    ]
    if record is not None:
        bound = "<=" if record.target_is_upper_bound else ">="
        target = "" if record.target is None else f", {record.metric} {bound} {record.target:g}"
        pairs += [
            ("runs", f"{record.system} {record.workload} (round {record.round}{target})"),
            ("nodes", f"{record.nodes} x {record.each}, engine {record.engine}"),
        ]
    pairs.append(("job", job_text(picture)))
    if picture.pulling:
        pairs.append(("image", picture.pulling))
    alone = len(picture.going) < 2
    for run in picture.going:
        each = replace(
            picture, going=(run,), current=run.run, attempt=run.attempt, evaluation=run.evaluation
        )
        where = "" if alone else f" on {fold(run.nodes)}"
        age = f"; {run.age}" if run.age else ""
        pairs.append(("now", f"{now_text(each)}{where}, evaluation {evaluation_text(each)}{age}"))
    if picture.started_ms:
        pairs.append(("elapsed", duration(picture.elapsed_s) + in_jobs_text(picture)))
    if left := left_text(picture):
        pairs.append(("left", left))
    pairs += [
        ("left", f"unknown: run {run.run} takes longer than any before it")
        for run in picture.late[:1]
    ]
    if picture.score_so_far is not None:
        score = train_time(picture.score_so_far)
        if picture.state == "complete":
            command = f"orchestrator score {quoted(picture.root)}"
            command = with_short_name(command, picture.root, site)
            pairs.append(("olympic mean", f"{score} (the score: {command})"))
        else:
            meaning = "mean of the good runs without fastest and slowest"
            pairs.append(("score", f"{score} so far: {meaning}"))
    pairs += [
        ("to beat", f"{each.minutes:.2f} min ({each.submitter}, round {each.round})")
        for each in published(picture)
    ]
    if picture.spares:
        pairs.append(("spares", f"{fold(picture.spares)} ({len(picture.spares)} waiting)"))
    pairs += [("excluded", aside_text(aside)) for aside in picture.set_aside]
    pairs += [("warning", warning) for warning in picture.warnings]
    pairs += [("damaged", str(finding)) for finding in picture.findings]
    return pairs
