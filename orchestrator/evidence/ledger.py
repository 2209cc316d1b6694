"""The ledger of a set compared with itself and with the set."""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.evidence.copies import original
from orchestrator.evidence.sets import SetEvidence
from orchestrator.mllog.olympic import DONE
from orchestrator.onnode.kernel.records import RunRecord, checked
from orchestrator.onnode.kernel.walk import FilesInside
from orchestrator.onnode.set import bundle, ledger
from orchestrator.onnode.set.ledger import LedgerRecord
from orchestrator.scheduler.advice import SCHEDULER
from orchestrator.words import MISSING, count, utc_time

CLOCK_STEP_MS = 86_400_000
MINUTE = "%Y-%m-%d %H:%M"
"""A time to the minute, for `utc_time`."""
OUTPUT_BYTES = 64 << 10
"""Read at the end of a job's output."""
ENVIRONMENT_BYTES = 16 << 20
"""No kernel passes more to a program (execve(2): a quarter of the stack's limit, at most 6 MiB)."""
JOB_ID = re.compile(r"[\w.-]{1,100}")
_PRINTED = re.compile(r"\S+ orchestrator: (\S+)$")
"""A line of the loop. Nodes' texts in such lines have other words before them."""
_MARKED = re.compile(rf"(?<!\S){ledger.MARK}([0-9]{{1,8}}):([0-9a-f]{{64}})(?!\S)")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A problem of a record (its number, or 0) or a file (relative to the set, or "")."""

    record: int
    file: str
    text: str

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.file or f'record {self.record}'}: {self.text}"


class Anchor(NamedTuple):
    """A head kept elsewhere. `source`: job comment, job output, or head."""

    source: str
    job_id: str
    head: str

    def __str__(self) -> str:
        return {
            "job comment": f"the comment of job {self.job_id} in {SCHEDULER}",
            "job output": f"the output of job {self.job_id} (job_{self.job_id}.out)",
        }.get(self.source, f"--head {self.head}")


@dataclass(frozen=True, slots=True)
class LedgerVerdict:
    """`head` covers all records; `torn`: the last line is unfinished, and the next record will
    cover it.

    `compared`: other heads than those in the set's records. `clock`: records with a time long
    before that of the previous record. The chain proves their order, so the set stays valid.
    `heads`: after each line.
    """

    head: str
    records: int
    torn: bool
    copy_of: str
    problems: tuple[Mismatch, ...]
    clock: tuple[Mismatch, ...] = ()
    compared: tuple[Anchor, ...] = ()
    heads: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        compared = [anchor._asdict() for anchor in self.compared]
        members = {**asdict(self), "compared": compared, "valid": not self.problems}
        del members["heads"]
        return members


def verify(root: Path, outside: Iterable[Anchor] = ()) -> LedgerVerdict:
    """Compare a set's ledger with itself, with the set, and with heads kept elsewhere: in its jobs'
    output, and `outside`. Never raises: an unreadable file is a problem."""
    try:
        entries, torn = ledger.read(root, FilesInside(root))
    except OSError as error:
        return LedgerVerdict(
            "",
            0,
            False,
            "",
            (Mismatch(0, ledger.NAME, f"cannot be read: {error.strerror or error}"),),
        )
    if not entries:
        return LedgerVerdict(
            "", 0, False, "", (Mismatch(0, ledger.NAME, "there is none, or it is empty"),)
        )
    whole = entries[:-1] if torn else entries
    evidence = SetEvidence(root)
    anchors = (*outside, *printed(evidence))
    problems = [*_chain(whole), *_anchors(whole, _known(evidence, anchors))]
    problems += [*_declaration(whole, evidence)]
    problems += [
        *_submissions(whole, evidence),
        *_environments(whole, evidence),
        *_attempts(whole, evidence),
        *_results(whole, evidence),
    ]
    # Several records of one file, such as an attempt's start and end, have the same problem.
    different: dict[str, Mismatch] = {}
    for problem in problems:
        different.setdefault(str(problem), problem)
    copy_of, clock = original(root, whole), tuple(_clock_steps(whole))
    return LedgerVerdict(
        ledger.head(whole),
        len(whole),
        torn,
        copy_of,
        tuple(different.values()),
        clock,
        anchors,
        tuple(ledger.head([entry]) for entry in whole),
    )


def printed(evidence: SetEvidence) -> list[Anchor]:
    """Return the heads in the last lines of the jobs' outputs."""
    anchors = list[Anchor]()
    for job in evidence.jobs:
        try:
            output = evidence.layout.job_output(job.job_id)
            text = _last_bytes(output, evidence.findings.inside, OUTPUT_BYTES)
        except OSError:
            continue
        lines = (_PRINTED.match(line) for line in text.decode("utf-8", "replace").splitlines())
        heads = [head for line in lines if line for head in marked(line[1])]
        anchors += (Anchor("job output", job.job_id, head) for head in heads)
    return anchors


def _last_bytes(path: Path, files: FilesInside, limit: int) -> bytes:
    """Raises OSError, also for irregular files."""
    with files.open(path) as file:
        file.seek(max(os.fstat(file.fileno()).st_size - limit, 0))
        return file.read(limit)


def marked(text: str) -> list[str]:
    """Return the heads in a text marked by `ledger.mark`."""
    return [f"{number} {sha}" for number, sha in _MARKED.findall(text)]


def head_of(root: Path) -> str:
    try:
        entries, torn = ledger.read(root, FilesInside(root))
    except OSError:
        return ""
    return ledger.head(entries[:-1] if torn else entries)


def _chain(entries: list[LedgerRecord]) -> Iterator[Mismatch]:
    """Yield lines that do not follow from the previous line, with or without void ones: their
    writer may have read the ledger before those were written."""
    expected, before, stands = 1, "", ""
    for index, entry in enumerate(entries):
        if not entry.kind:
            follower = entries[index + 1] if index + 1 < len(entries) else None
            covered = entry.void or (
                follower is not None
                and (not follower.kind or (follower.torn and follower.prev == entry.hash))
            )
            if not covered:
                yield Mismatch(
                    expected, "", f"line {entry.line} is no record; it was changed, or added"
                )
            before = entry.hash
            stands = stands if entry.void else before
            continue
        if entry.number > expected:
            for number in range(expected, min(entry.number, expected + 100)):
                yield Mismatch(number, "", "is missing")
        elif entry.number < expected:
            yield Mismatch(
                entry.number,
                "",
                f"stands in line {entry.line}, behind record {expected - 1}: inserted, or moved",
            )
        elif entry.prev not in (before, stands):
            yield Mismatch(
                max(1, entry.number - 1),
                "",
                f"is not the one that record {entry.number} follows: it was changed",
            )
        expected, before = max(expected, entry.number + 1), entry.hash
        stands = before


def _time(unix_ms: int) -> str:
    """In UTC; beyond the calendar, the number itself."""
    text = utc_time(unix_ms, MINUTE)
    return f"{unix_ms} ms" if text == MISSING else text


def _clock_steps(entries: list[LedgerRecord]) -> Iterator[Mismatch]:
    """Yield the records before which a clock was set back. Clocks of hosts differ by less than
    CLOCK_STEP_MS."""
    for before, entry in pairwise(entry for entry in entries if entry.kind):
        if entry.time_ms < before.time_ms - CLOCK_STEP_MS:
            times = (
                f"{_time(entry.time_ms)}, is before that of record {before.number}, "
                f"{_time(before.time_ms)}"
            )
            yield Mismatch(
                entry.number,
                "",
                f"its time, {times}: a clock was wrong; the order of the records holds",
            )


def _known(evidence: SetEvidence, anchors: Iterable[Anchor]) -> list[tuple[str, str]]:
    """Return pairs: where a head is kept, and the head."""
    known = [(f"jobs/{job.job_id}.json", job.ledger) for job in evidence.jobs]
    known += [(f"submissions/{asked.number}.json", asked.ledger) for asked in evidence.submissions]
    return known + [(str(anchor), anchor.head) for anchor in anchors]


def _anchors(entries: list[LedgerRecord], known: list[tuple[str, str]]) -> Iterator[Mismatch]:
    hashes = {entry.number: entry.hash for entry in entries}
    for file, text in known:
        number, _, sha = text.partition(" ")
        if not text:
            continue
        at = int(number) if number.isdecimal() and len(number) < 9 else 0
        if at not in hashes:
            yield Mismatch(at, "", f"is missing, and {file} knows it")
        elif hashes[at] != sha:
            yield Mismatch(
                at, "", f"is not the one that {file} knows: it, or one before it, was changed"
            )


def _of(entries: Iterable[LedgerRecord], kind: str) -> list[LedgerRecord]:
    return [entry for entry in entries if entry.kind == kind]


def _repeated(entries: list[LedgerRecord], what: str, *members: str) -> Iterator[Mismatch]:
    """Yield records with the subject of an earlier record."""
    seen: Counter[tuple[str, ...]] = Counter()
    for entry in entries:
        key = tuple(str(entry.data.get(name)) for name in members)
        if seen[key]:
            yield Mismatch(entry.number, "", f'unexpected second "{what}" record')
        seen[key] += 1


def _declaration(entries: list[LedgerRecord], evidence: SetEvidence) -> Iterator[Mismatch]:
    made = _of(entries, "declare")
    for entry in made[1:]:
        yield Mismatch(entry.number, "", "is one more declaration: it was inserted")
    record = ledger.declared(entries)
    if record is None:
        yield Mismatch(1, "", "the set's declaration is missing, or cannot be used")
        return
    yield from _extensions(entries)
    if made[0] is not entries[0]:
        yield Mismatch(made[0].number, "", "the declaration is not the first record")
    if evidence.record is None:
        text = "cannot be used; remove it: `orchestrator resume` restores it from the declaration"
        yield Mismatch(0, "set.json", text)
        return
    now = asdict(evidence.record)
    for name, value in asdict(record).items():
        if now[name] != value:
            yield Mismatch(
                0,
                "set.json",
                f"`{name}` is {str(now[name])[:80]}, and was declared as {str(value)[:80]}",
            )
    if record.bundle_sha256:
        yield from _bundle(entries, evidence, record.bundle_sha256)


def _extensions(entries: list[LedgerRecord]) -> Iterator[Mismatch]:
    """Yield extensions to no more runs, and runs started before they were declared."""
    first = ledger.declared(_of(entries, "declare"))
    runs = first.nexp if first else 0
    for entry in entries:
        if entry.kind == "extend":
            _, more = ledger.extensions([entry])[0]
            if more <= runs:
                text = f"extends the set to {count(more, 'run')} of {runs}"
                yield Mismatch(entry.number, "", f"{text}: it was inserted, or changed")
            runs = max(runs, more)
        elif entry.kind == "attempt" and _number(entry, "run") > runs:
            declared = "1 run was" if runs == 1 else f"{runs} runs were"
            text = f"run {_number(entry, 'run')} started when {declared} declared"
            yield Mismatch(entry.number, "", text)


def _bundle(entries: list[LedgerRecord], evidence: SetEvidence, sha256: str) -> Iterator[Mismatch]:
    folder = evidence.layout.bundle
    if evidence.bundle_problem:
        yield Mismatch(0, "bundle", "is missing")
        return
    try:
        now = bundle.changed(bundle.hashes(folder), folder, sha256)
    except OSError as error:
        yield Mismatch(0, "bundle", f"cannot be read: {error.strerror or error}")
        return
    missing, edited = bundle.unexpected(now, bundle.accepted(entries))
    for name in missing:
        yield Mismatch(0, f"bundle/{name}", "is missing")
    for name in edited:
        yield Mismatch(0, f"bundle/{name}", "was edited since it was declared")


def _submissions(entries: list[LedgerRecord], evidence: SetEvidence) -> Iterator[Mismatch]:
    asked = {entry.number: entry for entry in evidence.submissions}
    said = _of(entries, "submit")
    for entry in said:
        submission, file = (
            asked.get(_number(entry, "number")),
            f"submissions/{_number(entry, 'number')}.json",
        )
        if submission is None:
            yield Mismatch(entry.number, file, "missing, but listed in the ledger")
        elif submission.settled and (submission.state, submission.job_id) != (
            entry.data.get("state"),
            entry.data.get("job_id"),
        ):
            yield Mismatch(
                entry.number,
                file,
                f"differs from the ledger: {submission.state} {submission.job_id}",
            )
    yield from _repeated(said, "submission", "number", "state", "job_id")
    yield from _repeated(_of(entries, "cancel"), "cancel", "number", "job_id")
    known, ended = (
        {_number(entry, "number") for entry in said},
        {_number(entry, "number") for entry in _of(entries, "cancel")},
    )
    for number, record in asked.items():
        file = f"submissions/{number}.json"
        if record.settled and number not in known:
            yield Mismatch(0, file, "not in the ledger: its record was dropped")
        if record.cancelled_ms and number not in ended:
            yield Mismatch(0, file, "cancelled, but not in the ledger: its record was dropped")
    for entry in _of(entries, "cancel"):
        was = asked.get(_number(entry, "number"))
        if was is None or was.job_id != entry.data.get(
            "job_id"
        ):  # `cancel` may have been killed before it noted that
            yield Mismatch(
                entry.number,
                "",
                "cancel of an unknown submission: inserted or changed",
            )


def _environments(entries: list[LedgerRecord], evidence: SetEvidence) -> Iterator[Mismatch]:
    """Yield environments of jobs that differ from the ledger."""
    for entry in _of(entries, "job"):
        job_id, sha256 = entry.data.get("job_id"), entry.data.get("environment")
        if not (isinstance(job_id, str) and JOB_ID.fullmatch(job_id) and sha256):
            continue
        path = evidence.layout.job_environment(job_id, _number(entry, "restart"))
        file = f"{path.parent.name}/{path.name}"
        try:
            unpack = zlib.decompressobj(31)  # a gzip header
            packed = evidence.findings.inside.read_bytes(path, ENVIRONMENT_BYTES)
            text = unpack.decompress(packed, ENVIRONMENT_BYTES)
            whole = unpack.eof and not unpack.unused_data
            if not whole or hashlib.sha256(text).hexdigest() != sha256:
                yield Mismatch(
                    entry.number, file, "differs from the recorded environment of the job"
                )
        except FileNotFoundError:
            yield Mismatch(entry.number, file, "missing, but listed in the ledger")
        except (OSError, zlib.error) as error:
            reason = error.strerror if isinstance(error, OSError) else "not as it was compressed"
            yield Mismatch(entry.number, file, f"cannot be read: {reason}")


def _attempts(entries: list[LedgerRecord], evidence: SetEvidence) -> Iterator[Mismatch]:
    states = {key: evidence.attempt(*key) for key in evidence.tried}
    began, ended = _of(entries, "attempt"), _of(entries, "end")
    for entry in (*began, *ended):
        key = _number(entry, "run"), _number(entry, "attempt")
        state, file = states.get(key), f"runs/{key[0]}/attempt_{key[1]}/state.json"
        if key not in states:
            yield Mismatch(entry.number, file, "missing, but listed in the ledger")
        elif state is None:
            text = "cannot be used; `orchestrator resume` restores it from the ledger"
            yield Mismatch(entry.number, file, text)
        elif entry.kind == "attempt" and any(
            entry.data.get(name) != getattr(state, name) for name in ("seed", "nodes")
        ):
            yield Mismatch(entry.number, file, "seed or nodes differ from the ledger")
        elif entry.kind == "end" and (differs := _differing(entry.data.get("state"), state)):
            yield Mismatch(entry.number, file, f"{', '.join(differs)} differ from the ledger")
    yield from _repeated(began, "attempt started", "run", "attempt")
    yield from _repeated(ended, "attempt ended", "run", "attempt")
    known = {
        kind: {(_number(entry, "run"), _number(entry, "attempt")) for entry in of_kind}
        for kind, of_kind in (("begin", began), ("end", ended))
    }
    for (run, attempt), state in states.items():
        file = f"runs/{run}/attempt_{attempt}/state.json"
        if (run, attempt) not in known["begin"]:
            yield Mismatch(
                0,
                file,
                "the attempt is not recorded: its record was dropped, or its job was killed",
            )
        if (
            state is not None
            and state.state in ("success", "failed")
            and (run, attempt) not in known["end"]
        ):
            yield Mismatch(0, file, "its end is not recorded: the record was dropped")


def _differing(data: Any, state: RunRecord) -> list[str]:
    record = checked(RunRecord, data) if isinstance(data, dict) else None
    if record is None:
        return ["all of it"]
    now = asdict(state)
    return [name for name, value in asdict(record).items() if now[name] != value]


def _results(entries: list[LedgerRecord], evidence: SetEvidence) -> Iterator[Mismatch]:
    said = {_number(entry, "run"): entry for entry in _of(entries, "result")}
    ends = {
        (_number(entry, "run"), _number(entry, "attempt")): entry for entry in _of(entries, "end")
    }
    for entry in _of(entries, "result"):
        run, attempt = _number(entry, "run"), _number(entry, "attempt")
        file = f"runs/{run}/result_{run}.txt"
        try:
            size = evidence.layout.result(run).stat().st_size
        except OSError:
            yield Mismatch(entry.number, file, "missing, but listed in the ledger")
            continue
        if size != entry.data.get("bytes") or (
            _sha256(evidence.layout.result(run), evidence.findings.inside)
            != entry.data.get("sha256")
        ):
            yield Mismatch(entry.number, file, "differs from the published file")
        state = ends[run, attempt].data.get("state") if (run, attempt) in ends else None
        if attempt and isinstance(state, dict) and state.get("outcome") not in DONE:
            yield Mismatch(entry.number, file, f"is of attempt {attempt}, which has no result")
        log = evidence.layout.node_log(run, attempt, _number(entry, "rank", -1))
        if (
            _number(entry, "rank", -1) >= 0
            and log.exists()
            and evidence.layout.result(run).stat().st_size < log.stat().st_size
        ):
            yield Mismatch(entry.number, file, "is shorter than the log that it was made of")
    yield from _repeated(list(_of(entries, "result")), "result", "run", "attempt", "sha256")
    runs = evidence.findings.walk.numbers(evidence.layout.runs)
    for run in runs:
        if evidence.layout.result(run).exists() and run not in said:
            yield Mismatch(
                0,
                f"runs/{run}/result_{run}.txt",
                "is not recorded: it was added, or its record was dropped",
            )


def _number(entry: LedgerRecord, name: str, otherwise: int = 0) -> int:
    value = entry.data.get(name)
    return value if type(value) is int and abs(value) < 1 << 31 else otherwise


def _sha256(path: Path, files: FilesInside) -> str:
    """Return a file's hash; "" if unreadable."""
    try:
        whole = hashlib.sha256()
        with files.open(path) as file:
            while piece := file.read(1 << 20):
                whole.update(piece)
        return whole.hexdigest()
    except OSError:
        return ""
