"""The symptoms in the log of a node: lines that may explain the end of the program.

A traceback with its chain has a single symptom: the last line of its first
traceback, or of a later one if only that has a known cause. Whatever the program outlived is no
symptom, nor are the frames of a stack.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace

from orchestrator.causes.cause import ECHO, END, MENTION, PROGRAM
from orchestrator.causes.lines import MOST_LINE, Shape, is_exception, judge, read_shape, shape_of
from orchestrator.causes.prefixes import seconds_of, stream_of, without_prefixes
from orchestrator.onnode.policy.reports import MOST_QUOTED, line

MOST_SYMPTOMS = 20_000
OUTLIVED, OUTLIVED_STEPS, OUTLIVED_LINES = 5, 3, 40
"""After so many MLLOG records, lines about a step, or other lines, the program has gone on. When a
rank is dead, the others stop within a step or two."""
LAST_LINES = 6
"""Words in passing count within so many lines of the end."""
SLURM_ENDS = ("time_limit", "cancelled")
"""How a job ended, not why: a failure before it is the cause."""
_CODE = re.compile(
    r"(?:return|assert|raise|import|from|with|for|if|await|yield|self|sys|exec)\b"
    r"|[\w.]+\(|[\w.,]+ = "
)
_CHAIN = ("The above exception was the direct cause", "During handling of the above exception")
_OPENS = re.compile(rb"Traceback \(|File \"")
_FILE = re.compile(r"\s*File \"")
_SOURCE = re.compile(r"\s|[\^~]+\s*$|\.\.\.|\[Previous line repeated")


@dataclass(frozen=True)
class Symptom:
    """A line that may explain the end of the program."""

    cause: str
    """The name of the cause, "" for an exception without a known cause and for an echo."""
    grade: int
    text: str
    offset: int
    """Its place in bytes; -1 for an exit code."""
    time: float | None = None
    """Seconds since the start of a year, by the line's own stamp; None without one."""
    raised: bool = False
    """Whether it is an exception of the program."""
    before: int = 0
    """How many ordinary lines come before it."""


@dataclass
class _Stream:
    """The state of the lines of a process."""

    in_traceback: bool = False
    in_chain: bool = False
    after_file: bool = False
    source: str = ""
    """The line of code of the last frame. Some loggers cut its indentation off."""
    first: Symptom | None = None
    """The symptom of the chain so far."""
    has_message: bool = False
    """Whether that exception has a message."""

    def open(self, is_file: bool) -> None:
        """Take the first line of a traceback, or the first line of a frame."""
        if not (self.in_traceback or self.in_chain):
            self.first = None
        self.in_traceback, self.after_file = True, is_file
        self.source = self.source if is_file else ""

    def takes_source(self, bare: str) -> bool:
        """Return whether a line is the source of a frame, indented or not."""
        after_file, self.after_file = self.after_file, False
        if not self.in_traceback:
            return False
        if not _SOURCE.match(bare) and not (after_file and _CODE.match(bare)):
            return False
        if bare.strip(" ^~"):
            self.source = bare.strip()
        return True


def symptoms(text: bytes) -> list[Symptom]:
    """Return the symptoms in a part of a log, in order. Never raises."""
    reading = _LogReader()
    offset = 0
    for raw in text.replace(b"\r", b"\n").split(b"\n"):
        if raw:
            reading.take(raw, offset)
        offset += len(raw) + 1
    return reading.result()


class _LogReader:
    """The state between two lines of a log."""

    def __init__(self) -> None:
        self._symptoms: list[Symptom] = []
        self._streams: dict[str, _Stream] = {}
        self._records: deque[int] = deque(maxlen=OUTLIVED)
        self._steps: deque[int] = deque(maxlen=OUTLIVED_STEPS)
        self._last: deque[int] = deque([0], maxlen=LAST_LINES)
        self._ordinary = 0

    def take(self, raw: bytes, offset: int) -> None:
        if b":::MLLOG" in raw:
            self._records.append(offset)
            return
        shape = read_shape(shape_of(raw))
        if not (shape.may_fail or self._streams or _OPENS.search(raw)):
            self._take_ordinary(shape, offset)
            return
        text = line(raw[:MOST_LINE].decode("utf-8", "replace"), MOST_LINE)
        bare = without_prefixes(text)
        name = stream_of(text, bare)
        is_file = _FILE.match(bare) is not None
        if is_file or bare.startswith("Traceback (most recent"):
            self._streams.setdefault(name, _Stream()).open(is_file)
            return
        known_stream = self._streams.get(name)
        if known_stream is not None and known_stream.takes_source(bare):
            return
        if known_stream is not None and bare.startswith(_CHAIN):
            known_stream.in_chain = True
            return
        judged = judge(text, shape.signs) if len(self._symptoms) < MOST_SYMPTOMS else None
        symptom = None
        if judged is not None:
            raised = is_exception(bare.strip())
            quoted = text.strip()[:MOST_QUOTED]
            time = seconds_of(text)
            symptom = Symptom(*judged, quoted, offset, time, raised, self._ordinary)
        if known_stream is not None and known_stream.in_traceback:
            symptom = self._end_traceback(known_stream, bare.strip(), symptom)
            self._last.append(offset)
        else:
            if known_stream is not None and bare.strip():
                known_stream.in_chain = False
            self._last.append(offset)
            if symptom is None:
                self._ordinary += 1
                if shape.is_step:
                    self._steps.append(offset)
        if symptom is not None:
            self._symptoms.append(symptom)

    def _take_ordinary(self, shape: Shape, offset: int) -> None:
        self._last.append(offset)
        self._ordinary += 1
        if shape.is_step:
            self._steps.append(offset)

    def _end_traceback(self, stream: _Stream, bare: str, symptom: Symptom | None) -> Symptom | None:
        """Return the symptom of a traceback that ends with the line `bare`, if it adds any."""
        stream.in_traceback = False
        chained, stream.in_chain = stream.in_chain, False
        has_message = ": " in bare
        if symptom is not None and not has_message and stream.source:
            # An exception without a message: its source is all that names the failure.
            quoted = f"{stream.source} ({bare})"[:MOST_QUOTED]
            symptom = replace(symptom, text=quoted)
        first = stream.first
        if chained and symptom is not None and first is not None and first.grade < ECHO:
            if stream.has_message or not has_message:
                return symptom if first.grade > PROGRAM >= symptom.grade else None
            self._symptoms.remove(first)
        stream.first, stream.has_message = symptom, has_message
        return symptom

    def result(self) -> list[Symptom]:
        """Return the symptoms that the program did not outlive."""
        went_on = [seen[0] for seen in (self._records, self._steps) if len(seen) == seen.maxlen]
        outlived = max(went_on, default=0)
        counted = [
            symptom for symptom in self._symptoms if _counts(symptom, outlived, self._last[0])
        ]
        raised = [symptom for symptom in counted if symptom.raised and symptom.grade <= END]
        if raised:
            limit = raised[-1].before - OUTLIVED_LINES
            counted = [
                symptom
                for symptom in counted
                if symptom.raised or symptom.before > limit or _is_hard(symptom)
            ]
        return _without_slurm_ends(counted)


def _is_hard(symptom: Symptom) -> bool:
    return symptom.grade < PROGRAM or symptom.grade >= MENTION


def _counts(symptom: Symptom, outlived: int, last: int) -> bool:
    """Return whether the program neither outlived a symptom nor mentioned it in passing."""
    if symptom.grade == MENTION:
        return symptom.offset >= max(last, outlived)
    is_lasting = symptom.grade < PROGRAM or symptom.grade == ECHO
    return is_lasting or symptom.offset >= outlived


def _without_slurm_ends(candidates: list[Symptom]) -> list[Symptom]:
    """Return the symptoms without the end that Slurm made of a failure before it."""
    failures = [
        symptom.offset
        for symptom in candidates
        if symptom.grade in (PROGRAM, END) and symptom.offset >= 0
    ]
    if not failures:
        return candidates
    first = min(failures)
    return [
        symptom
        for symptom in candidates
        if symptom.cause not in SLURM_ENDS or symptom.offset < first
    ]
