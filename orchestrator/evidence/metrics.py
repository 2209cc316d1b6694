"""A log directory as Prometheus metrics (text format 0.0.4), for the textfile collector of its
node exporter."""

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
        """Return the family as text; nothing without a sample."""
        head = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        found = [
            f"{self.name}{_labels(labels)} {_number(value)}"
            for labels, value in sorted(self.samples.items())
        ]
        return head + found if found else []

    def as_json(self) -> dict[str, object]:
        """Return the family as plain data."""
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


def exposition(found: Iterable[Family]) -> str:
    """Return metrics as text."""
    return "".join(f"{line}\n" for family in found for line in family.lines())


def families(sets: Iterable[tuple[SetEvidence, SetPicture]], now_s: float) -> list[Family]:
    """Return the metrics of `sets`, newest first, from their files and the scheduler's answers.

    Counts are gauges: sets removed from the log directory no longer count. Times are seconds, by
    Prometheus' convention.
    """
    found = {
        name: Family(f"orchestrator_{name}", "gauge", text) for name, text in _FAMILIES.items()
    }
    found["scrape_time_seconds"].add(round(now_s, 3))
    for files, one in sets:
        if one.record is None:
            found["sets"].add(1, state=one.state, system="", workload="")
        else:
            labels = {"system": one.record.system, "workload": one.record.workload}
            _add_set(found, files, one, labels | ({REHEARSAL: "true"} if one.no_result else {}))
    return list(found.values())


_FAMILIES = {
    "scrape_time_seconds": "When this was written, in seconds since 1970.",
    "sets": "Sets by state.",
    "runs": "Runs of sets by state and outcome.",
    "attempts": "Attempts of runs, of all jobs.",
    "failures": "Attempts by the kind of failure that ended them.",
    "nodes_set_aside": "Nodes that jobs of sets stopped using, by kind of reason.",
    "queue_seconds": "Time from the submission of jobs to their start, in all.",
    "queued_jobs": "Jobs whose queue time is in orchestrator_queue_seconds.",
    "train_seconds": "Time to train of the runs that reached their target, in all.",
    "trained_runs": "Runs whose time is in orchestrator_train_seconds.",
    "last_score_seconds": (
        "Mean time to train of the newest complete set, as the score takes it, whatever RCP and "
        "compliance say."
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
    found: Mapping[str, Family], files: SetEvidence, one: SetPicture, labels: dict[str, str]
) -> None:
    found["sets"].add(1, state=one.state if one.state in STATES else "unknown", **labels)
    for run in one.runs:
        found["runs"].add(1, state=run.state, outcome=run.outcome, **labels)
        if run.minutes is not None:
            found["train_seconds"].add(run.minutes * 60, **labels)
            found["trained_runs"].add(1, **labels)
    if one.state == "complete" and one.score_so_far is not None:  # the sets come newest first
        found["last_score_seconds"].samples.setdefault(tuple(labels.items()), one.score_so_far * 60)
    found["attempts"].add(one.attempts, **labels)
    for outcome in (
        state.outcome for tried in files.tried if (state := files.attempt(*tried)) is not None
    ):
        if outcome in FAILURES:
            found["failures"].add(1, kind=outcome, **labels)
    for aside in one.set_aside:
        found["nodes_set_aside"].add(1, kind=aside.kind, **labels)
    for waited_s in _queued(files):
        found["queue_seconds"].add(waited_s, **labels)
        found["queued_jobs"].add(1, **labels)
    if one.live and one.record is not None:
        own = {**labels, "set": one.set_id}
        found["live_set_done_runs"].add(one.done, **own)
        found["live_set_wanted_runs"].add(one.record.nexp, **own)
        if one.started_ms:
            found["live_set_started_seconds"].add(one.started_ms / 1000, **own)
        for run in one.going:
            _add_silence(found, run, own)


def _add_silence(found: Mapping[str, Family], run: RunPicture, labels: dict[str, str]) -> None:
    silence = run.silence.silence if run.silence else None
    if silence is None or silence.unheard:
        return
    found["live_run_quiet_seconds"].add(silence.quiet_s, **labels, run=str(run.run))
    if silence.limit_ms:
        found["live_run_hang_limit_seconds"].add(silence.limit_s, **labels, run=str(run.run))


def _queued(files: SetEvidence) -> Iterator[float]:
    """Yield the seconds from each submission to the start of its job."""
    started = {job.job_id: job.started_ms for job in files.jobs}
    for asked in files.submissions:
        if (start := started.get(asked.job_id, 0)) >= asked.requested_ms > 0:
            yield (start - asked.requested_ms) / 1000
