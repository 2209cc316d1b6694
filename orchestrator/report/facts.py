"""Facts of a set folder: set.json, jobs, images."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from orchestrator.onnode.policy.experiment_facts import INSIDE, of_run, runs_text
from orchestrator.views.figures import moment
from orchestrator.words import count

if TYPE_CHECKING:
    from orchestrator.evidence.attempts import RunAttempt
    from orchestrator.onnode.kernel.records import JobRecord, RunRecord

_SHOWN = (
    "label",
    "set_id",
    "system",
    "workload",
    "benchmark",
    "round",
    "ruleset",
    "nexp",
    "root_seed",
    "created_by",
    "scheduler",
    "nodes",
    "gpus_per_node",
    "engine",
    "image",
    "max_attempts",
    "run_timeout_s",
    "bundle_sha256",
)


def set_facts(jobs: Iterable[JobRecord], described: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return (name, text) pairs of set.json, then of each job."""
    pairs = [
        ("name" if name == "label" else name.replace("_", " "), str(described[name]))
        for name in _SHOWN
        if described.get(name) not in (None, "")
    ]
    pairs.append(("created", moment(described.get("created_ms"))))
    for job in jobs:
        ended = f" to {moment(job.ended_ms)}" if job.ended_ms else ""
        reason = f": {job.reason}" if job.reason else ""
        pairs.append(
            (
                f"job {job.job_id}",
                (
                    f"{job.state}, {moment(job.started_ms)}{ended}, "
                    f"{count(len(job.nodes), 'node')}{reason}"
                ),
            )
        )
    return tuple(pairs)


def contents(runs: Iterable[RunRecord | None]) -> str:
    """Return whether the containers of all finished runs were equal, as text."""
    done = [run for run in runs if run is not None and run.done]
    known = {run.run: of_run(run.inside) for run in done if run.inside}
    if not known:
        return "not recorded"
    values: dict[str, set[str]] = {}
    for facts in known.values():
        for field, by_node in facts.items():
            values.setdefault(field.removeprefix(INSIDE), set()).update(by_node.values())
    which = f"all {count(len(done), 'run')}" if len(known) == len(done) else runs_text(list(known))
    if differing := [part for part, some in values.items() if len(some) > 1]:
        return f"{', '.join(differing)} differ in {which}: see the findings"
    parts = ", ".join(f"{part} {next(iter(some))}" for part, some in values.items())
    return f"equal in {which}: {parts}"


def images(
    jobs: Iterable[JobRecord], described: dict[str, Any], attempts: tuple[RunAttempt, ...]
) -> tuple[tuple[str, str], ...]:
    """Return (digest, use) for every recorded digest, after the requested image."""
    used: dict[str, list[str]] = {}
    for job in jobs:
        if job.image_digest:
            used.setdefault(job.image_digest, []).append(f"job {job.job_id}")
    for attempt in attempts:
        if attempt.image_digest:
            used.setdefault(attempt.image_digest, []).append(
                f"run {attempt.run} attempt {attempt.attempt}"
            )
    asked = [(str(described["image"]), "asked for by the set")] if described.get("image") else []
    return tuple(asked + [(digest, _few(places)) for digest, places in used.items()])


def _few(places: list[str]) -> str:
    return (
        ", ".join(places)
        if len(places) <= 4
        else f"{', '.join(places[:2])} ... {places[-1]} ({len(places)} places)"
    )
