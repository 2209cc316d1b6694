"""Sets as lines and tables."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.words import TextTable, duration, train_time

if TYPE_CHECKING:
    from orchestrator.evidence.events import SetAside
    from orchestrator.evidence.picture import RunPicture, SetPicture
    from orchestrator.published import PublishedResult
    from orchestrator.simulation.rehearsal import Moment
    from orchestrator.simulation.trials import SparesResult

SETS = TextTable(
    "SET", "STATE", "RUNS", "ATTEMPTS", "NOW", "LAST EVAL", "ELAPSED", "LEFT", "SCORE SO FAR", "JOB", "REASON",
    right=("RUNS", "ATTEMPTS", "ELAPSED", "LEFT", "SCORE SO FAR"),
    below=("REASON",),
    leave=("ATTEMPTS", "JOB", "LAST EVAL", "ELAPSED", "NOW", "SCORE SO FAR", "LEFT"),
)  # fmt: skip
RUNS = TextTable(
    "RUN", "STATE", "ATTEMPTS", "TIME TO TRAIN", "START-UP", "SHUT-DOWN", "WALL", "SEED", "REASON",
    right=("RUN", "ATTEMPTS", "TIME TO TRAIN", "START-UP", "SHUT-DOWN", "WALL", "SEED"),
    below=("REASON",),
    leave=("SEED", "SHUT-DOWN", "START-UP", "ATTEMPTS"),
)  # fmt: skip

TIMELINE = TextTable("TIME", "WHO", "WHAT HAPPENS", right=("TIME",), states=())


def spares_table(limit: str) -> TextTable:
    """Return the table of spares_row(); `limit` is the time to finish within, "" if missing."""
    columns = [
        "SPARES",
        "NODES",
        "FAILURES",
        "MEDIAN",
        "90 %",
        "99 %",
        "WITHOUT RESUME",
        "COMPLETE",
    ]
    columns += [f"WITHIN {limit}"] if limit else []
    return TextTable(*columns, right=columns, states=())


def spares_row(one: SparesResult, within_s: float | None) -> list[str]:
    """Return a row for one number of spares: finishing times, and shares of the sets."""
    failures = sum(trial.failures for trial in one.trials) / len(one.trials)
    times = [one.quantile(share) for share in (0.5, 0.9, 0.99)]
    shares = [one.unattended, one.complete, *([] if within_s is None else [one.within(within_s)])]
    return [
        str(one.spares),
        str(one.nodes),
        f"{failures:.2f}",
        *(duration(time) if time < float("inf") else "never" for time in times),
        *(f"{100 * share:.1f} %" for share in shares),
    ]


def moment_row(moment: Moment) -> list[str]:
    """Return a row of TIMELINE: `5:33:20`, the actor, the event."""
    minutes, second = divmod(int(moment.at_s), 60)
    return [f"{minutes // 60}:{minutes % 60:02}:{second:02}", moment.kind, moment.text]


def set_row(one: SetPicture) -> list[str]:
    nexp = one.record.nexp if one.record else 0
    runs = f"{one.done}/{nexp}" + (f" ({one.failed} failed)" if one.failed else "")
    left = left_s(one)
    return [
        one.set_id,
        one.state,
        runs,
        str(one.attempts),
        now_text(one),
        evaluation_text(one),
        duration(one.elapsed_s) if one.started_ms else "-",
        "-" if left is None else duration(left),
        train_time(one.score_so_far),
        job_text(one),
        one.reason,
    ]


def published(one: SetPicture) -> list[PublishedResult]:
    """Return the published results of the set's system, benchmark and round."""
    record = one.record
    if record is None or not (record.benchmark and record.system):
        return []
    from orchestrator.published import find

    return find(benchmark=record.benchmark, round=record.round, system=record.system)


def left_s(one: SetPicture) -> float | None:
    """Return the seconds until the set ends; before its first result from the published time of
    the same system."""
    left = one.left_s()
    if left is None and one.state == "running" and (known := published(one)):
        left = one.left_s(60 * known[0].minutes)
    return left


def left_text(one: SetPicture, now_s: float | None = None) -> str:
    """Return `about 9h07m, until Sun 14:20`; "" if unknown."""
    left = left_s(one)
    if left is None:
        return ""
    now = time.time() if now_s is None else now_s
    day = "" if left < 43_200 else "%a " if left < 518_400 else "%Y-%m-%d "
    return (
        f"about {duration(left)}, until {time.strftime(f'{day}%H:%M', time.localtime(now + left))}"
    )


def now_text(one: SetPicture) -> str:
    """Return `run 3 of 10`, with the attempt from the second on; `runs 3, 4 of 10` for runs side
    by side."""
    if not one.current or one.record is None:
        return "-"
    if len(one.going) > 1:
        runs = (
            f"{run.run} (attempt {run.attempt})" if run.attempt > 1 else str(run.run)
            for run in one.going
        )
        return f"runs {', '.join(runs)} of {one.record.nexp}"
    again = f", attempt {one.attempt}" if one.attempt > 1 else ""
    return f"run {one.current} of {one.record.nexp}{again}"


def evaluation_text(one: SetPicture) -> str:
    """Return the last evaluation of each active run, against the target."""
    found = [run.evaluation for run in one.going] if len(one.going) > 1 else [one.evaluation]
    if not any(found) or one.record is None:
        return "-"
    target = "" if one.record.target is None else f" (target {one.record.target:g})"
    return ", ".join(f"{each.value:.4g}" if each else "-" for each in found) + target


def job_text(one: SetPicture) -> str:
    if not one.job_id:
        return "-"
    return f"{one.job_id} ({one.job_state})" if one.job_state else one.job_id


def startup_text(seconds: float | None, cold: bool | None) -> str:
    """Return `7m15s cold`; - if unknown."""
    return "-" if seconds is None else duration(seconds) + (" cold" if cold else "")


def run_row(run: RunPicture) -> list[str]:
    state = "not converged" if run.outcome == "not_converged" else run.outcome or run.state
    return [
        str(run.run),
        state,
        str(run.attempt or "-"),
        train_time(run.minutes),
        startup_text(run.startup_s, run.cold),
        startup_text(run.shutdown_s, None),
        "-" if run.seconds is None else duration(run.seconds),
        str(run.seed or "-"),
        run.reason,
    ]


def headline(one: SetPicture) -> str:
    """Return one set in one line."""
    nexp = one.record.nexp if one.record else 0
    parts = [*(["rehearsal"] if one.rehearsed else []), one.state, f"{one.done}/{nexp} done"]
    parts += [f"{one.failed} failed"] if one.failed else []
    parts += [one.pulling] if one.pulling else []
    parts += [now_text(one)] if one.current else []
    parts += [f"eval {evaluation_text(one)}"] if evaluation_text(one) != "-" else []
    parts += (
        [f"score so far {train_time(one.score_so_far)}"] if one.score_so_far is not None else []
    )
    return "  ".join(parts) + (f"  ({one.reason})" if one.reason else "")


def aside_text(aside: SetAside) -> str:
    """Return `n3 (run 2, attempt 1): its reason`."""
    return f"{aside.node} ({aside.when}): {aside.reason or 'no reason on record'}"


def describe(one: SetPicture) -> list[tuple[str, str]]:
    """Return name and value pairs of a set, for its detail view."""
    from orchestrator.evidence.state import STATES
    from orchestrator.nodes.names import fold

    record = one.record
    pairs = [("rehearsal", "no training ran; all times are simulated")] if one.rehearsed else []
    pairs += [("set", str(one.root)), ("state", f"{one.state}: {one.reason or STATES[one.state]}")]
    if record is not None:
        bound = "<=" if record.target_is_upper_bound else ">="
        target = "" if record.target is None else f", {record.metric} {bound} {record.target:g}"
        pairs += [
            ("runs", f"{record.system} {record.workload} (round {record.round}{target})"),
            ("nodes", f"{record.nodes} x {record.gpus_per_node} GPUs, engine {record.engine}"),
        ]
    pairs.append(("job", job_text(one)))
    if one.pulling:
        pairs.append(("image", one.pulling))
    alone = len(one.going) < 2
    for run in one.going:
        each = replace(
            one, going=(run,), current=run.run, attempt=run.attempt, evaluation=run.evaluation
        )
        where = "" if alone else f" on {fold(run.nodes)}"
        pairs.append(("now", f"{now_text(each)}{where}, evaluation {evaluation_text(each)}"))
    if one.started_ms:
        pairs.append(("elapsed", duration(one.elapsed_s)))
    if left := left_text(one):
        pairs.append(("left", left))
    if one.score_so_far is not None:
        pairs.append(
            (
                "score",
                (
                    f"{train_time(one.score_so_far)} so far: mean of the good runs without fastest and "
                    "slowest"
                ),
            )
        )
    pairs += [
        ("to beat", f"{each.minutes:.2f} min ({each.submitter}, round {each.round})")
        for each in published(one)
    ]
    if one.spares:
        pairs.append(("spares", f"{fold(one.spares)} ({len(one.spares)} waiting)"))
    pairs += [("set aside", aside_text(aside)) for aside in one.set_aside]
    pairs += [("warning", warning) for warning in one.warnings]
    pairs += [("damaged", str(finding)) for finding in one.findings]
    return pairs
