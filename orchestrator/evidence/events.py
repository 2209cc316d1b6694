"""Excluded, blamed and lost nodes, pending image pulls, and the queue of runs, from the jobs' event
files.

Older sets have no event files: jobs/<id>.json has their excluded nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.evidence.files import Findings, is_node_name
from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.kernel.events import Event, number
from orchestrator.onnode.kernel.files import PathLike
from orchestrator.onnode.kernel.layout import group_name
from orchestrator.onnode.kernel.records import LIMIT, JobRecord
from orchestrator.onnode.kernel.walk import ANY, FilesInside

if TYPE_CHECKING:
    from orchestrator.onnode.policy.queue import Queue

MOST_BYTES = 64 << 20
"""The most bytes read of a job's event file."""
MOST_REPLAYED, LONGEST_LINE = 1 << 30, 1 << 20
"""The same if every event counts, and the longest line."""
MOST_LINE = 8192
MOST_TEXT = 300
_PULLS = ("lacks", "pulling", "pulled", "failed")
_QUEUE = ("runs", "take", "gives")
_WORDS = {
    b"\tloop\taside\t": "aside",
    b"\tslurm\tlost\t": "lost",
    b"\tloop\tblamed\t": "blamed",
    **{f"\tnode\t{word}\t".encode(): word for word in _PULLS},
    **{f"\tloop\t{word}\t".encode(): word for word in _QUEUE},
}


class SetAside(NamedTuple):
    """An excluded, blamed or lost node; `run` and `attempt` are 0 before the first."""

    node: str
    reason: str = ""
    run: int = 0
    attempt: int = 0
    time_ms: int = 0
    kind: str = ""
    """check, image, container, tunables, network, versions, deep, gate, silent, exit, hung or
    lost."""

    @property
    def when(self) -> str:
        return f"run {self.run}, attempt {self.attempt}" if self.run else "before the first run"


class JobNotes(NamedTuple):
    """Notes of a set's jobs about nodes and runs, in order. `lost`: nodes that were down, with the
    scheduler's state as the reason."""

    aside: list[SetAside]
    blamed: list[SetAside]
    lost: list[SetAside]
    lacking: dict[str, str]
    """Of the last job: nodes without the image, and their progress ("": waiting for a turn)."""
    queue: Queue | None = None
    """Of the last job: the runs that wait; None before its first."""


def read_job_notes(evidence: SetEvidence) -> JobNotes:
    noted: dict[str, list[SetAside]] = {"aside": [], "blamed": [], "lost": []}
    lacking: dict[str, str] = {}
    queue: Queue | None = None
    for job in evidence.jobs:
        known, lacking, queue = set(), {}, None
        for event in sorted(_of_job(evidence, job.job_id), key=lambda event: event.ms):
            if event.word in _PULLS:
                _take_pull(lacking, event)
            elif event.word in _QUEUE:
                queue = _applied(queue, event)
            elif (aside := _noted(event)) is not None:
                noted[event.word].append(aside)
                if event.word != "lost":
                    known.add((aside.node, aside.run, aside.attempt))
        # A record repeats excluded and blamed nodes in one list; older sets have only the record.
        noted["aside"] += [
            aside
            for aside in aside_of(job)
            if is_node_name(aside.node) and (aside.node, aside.run, aside.attempt) not in known
        ]
    return JobNotes(**noted, lacking=lacking, queue=queue)


def _applied(queue: Queue | None, event: Event) -> Queue:
    from orchestrator.onnode.policy.queue import Queue, apply

    queue = queue or Queue()
    apply(queue, event)
    return queue


def _take_pull(lacking: dict[str, str], event: Event) -> None:
    if event.word in ("pulled", "failed"):
        lacking.pop(event.node, None)
    elif is_node_name(event.node):
        lacking[event.node] = event.detail[:MOST_TEXT]


def unreleased(evidence: SetEvidence, job_id: str) -> list[str]:
    """Return the nodes of an ended job that may still have its container and host settings: they
    sent events and reported no release."""
    held: dict[str, None] = {}
    for path in event_files(evidence, job_id):
        try:
            for event in read_events(path, evidence.findings.inside):
                if event.source != "node" or not is_node_name(event.node):
                    continue
                if event.word == "left":
                    held.pop(event.node, None)
                else:
                    held[event.node] = None
        except OSError:
            continue  # a job that ended before it started the set
    return [*held]


def _of_job(evidence: SetEvidence, job_id: str) -> Iterator[Event]:
    """Yield a job's events with one of _WORDS, group by group."""
    for path in event_files(evidence, job_id):
        yield from _events(path, evidence.findings)


def event_files(evidence: SetEvidence, job_id: str) -> list[Path]:
    """Return a job's event files, one for each group of nodes."""
    if not _plain(job_id):
        return []
    more = evidence.findings.walk.numbers(evidence.layout.root, f"events-{job_id}.", ".tsv")
    return [evidence.layout.events(group_name(job_id, number)) for number in (1, *more)]


def _plain(job_id: str) -> bool:
    return "/" not in job_id and "\0" not in job_id and job_id != ""


def _noted(event: Event) -> SetAside | None:
    if not is_node_name(event.node):
        return None
    if event.word == "lost":
        return SetAside(event.node, event.part(0), time_ms=event.ms, kind="lost")
    run, attempt = (number(event.part(index), 6) or 0 for index in (2, 3))
    return SetAside(
        event.node, event.part(1), max(0, run), max(0, attempt), event.ms, event.part(0)
    )


def aside_of(job: JobRecord) -> list[SetAside]:
    """Return the usable entries of a job's list of excluded and blamed nodes."""
    return [aside for item in job.set_aside if (aside := _set_aside(item)) is not None]


def _set_aside(item: object) -> SetAside | None:
    if not isinstance(item, dict) or not isinstance(item.get("node"), str):
        return None
    values: dict[str, Any] = {
        name: value for name in ("reason", "kind") if isinstance(value := item.get(name), str)
    }
    numbers = {
        name: value
        for name in ("run", "attempt", "time_ms")
        if type(value := item.get(name)) is int and 0 <= value < LIMIT
    }
    return SetAside(item["node"], **{**values, **numbers})


def _events(path: Path, findings: Findings) -> Iterator[Event]:
    """Yield the events with one of _WORDS, in order. Only these lines are parsed: a file has one
    for every check of every node."""
    content = findings.walk.content(path, MOST_BYTES)
    for start, end in sorted(place for word in _WORDS for place in _places(content, word)):
        event = parse_event(content[start:end])
        if event is not None and _WORDS.get(f"\t{event.source}\t{event.word}\t".encode()):
            yield event


def _places(content: bytes, word: bytes) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the lines with `word`."""
    at = content.find(word)
    while at >= 0:
        start, end = content.rfind(b"\n", 0, at) + 1, content.find(b"\n", at) + 1
        if not end:
            return
        if end - start <= MOST_LINE:
            yield start, end
        at = content.find(word, end)


def parse_event(line: bytes) -> Event | None:
    """Return the event in a whole line; None for other lines."""
    if not line.endswith(b"\n"):
        return None
    cells = line.decode("utf-8", "replace").rstrip("\n").split("\t", 4)
    ms = number(cells[0])
    return None if ms is None or len(cells) != 5 else Event(ms, *cells[1:])


def read_events(path: PathLike, files: FilesInside = ANY) -> Iterator[Event]:
    """Yield the events of a file, without damaged lines. Raises OSError."""
    with files.open(path) as file:
        while (line := file.readline(LONGEST_LINE)) and file.tell() < MOST_REPLAYED:
            event = parse_event(line)
            if event is not None:
                yield event
