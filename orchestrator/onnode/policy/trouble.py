"""The last line of a log that tells why a program died, and what several nodes tell of it in one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .cause import END
from .lines import MOST_LINE, judge, may_say, shape_of, without_label
from .reports import line

TAIL_BYTES = 1 << 16
MOST_CHARACTERS, MOST_TOLD = 200, 3


def telling_line(tail: bytes) -> str:
    """Return the last line that says what went wrong in the end of a log, "" where none does. Raises on no bytes.

    What another process may be the cause of is told where the program says nothing else, and what only echoes another one's end
    where it says neither.
    """
    told: dict[int, str] = {}
    for raw in reversed(tail[-TAIL_BYTES:].replace(b"\r", b"\n").split(b"\n")):
        may_be, signs, *_ = may_say(shape_of(raw))
        if not may_be or b":::MLLOG" in raw:
            continue
        text = without_label(line(raw[:MOST_LINE].decode("utf-8", "replace"), MOST_LINE))
        judged = judge(text, signs)
        if judged is not None:
            told.setdefault(max(END, judged[1]), text[:MOST_CHARACTERS])
            if END in told:
                break
    return told[min(told)] if told else ""


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
