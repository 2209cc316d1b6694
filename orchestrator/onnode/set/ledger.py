"""ledger.jsonl: a line per declaration or act, with the previous line's hash (docs/ledger.md).

Controller and loop append lines by single writes under a lease. An unfinished line stays, covered
by the next (`torn`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..kernel.files import HERE, Files
from ..kernel.records import RunRecord, SetRecord, checked
from ..kernel.regular import parse
from ..kernel.walk import MOST_DIGITS
from ..kernel.world import THIS, World

TYPE_CHECKING = False  # importing typing is slow
if TYPE_CHECKING:
    from ..kernel.walk import WalkedFiles

NAME, LOCK = "ledger.jsonl", ".ledger.lock"
MOST_BYTES = 256 << 20
MOST_LINES = 200_000
"""A set of 9,999 runs in five attempts each has half as many."""
PATIENCE_S = 30.0
"""Writes take milliseconds."""

MARK = "orchestrator-ledger:"

NewRecord = tuple[str, dict[str, Any]]
"""Kind and data of a record to append."""


@dataclass(frozen=True)
class LedgerRecord:
    """A line. `line`: from 1; `kind`: "" if it is no record; `hash`: of the line as written.

    Consecutive lines without records share a chain: each hash covers the previous hash, a space,
    and the hash of its own line.

    """

    line: int
    hash: str
    number: int = 0
    kind: str = ""
    time_ms: int = 0
    prev: str = ""
    torn: bool = False
    data: dict[str, Any] = field(default_factory=dict)
    void: bool = False
    """Written too late: declared void by a later line."""


@lru_cache(maxsize=1024)
def _entry(line: int, text: bytes) -> LedgerRecord:
    """Cached: each append reads all lines again."""
    sha256 = hashlib.sha256(text).hexdigest()
    try:
        document = parse(text)
    except ValueError:
        return LedgerRecord(line, sha256)
    kinds = {"n": int, "time_ms": int, "kind": str, "prev": str, "data": dict}
    if not isinstance(document, dict) or any(
        type(document.get(name)) is not kind for name, kind in kinds.items()
    ):
        return LedgerRecord(line, sha256)
    return LedgerRecord(
        line,
        sha256,
        document["n"],
        document["kind"],
        document["time_ms"],
        document["prev"],
        document.get("torn") is True,
        document["data"],
    )


def read(root: Path, files: WalkedFiles = HERE) -> tuple[list[LedgerRecord], bool]:
    """Return the lines ([] without a ledger), and whether the last is unfinished. Raises
    OSError."""
    try:
        content = files.read_bytes(root / NAME, MOST_BYTES)
    except FileNotFoundError:
        return [], False
    if content.count(b"\n") > MOST_LINES:
        raise OSError(errno.EFBIG, f"it has more than {MOST_LINES} lines", str(root / NAME))
    lines = content.split(b"\n")
    torn = bool(lines[-1])
    raw = [_entry(number, line) for number, line in enumerate(lines if torn else lines[:-1], 1)]
    void = {
        line for entry in raw if entry.kind == "void" for line in _texts(entry.data.get("lines"))
    }
    entries = list[LedgerRecord]()
    for entry in raw:
        if entry.hash in void:
            entry = LedgerRecord(entry.line, entry.hash, void=True)
        if entries and not (entry.kind or entries[-1].kind):  # the next record covers them
            entry = replace(
                entry, hash=hashlib.sha256(f"{entries[-1].hash} {entry.hash}".encode()).hexdigest()
            )
        entries.append(entry)
    return entries, torn


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def head(entries: list[LedgerRecord]) -> str:
    """Return `<number> <hash>` of the last record, or ""."""
    return f"{entries[-1].number} {entries[-1].hash}" if entries else ""


def mark(head: str) -> str:
    """Return a head as one word, for places outside of the set."""
    return f"{MARK}{head.replace(' ', ':')}" if head else ""


def append(
    root: Path,
    *records: NewRecord,
    job: str = "",
    cluster: str = "",
    once: bool = False,
    confirm: Callable[[], object] = lambda: None,
    world: World = THIS,
) -> str:
    """Append records, flushed to disk; return the new head. `once`: skip existing records.
    `confirm` may refuse the write. Raises OSError; HeldError after PATIENCE_S."""
    from .lease import Lease

    me = world.holder(cluster=cluster)
    by = {"cluster": cluster, "uid": me.uid, "host": me.host, "pid": me.pid, "job": job}
    written, late = list[str](), list[str]()
    while True:
        lease = Lease(root / LOCK, me, world=world)
        lease.take(patience_s=PATIENCE_S, wait=True, beat=False)
        try:
            entries, torn = read(root, world.files)
            if written and _follow(entries, written):
                return head(entries)
            late, written = late + written, []
            void = [("void", {"lines": late})] if late else list[NewRecord]()
            new = void + (_unknown(records, entries, late) if once else list(records))
            if not new:
                return head(entries)
            text, lines, number = _lines(entries, torn, new, by, world)
            if not lease.mine:  # it stood still: its reading may be outdated
                continue
            confirm()
            written = lines
            if world.files.append(root / NAME, text, sync=True) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(root / NAME))
            if not entries:
                world.files.sync_folder(root)
            if lease.mine:
                return f"{number} {written[-1]}"
        finally:
            lease.release()
        # It froze in between: another process may have written before these lines.


def _unknown(
    records: Iterable[NewRecord], entries: list[LedgerRecord], void: list[str]
) -> list[NewRecord]:
    """Return the records missing in `entries` without lines of the hashes `void`."""
    known = [(entry.kind, entry.data) for entry in entries if entry.hash not in void]
    return [record for record in records if record not in known]


def _lines(
    entries: list[LedgerRecord],
    torn: bool,
    records: Iterable[NewRecord],
    by: dict[str, Any],
    world: World,
) -> tuple[bytes, list[str], int]:
    """Return the lines that follow `entries`, their hashes, and the number of the last."""
    number = max((entry.number for entry in entries), default=0)
    prev, text, shas = entries[-1].hash if entries else "", b"\n" * torn, list[str]()
    for kind, data in records:
        number += 1
        line: dict[str, Any] = {
            "n": number,
            "time_ms": world.wall_ms(),
            "kind": kind,
            "by": by,
            "prev": prev,
        }
        line.update({"torn": True} if torn else {}, data=data)
        whole, torn = json.dumps(line, separators=(",", ":")).encode(), False
        prev, text = hashlib.sha256(whole).hexdigest(), text + whole + b"\n"
        shas.append(prev)
    return text, shas, number


def _follow(entries: list[LedgerRecord], written: list[str]) -> bool:
    """Return whether lines `written` are chained to the lines before and after them."""
    hashes = [entry.hash for entry in entries]
    if written[0] not in hashes:
        return False
    first = hashes.index(written[0])
    after = first + len(written)
    return (
        hashes[first:after] == written
        and entries[first].prev == (hashes[first - 1] if first else "")
        and (after == len(entries) or entries[after].prev == written[-1])
    )


def declaration(record: SetRecord, place: Path, inode: int) -> NewRecord:
    """Return the first record of a set in `place`."""
    return "declare", {"set": asdict(record), "place": {"path": str(place), "inode": inode}}


def declared(entries: list[LedgerRecord]) -> SetRecord | None:
    """Return the declared set with its extensions."""
    first = next((entry for entry in entries if entry.kind == "declare"), None)
    data = first.data.get("set") if first else None
    record = checked(SetRecord, data) if isinstance(data, dict) else None
    if record is None:
        return None
    return replace(record, nexp=max([record.nexp, *(runs for _, runs in extensions(entries))]))


def extensions(entries: list[LedgerRecord]) -> list[tuple[LedgerRecord, int]]:
    """Return extensions with their numbers of runs, 0 if unusable."""
    pairs = [(entry, entry.data.get("nexp")) for entry in entries if entry.kind == "extend"]
    return [
        (entry, runs if type(runs) is int and 0 < runs < 10_000 else 0) for entry, runs in pairs
    ]


def attempt_started(state: RunRecord) -> NewRecord:
    about = {"run": state.run, "attempt": state.attempt, "seed": state.seed, "nodes": state.nodes}
    return "attempt", about


def attempt_ended(state: RunRecord) -> NewRecord:
    return "end", {"run": state.run, "attempt": state.attempt, "state": asdict(state)}


def published(path: Path, run: int, attempt: int, rank: int, files: Files) -> NewRecord:
    """Return a result's record; `rank` -1: published before. Raises OSError."""
    whole = hashlib.sha256()
    with files.open(path) as file:
        while piece := file.read(1 << 20):
            whole.update(piece)
        size = file.tell()
    about = {"run": run, "attempt": attempt, "rank": rank}
    return "result", {**about, "sha256": whole.hexdigest(), "bytes": size}


def subject(record: LedgerRecord) -> tuple[str, int, int]:
    """Return kind, run and attempt (0: none); for a result kind and run, 0."""
    run, attempt = (
        value if type(value) is int and 0 < value < 10**MOST_DIGITS else 0
        for value in map(record.data.get, ("run", "attempt"))
    )
    return record.kind, run, 0 if record.kind == "result" else attempt
