"""A log directory as Prometheus metrics (text format 0.0.4), for the node exporter's textfile
collector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.evidence.picture import RunPicture, SetPicture
from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.state import STATES
from orchestrator.onnode.kernel.events import clean
from orchestrator.onnode.kernel.records import REHEARSAL

FAILURES = ("not_converged", "infrastructure", "interrupted")
"""Outcomes of attempts that are no success."""
MOST = 80
"""The most characters of a label's value."""
Labels = tuple[tuple[str, str], ...]
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass
class Family:
    """One metric: its samples by labels."""

    name: str
    kind: str
    help: str
    samples: dict[Labels, float] = field(default_factory=dict)

    def add(self, value: float, **labels: str) -> None:
        """Add `value` to the sample with these labels, which may come from anybody's files."""
        key = tuple((name, clean(text, MOST)) for name, text in labels.items())
        self.samples[key] = self.samples.get(key, 0.0) + value

    def lines(self) -> list[str]:
        """Return the family as text; [] without a sample."""
        head = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        samples = [
            f"{self.name}{_labels(labels)} {_number(value)}"
            for labels, value in sorted(self.samples.items())
        ]
        return head + samples if samples else []

    def as_json(self) -> dict[str, object]:
        samples = [
            {"labels": dict(labels), "value": value}
            for labels, value in sorted(self.samples.items())
        ]
        return {"name": self.name, "type": self.kind, "help": self.help, "samples": samples}


def _labels(labels: Labels) -> str:
    return (
        "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels) + "}"
        if labels
        else ""
    )


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def exposition(metrics: Iterable[Family]) -> str:
    """Return metrics as text."""
    return "".join(f"{line}\n" for family in metrics for line in family.lines())


def families(sets: Iterable[tuple[SetEvidence, SetPicture]], now_s: float) -> list[Family]:
    """Return the metrics of `sets`, newest first.

    Counts are gauges: removed sets no longer count. Times are seconds, by Prometheus' convention.
    """
    metrics = {
        name: Family(f"orchestrator_{name}", "gauge", text) for name, text in _FAMILIES.items()
    }
    metrics["scrape_time_seconds"].add(round(now_s, 3))
    for files, picture in sets:
        if picture.record is None:
            metrics["sets"].add(1, state=picture.state, system="", workload="")
        else:
            labels = {"system": picture.record.system, "workload": picture.record.workload}
            _add_set(
                metrics, files, picture, labels | ({REHEARSAL: "true"} if picture.no_result else {})
            )
    return list(metrics.values())


_FAMILIES = {
    "scrape_time_seconds": "When this was written, in seconds since 1970.",
    "sets": "Sets by state.",
    "runs": "Runs of sets by state and outcome.",
    "attempts": "Attempts of runs, of all jobs.",
    "failures": "Attempts by the kind of failure that ended them.",
    "nodes_set_aside": "Excluded nodes of sets, by kind of reason.",
    "nodes_blamed": "Blames of nodes for attempts of sets, by kind of reason.",
    "queue_seconds": "Time from the submission of jobs to their start, in all.",
    "queued_jobs": "Jobs whose queue time is in orchestrator_queue_seconds.",
    "train_seconds": "Time to train of the runs that reached their target, in all.",
    "trained_runs": "Runs whose time is in orchestrator_train_seconds.",
    "last_score_seconds": (
        "Mean time to train of the newest complete set, as the score takes it, without RCP and "
        "compliance."
    ),
    "live_set_done_runs": "Finished runs of each running set.",
    "live_set_wanted_runs": "Wanted runs of each running set.",
    "live_run_quiet_seconds": (
        "Time without output on any node, as the loop recorded it last, of each running run."
    ),
    "live_run_hang_limit_seconds": (
        "Time without output after which the loop ends a run as hung, of each running run."
    ),
    "live_set_started_seconds": (
        "Start of the first job of each running set, in seconds since 1970."
    ),
}


def _add_set(
    metrics: Mapping[str, Family], files: SetEvidence, picture: SetPicture, labels: dict[str, str]
) -> None:
    metrics["sets"].add(1, state=picture.state if picture.state in STATES else "unknown", **labels)
    for run in picture.runs:
        metrics["runs"].add(1, state=run.state, outcome=run.outcome, **labels)
        if run.minutes is not None:
            metrics["train_seconds"].add(run.minutes * 60, **labels)
            metrics["trained_runs"].add(1, **labels)
    if picture.state == "complete" and picture.score_so_far is not None:
        scores = metrics["last_score_seconds"].samples  # the sets come newest first
        scores.setdefault(tuple(labels.items()), picture.score_so_far * 60)
    metrics["attempts"].add(picture.attempts, **labels)
    for outcome in (
        state.outcome for tried in files.tried if (state := files.attempt(*tried)) is not None
    ):
        if outcome in FAILURES:
            metrics["failures"].add(1, kind=outcome, **labels)
    for aside in picture.set_aside:
        metrics["nodes_set_aside"].add(1, kind=aside.kind, **labels)
    for blame in picture.blamed:
        metrics["nodes_blamed"].add(1, kind=blame.kind, **labels)
    for waited_s in _queued(files):
        metrics["queue_seconds"].add(waited_s, **labels)
        metrics["queued_jobs"].add(1, **labels)
    if picture.live and picture.record is not None:
        of_set = {**labels, "set": picture.set_id}
        metrics["live_set_done_runs"].add(picture.done, **of_set)
        metrics["live_set_wanted_runs"].add(picture.record.nexp, **of_set)
        if picture.started_ms:
            metrics["live_set_started_seconds"].add(picture.started_ms / 1000, **of_set)
        for run in picture.going:
            _add_silence(metrics, run, of_set)


def _add_silence(metrics: Mapping[str, Family], run: RunPicture, labels: dict[str, str]) -> None:
    silence = run.silence.silence if run.silence else None
    if silence is None or silence.unheard:
        return
    metrics["live_run_quiet_seconds"].add(silence.quiet_s, **labels, run=str(run.run))
    if silence.limit_ms:
        metrics["live_run_hang_limit_seconds"].add(silence.limit_s, **labels, run=str(run.run))


def _queued(files: SetEvidence) -> Iterator[float]:
    """Yield the seconds from each submission to its job's start."""
    started = {job.job_id: job.started_ms for job in files.jobs}
    for asked in files.submissions:
        if (start := started.get(asked.job_id, 0)) >= asked.requested_ms > 0:
            yield (start - asked.requested_ms) / 1000
