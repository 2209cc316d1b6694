"""Does a run that goes on still say something? Its last MLLOG record and how long ago its log grew, against its own rhythm."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from orchestrator.evidence.progress import TAIL_BYTES, read_end
from orchestrator.onnode.layout import Layout
from orchestrator.onnode.mllog_tail import lines, telling_log
from orchestrator.words import duration

LEAST_QUIET_S = 300.0
"""What compiles or loads may say nothing for minutes."""
RHYTHMS = 5
"""A log that did not grow for so many times the longest pause between its last MLLOG records may hang."""


@dataclass(frozen=True)
class LastWord:
    """The end of a log that grows: the last MLLOG key ("" for none), seconds since it grew, the longest pause between records."""

    key: str
    quiet_s: float
    rhythm_s: float

    @property
    def hangs(self) -> bool:
        """Whether it is quiet for longer than its own rhythm explains."""
        return self.quiet_s > max(LEAST_QUIET_S, RHYTHMS * self.rhythm_s)

    @property
    def words(self) -> str:
        last = f"; the last MLLOG key is {self.key}" if self.key else "; it has no MLLOG record yet"
        return f"no new line for {duration(self.quiet_s)}{last}"


def last_word(log: Path) -> LastWord | None:
    """Return what the end of a log says; None where there is no log."""
    try:
        quiet = max(0.0, time.time() - os.stat(log).st_mtime)
    except OSError:
        return None
    records = list(lines(read_end(log, TAIL_BYTES)))
    times = [ms / 1000 for one in records if isinstance(ms := one.get("time_ms"), (int, float)) and 0 < ms < 1 << 53]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    key = str(records[-1]["key"])[:60] if records else ""
    return LastWord(key if key.isprintable() else ascii(key), quiet, max(pauses, default=0.0))


def hanging(layout: Layout, going: Iterable[tuple[int, int]]) -> str:
    """Return a sentence about the first of the runs (run, attempt) that says nothing any more, "" where all do."""
    for run, attempt in going:
        word = last_word(telling_log(layout, run, attempt))
        if word is not None and word.hangs:
            return f"run {run} may hang: {word.words}"
    return ""
