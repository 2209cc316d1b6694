"""The line of a log that tells why a program died, and what several nodes tell of it in one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .said import line

TAIL_BYTES = 1 << 16
MOST_CHARACTERS, MOST_TOLD = 200, 3
_LABEL = re.compile(r"^(?:\s*\[?(?:rank ?)?\d+\]?:\s?)*\s*")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Failure|Exit)(?::\s|:?$)")
_WORDS = re.compile(
    r"what\(\):|Fatal Python error|Segmentation fault|Bus error|Illegal instruction|Memory access fault|HSA_STATUS_ERROR"
    r"|(?:HIP|CUDA|hip|NCCL|RCCL) error|out of memory|No space left|[Cc]ommand not found|: command not found"
    r"|: No such file or directory|: Permission denied|(?i:^(?:error|fatal|failed)[:\s])"
)
# What follows from another one's end, or only says that there was one.
_AFTER = re.compile(
    r"ChildFailedError|SignalException|BrokenPipe|ConnectionReset|ConnectionRefused|DistBackendError|DistNetworkError|DistStoreError"
    r"|[Cc]onnection (?:closed|reset)|remote process exited|KeyboardInterrupt|SystemExit"
)
_WEAK = re.compile(
    r"terminate called|core dumped|^Aborted|\bKilled$|^orchestrator: local rank"
    r"|: line \d+:\s+\d+ (?:Killed|Aborted)\b"  # of bash, whose script may end with 0 all the same
)


def telling_line(tail: bytes) -> str:
    """Return the last line that says what went wrong in the end of a log, "" where none does. Raises on no bytes."""
    weak = ""
    for raw in reversed(tail[-TAIL_BYTES:].replace(b"\r", b"\n").split(b"\n")):
        text = _LABEL.sub("", line(raw[:4096].decode("utf-8", "replace"), 4096)).strip()
        if text.startswith(":::MLLOG"):
            continue
        if exception_in(text):
            return text[:MOST_CHARACTERS]
        if not weak and (_AFTER.match(text) or _WEAK.search(text) or _EXCEPTION.match(text)):
            weak = text[:MOST_CHARACTERS]
    return weak


def exception_in(text: str) -> bool:
    """Return whether a line says that something went wrong in its own words: an exception, or one of the usual ones."""
    text = _LABEL.sub("", text).strip()
    return bool(_EXCEPTION.match(text) or _WORDS.search(text)) and not _AFTER.search(text)


def way_of(error: str) -> str:
    """Return a telling line without its numbers: ports, addresses and ranks differ between attempts that died alike."""
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "0", error)


def in_one(nodes: Sequence[str], errors: Mapping[str, str]) -> str:
    """Return what the nodes said last; what several say alike is said once."""
    said: dict[str, list[str]] = {}
    for node in nodes:
        if errors.get(node):
            said.setdefault(errors[node], []).append(node)
    texts = [f"{_who(found, nodes)}{error}" for error, found in said.items()]
    more = f"; and {len(texts) - MOST_TOLD} other last words" if len(texts) > MOST_TOLD else ""
    return "; ".join(texts[:MOST_TOLD]) + more


def _who(found: Sequence[str], nodes: Sequence[str]) -> str:
    if len(found) == len(nodes):
        return f"all {len(nodes)} nodes: " if len(nodes) > 1 else ""
    more = f" and {len(found) - MOST_TOLD} more" if len(found) > MOST_TOLD else ""
    return f"{', '.join(found[:MOST_TOLD])}{more}: "
