"""The sides of a comparison: a set, any folder of logs, or a published entry."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UsageError
from orchestrator.mllog.numbers import positive
from orchestrator.mllog.olympic import kept, median
from orchestrator.mllog.trimmed import Trimmed, scale_of, trimmed, trimmed_score
from orchestrator.onnode.kernel.mllog_keys import EVALUATIONS, START
from orchestrator.words import count

if TYPE_CHECKING:
    from orchestrator.mllog.reader import Log
    from orchestrator.mllog.result import Score
    from orchestrator.mllog.source import Source
    from orchestrator.published import PublishedResult

_NOT_SETTINGS = frozenset(
    {
        "seed",
        "cache_clear",
        "submission_org",
        "submission_benchmark",
        "submission_division",
        "submission_status",
        "target_accuracy",
        *EVALUATIONS,
        "tracked_stats",
        "train_loss",
        "run_duration",
        "time_to_train_minutes",
        "throughput_samples_per_second",
    }
)

_OF_A_SET = ("system", "nodes", "gpus_per_node", "engine", "image", "round", "bundle_sha256")


@dataclass(frozen=True, slots=True)
class Side:
    """Times are minutes, `rate` samples per second; None if unknown."""

    name: str
    kind: str
    """`set`, `logs` or `published`"""
    benchmark: str
    ruleset: str
    score: float | None
    mean: float | None
    factor: float | None
    times: Trimmed | None
    runs: int
    rate: float | None = None
    samples: float | None = None
    minutes: tuple[float, ...] = ()
    """Successful runs, in the order of their logs."""
    goal: str = ""
    """The target, for a workload with its own rules."""
    problem: str = ""
    """Why no score is valid."""
    rehearsed: bool = False
    """Simulated: no training ran."""
    stand_in: bool = False
    failed: int = 0
    dropped: int = 1
    """Runs that a score leaves out at each end."""
    mixed: tuple[str, ...] = ()
    """Differences between its runs, and edits of its bundle."""
    environment: dict[str, str] = field(default_factory=dict)
    tunables: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def digits(self) -> int:
        """Return the digits of the times: MLCommons publishes two."""
        return 2 if self.kind == "published" else 3

    @property
    def scored(self) -> float | None:
        """Return the score; without a valid score, the olympic mean."""
        return self.score if self.score is not None else self.mean


def find_side(name: str, *, ruleset: str = "") -> Side | None:
    """Return a folder or published entry, or None. Raises UsageError for several matching entries,
    InputError for unusable logs."""
    return _folder(name, ruleset) if os.path.isdir(name) else _published(name)


# ---- folders ----


def _folder(directory: str, ruleset: str) -> Side:
    from orchestrator.mllog.reader import read_log
    from orchestrator.mllog.score import score_dir
    from orchestrator.mllog.source import find_source

    source = find_source(directory)
    score = score_dir(source, ruleset=ruleset, window=True)
    counted = [run for run in score.runs if run.use == "counted"]
    settings = _logged(read_log(counted[0].path, source.inside)) if counted else {}
    return Side(
        name=str(source.described.get("set_id") or _short(source.directory)),
        kind="set" if source.is_set else "logs",
        benchmark=str(score.benchmark or ""),
        ruleset=score.ruleset,
        score=score.minutes,
        mean=score.olympic_mean,
        factor=score.factor,
        times=trimmed_score(score),
        runs=len(score.runs),
        rate=_rate(score),
        samples=_samples(score),
        minutes=tuple(
            run.minutes * scale_of(score)
            for run in _in_window(score)
            if run.use != "bad" and run.minutes
        ),
        goal=score.own.goal if score.own else "",
        problem="" if score.valid else "; ".join(score.reasons),
        rehearsed=score.rehearsed,
        stand_in=score.stand_in,
        failed=sum(run.use == "bad" for run in _in_window(score)),
        dropped=score.dropped,
        mixed=(*source.remarks, *_mixed(score)),
        **(_of_set(source, settings) if source.is_set else {"settings": settings}),
    )


def _short(directory: str) -> str:
    return "/".join(directory.rstrip("/").split("/")[-3:])


def _mixed(score: Score) -> list[str]:
    """Return the differences between runs, not those from the set's description."""
    return [
        f"{difference.key}: {difference.message}"
        for difference in score.differences
        if difference.rule == "experiment"
    ]


def _in_window(score: Score) -> list[Any]:
    return [run for run in score.runs if run.use != "outside"]


def _rate(score: Score) -> float | None:
    """Return the median samples per second of the good runs, evaluations included."""
    rates = [
        samples / (minutes * 60)
        for run in _in_window(score)
        if run.use != "bad"
        and (samples := positive(run.samples))
        and (minutes := positive(run.minutes))
    ]
    return median(rates) if rates else None


def _samples(score: Score) -> float | None:
    """Return the mean samples to converge without the extremes, as in the RCP test."""
    counts = [
        samples
        for run in _in_window(score)
        if run.use != "bad" and (samples := positive(run.samples))
    ]
    counted = kept(counts, len(_in_window(score)) - len(counts), score.dropped)
    return sum(counted) / len(counted) if counted else None


def _logged(log: Log) -> dict[str, str]:
    """Return the last value of each setting logged before the run, such as the batch size."""
    settings = {}
    for record in log.records:
        if record.key == START:
            break
        plain = isinstance(record.value, (str, int, float)) and isinstance(record.key, str)
        if (
            plain
            and record.key not in _NOT_SETTINGS
            and not record.key.endswith(("_start", "_stop"))
        ):
            settings[record.key] = str(record.value)[:200]
    return settings


def _of_set(source: Source, logged: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return environment, host settings, and `logged` settings with those of the set."""
    from orchestrator.evidence.bundle import evaluated
    from orchestrator.evidence.sets import SetEvidence
    from orchestrator.evidence.tunables import read_tunables

    evidence = SetEvidence(Path(source.directory))
    environment = evaluated(evidence)
    states: dict[str, set[str]] = {}
    for setting in read_tunables(evidence):
        state = "" if setting.state == "ok" else f" ({setting.state})"
        states.setdefault(setting.knob, set()).add(f"{setting.after}{state}")
    settings = {
        f"set.{name}": str(source.described[name])
        for name in _OF_A_SET
        if source.described.get(name) not in (None, "")
    }
    digests = sorted({job.image_digest for job in evidence.jobs if job.image_digest})
    if digests:
        settings["set.image_digest"] = ", ".join(digests)
    return {
        "environment": environment,
        "tunables": {knob: ", ".join(sorted(values)) for knob, values in states.items()},
        "settings": {**logged, **settings},
    }


# ---- published entries ----


def _published(name: str) -> Side | None:
    """Return an entry by MLCommons' number or round/benchmark/system. UsageError for several."""
    try:
        from orchestrator.published import find, load
    except ImportError:
        return None
    parts = name.split("/")
    if len(parts) == 1:
        entries = [entry for entry in load() if entry.entry and entry.entry == name]
    elif len(parts) == 3:
        entries = find(round=parts[0], benchmark=parts[1], system=parts[2])
    else:
        return None
    if len(entries) > 1:
        names = ", ".join(
            sorted({f"{entry.round}/{entry.benchmark}/{entry.name}" for entry in entries})[:8]
        )
        raise UsageError(
            f"`{name}` fits {count(len(entries), 'published entry')}",
            hint=f"name one of: {names}",
        )
    return _entry(entries[0]) if entries else None


def _entry(entry: PublishedResult) -> Side:
    scale = entry.factor if entry.factor is not None else 1.0
    minutes = tuple(time * scale for time in entry.run_minutes)
    return Side(
        name=f"{entry.submitter} {entry.round}/{entry.benchmark}/{entry.system or entry.name}",
        kind="published",
        benchmark=entry.benchmark,
        ruleset=entry.round,
        score=entry.minutes,
        mean=entry.mean,
        factor=entry.factor,
        times=trimmed(minutes) if len(minutes) == entry.runs else None,
        runs=entry.runs,
        minutes=minutes,
        settings={"set.nodes": str(entry.nodes), "set.accelerator": entry.accelerator},
    )
