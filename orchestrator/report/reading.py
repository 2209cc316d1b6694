"""From a folder to a Report. Missing and damaged files of a set folder are no errors."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.mllog.numbers import finite
from orchestrator.mllog.score import score_dir
from orchestrator.mllog.slowness import pauses
from orchestrator.mllog.source import file_names, find_source
from orchestrator.mllog.trimmed import scale_of, trimmed_score
from orchestrator.report.arithmetic import steps
from orchestrator.report.model import CurvePoint, Gap, Report, Run, system_name
from orchestrator.views.score import run_labels

if TYPE_CHECKING:
    from orchestrator.mllog.own import OwnRules
    from orchestrator.mllog.result import RunScore, Score
    from orchestrator.mllog.source import Source
    from orchestrator.published import PublishedResult

CURVE_POINTS = 240
"""Points of a curve: a screen shows no more, and files stay small."""


def read_report(
    directory: str, *, ruleset: str = "", window: bool = False, own_rules: OwnRules | None = None
) -> Report:
    """Read the set or folder of results at `directory`. Raises InputError as `orchestrator score`
    does."""
    source = find_source(directory)
    score = score_dir(source, ruleset=ruleset, window=window, own_rules=own_rules)
    target, metric, smaller = _target(source, score)
    labels = run_labels(score.runs)
    return Report(
        directory=source.directory,
        score=score,
        target=target,
        metric=metric,
        smaller_is_better=smaller,
        runs=tuple(_run(run, labels[run.file]) for run in score.runs),
        gaps=tuple(
            Gap(labels[earlier], labels[later], minutes)
            for minutes, earlier, later in pauses(score.runs)
        ),
        steps=steps(score, labels),
        scale=scale_of(score),
        mean=trimmed_score(score),
        published=_published(source, score),
        edited={
            run.name: file_names(edits)
            for run in source.files
            if run.number and (edits := source.edits.get(run.number))
        },
        described=source.described,
        **(_of_set(source) if source.is_set else _of_folder(source)),
    )


def _published(source: Source, score: Score) -> tuple[PublishedResult, ...]:
    """Return a set's published results; for plain logs by folder name, as in a submission."""
    from orchestrator.published import of_set

    if score.own or score.no_result:
        return ()
    named = {
        "benchmark": score.benchmark,
        "round": score.ruleset,
        "system": system_name(source.directory, source.described, score.benchmark),
    }
    return tuple(of_set({**named, **source.described}))


def _of_folder(source: Source) -> dict[str, Any]:
    name, files = Path(source.directory).name, str(len(source.files))
    return {"facts": (("folder", name), ("files", files))}


def _of_set(source: Source) -> dict[str, Any]:
    """Return the members that only a set folder has."""
    from orchestrator.evidence.attempts import read_attempts
    from orchestrator.evidence.bandwidth import measurements
    from orchestrator.evidence.ledger import head_of
    from orchestrator.evidence.nodes import read_groups, read_history, suspicions
    from orchestrator.evidence.sets import SetEvidence
    from orchestrator.evidence.startup import startups
    from orchestrator.evidence.tunables import read_tunables
    from orchestrator.published import startup
    from orchestrator.report.environment import read_environment
    from orchestrator.report.facts import contents, images, set_facts

    evidence, described = SetEvidence(Path(source.directory)), source.described
    attempts = read_attempts(evidence)
    history = read_history(evidence, attempts)
    groups = tuple(read_groups(evidence, attempts))
    bandwidth = tuple(measurements(evidence))
    starts = tuple(startups(evidence))
    tunables = read_tunables(evidence)
    environment, environment_note = read_environment(evidence)
    tried = sorted({run for run, _ in evidence.tried})
    facts = (
        *set_facts(evidence.jobs, described),
        ("inside the containers", contents(map(evidence.run, tried))),
        ("ledger", head_of(evidence.layout.root) or "none"),
    )
    record = evidence.record
    about = (record.benchmark, record.round, record.system) if record else None
    return {
        "facts": facts,
        "attempts": attempts,
        "nodes": tuple(history),
        "slow_signs": tuple(suspicions(history)),
        "groups": groups,
        "bandwidth": bandwidth,
        "startups": starts,
        "published_startup": tuple(startup.find(*about)) if about else (),
        "tunables": tunables,
        "environment": environment,
        "environment_note": environment_note,
        "images": images(evidence.jobs, described, attempts),
        # Last: the readers above note unusable files.
        "problems": tuple(map(str, evidence.findings)),
    }


def _run(run: RunScore, label: str) -> Run:
    start = finite(run.start)
    evaluations = tuple(thinned(_evaluations(run, start)))
    logged = _throughput(run, start)
    return Run(
        label=label,
        file=run.file,
        use=run.use,
        minutes=finite(run.minutes),
        samples=finite(run.samples),
        seed="" if run.seed is None else str(run.seed),
        status="" if run.status is None else str(run.status),
        converged=run.converged,
        compliant=run.compliant,
        init_ms=finite(run.init_start),
        start_ms=start,
        stop_ms=finite(run.stop),
        evaluations=evaluations,
        throughput=tuple(extremes(logged or _rates(evaluations))),
        throughput_from="logged" if logged else "evaluations",
    )


def _evaluations(run: RunScore, start: float | None) -> list[CurvePoint]:
    points = []
    for time, samples, value in run.evaluations:
        at, count, loss = finite(time), finite(samples), finite(value)
        if at is not None and count is not None and loss is not None:
            points.append(
                CurvePoint((at - start) / 60000 if start is not None else 0.0, count, loss)
            )
    return points


def _throughput(run: RunScore, start: float | None) -> list[tuple[float, float]]:
    if start is None:
        return []
    return [
        ((time - start) / 60000, rate) for time, rate in run.throughput if finite(time) is not None
    ]


def _rates(evaluations: tuple[CurvePoint, ...]) -> list[tuple[float, float]]:
    """Return samples per second between evaluations, at the later minute."""
    return [
        (late.minutes, (late.samples - early.samples) / ((late.minutes - early.minutes) * 60))
        for early, late in itertools.pairwise(evaluations)
        if late.minutes > early.minutes and late.samples > early.samples
    ]


def thinned(points: list[Any], limit: int = CURVE_POINTS) -> list[Any]:
    """Return at most `limit` points, evenly, with the first and the last."""
    if len(points) <= limit:
        return points
    step = (len(points) - 1) / (limit - 1)
    return [points[round(index * step)] for index in range(limit)]


def extremes(
    points: list[tuple[float, float]], limit: int = CURVE_POINTS
) -> list[tuple[float, float]]:
    """Return at most `limit` points, with the extremes of each stretch."""
    if len(points) <= limit:
        return points
    kept: list[tuple[float, float]] = []
    buckets = limit // 2
    for bucket in range(buckets):
        part = points[bucket * len(points) // buckets : (bucket + 1) * len(points) // buckets]
        low, high = min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])
        kept += sorted({low, high})
    return kept


def _target(source: Source, score: Score) -> tuple[float | None, str, bool]:
    """Return (target, metric, smaller is better) from set.json or the round's rules."""
    if score.own:
        return score.own.target, score.own.metric, score.own.smaller
    described = source.described
    if (target := finite(described.get("target"))) is not None:
        smaller = described.get("target_is_upper_bound") is not False
        return target, str(described.get("metric") or "evaluation"), smaller
    target, smaller = _rule_target(score) or (None, True)
    return target, "evaluation", smaller


def _rule_target(score: Score) -> tuple[float, bool] | None:
    from orchestrator.mllog.rules import rules

    config = (
        rules(score.ruleset).config(f"{score.division}_{score.benchmark}")
        if isinstance(score.benchmark, str)
        else None
    )
    rule = config.keys.get("eval_accuracy") if config else None
    return _bound(rule.any.node) if rule and rule.any else None


def _bound(node: Any) -> tuple[float, bool] | None:
    """Return a rule's constant, and whether it is an upper bound."""
    if not isinstance(node, list):
        return None
    match node:
        case ["cmp", ["value"], "<=" | "<", (int() | float()) as limit]:
            return float(limit), True
        case ["cmp", ["value"], ">=" | ">", (int() | float()) as limit] if limit > 0:
            return float(limit), False
    return next((bound for part in node if (bound := _bound(part))), None)
