"""The symptoms in the log of a node: lines that may explain the end of the program.

Their form alone decides (forms.py). A traceback with its chain is an episode with a single
symptom: its first exception, unless it is a mere look-up or wrapper. Lines that continue an error,
such as the stack of an MPI error, belong to its episode. Lines that the program outlived are no
symptoms.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace
from functools import lru_cache

from orchestrator.causes.cause import ECHO, END, MENTION, PROGRAM, SYMPTOM, WRAPPER
from orchestrator.causes.forms import (
    EXCEPTION,
    ends_step,
    grade_of,
    is_advice,
    is_advice_item,
    is_header,
    is_killed_task,
    is_outer_end,
    opens_advice,
)
from orchestrator.causes.lines import KIND, MERE, meaning
from orchestrator.causes.prefixes import seconds_of, stream_of, without_prefixes
from orchestrator.onnode.policy.reports import MOST_QUOTED, line
from orchestrator.onnode.policy.trouble import is_harmless

MOST_LINE = 4096
MOST_COMPARED = 1024
"""The characters of a line compared with signs."""
MOST_SYMPTOMS = 20_000
OUTLIVED, OUTLIVED_STEPS, OUTLIVED_LINES = 5, 3, 40
"""After so many MLLOG records, lines about a step, or other lines, the program has continued. When
a rank is dead, the others stop within a step or two."""
LAST_LINES = 6
"""Words in passing count within so many lines of the end."""
MOST_OF_EPISODE = 8
_DIGITS = b"0123456789"
_CODE = re.compile(
    r"(?:return|assert|raise|import|from|with|for|if|await|yield|self|sys|exec)\b"
    r"|[\w.]+\(|[\w.,]+ = "
)
_CHAIN = ("The above exception was the direct cause", "During handling of the above exception")
_OPENS = re.compile(rb"Traceback \(|File \"")
_FRAME_INDENT = 2
"""Blanks before `File` in a traceback."""
_FILE = re.compile(r"\s*File \"")
_SOURCE = re.compile(r"\s|[\^~]+\s*$|\.\.\.|\[Previous line repeated")
_LOOK_UP = re.compile(
    r"(?:KeyError|AttributeError|StopIteration|TypeError|IndexError|TimeoutError"
    r"|(?:asyncio\.(?:exceptions\.)?)?CancelledError|queue\.Empty)\b"
)
"""Types that a program catches to raise a better exception."""
_ANNOUNCES = re.compile(r"[^\d\s]:\s*$")
_TIMED_OUT = re.compile(r"[Ww]atchdog caught|collective operation timeout")
_OF_ENVIRONMENT = re.compile(r".*(?:/os\.py|<frozen os>)\", line \d+, in __getitem__")
"""The last frame if an environment variable is not set."""
_BOX_ENDS = "\u2570".encode()
"""The last line of a traceback in a box: lines after it are broken at its width."""
_BROKEN = re.compile(r"[^.!?:;)\]}'\"]\s*$")
"""The end of a line in the midst of a sentence."""
_REST = re.compile(r"[a-z\d][\w'-]{0,40}(?!:) ")
"""The rest of the sentence: no program's name with a colon."""
_OTHERS, _FIRST = "Failures:", "Root Cause (first observed failure)"
"""The parts of torchrun's report: the other processes come first."""
_DETAIL = "Last error:"
_STACK_OPENS = "error stack:"
_STACK = re.compile(r"[\w/]{1,80}\(\d{1,6}\)\.{0,60}: ?")
_MAY_FAIL = re.compile(
    rb"error|exception|interrupt|failure|exit|fatal|fail|what\(\)|outofres|warn|not |n't|no |cannot"
    rb"|unable|invalid|unknown|missing|denied|refused|exceed|expired|mismatch|unsupported|require"
    rb"|must|illegal|corrupt|insufficient|out of|too |undefined|unrecogn|ambiguous|unexpected"
    rb"|conflict|nan|finite|disconnect|unauthor|forbidden|unavail|overflow|stale|lost|truncat"
    rb"|malform|abort|already|busy|limit|stopped|nothing|quota|read-only|duplicate|different|kill"
    rb"|sig|fault|kernel|amdgpu|timeout|timed|watchdog|unreach|reset|closed|gone|peer|dead|died"
    rb"|slurm|srun|assert|panic|oom|hung|hang|cancel|down|stop|terminat|resolve|double free"
    rb"|nvrm|mlx5|bnxt|ionic|pcie|mce: |lustre|nfs|ecc\b|poison|xid|fallen|ras event|expect|hip"
    rb"|\]: |bound|: line |syntax|parameter|blocked|did not|caused by|causes|solutions|following"
)
_STEP = re.compile(
    rb"\biteration\s+/|\bit/s\b|s/it\b|\bstep[ :=_]+/?[\s,|]|\blm loss\b|\bthroughput\b|tokens/s"
)


@dataclass(frozen=True)
class Symptom:
    """A line that may explain the end of the program."""

    grade: int
    text: str
    offset: int
    """Its place in bytes; -1 for an exit code."""
    time: float | None = None
    """Seconds from a year's start to the line's stamp; None without it."""
    raised: bool = False
    """It is an exception of the program."""
    before: int = 0
    """Ordinary lines before it."""
    episode: tuple[tuple[str, int], ...] = ()
    """The other lines of its episode about the failure, with their places."""
    rest: str = ""
    """The line after its quoted part."""
    named: str = ""
    """The name of its cause, by the lines around it."""

    @property
    def cause(self) -> str:
        name, tier = self._meaning
        return self.named or ("" if self.grade >= ECHO and tier == MERE else name)

    @property
    def is_exact(self) -> bool:
        """Return whether its cause is more than a kind of failures."""
        return bool(self.named) or self._meaning[1] < KIND

    @property
    def is_remark(self) -> bool:
        """Return whether a line marked as an error ends no program and has no known meaning."""
        if self.grade != PROGRAM or self.raised or self.cause:
            return False
        return "what():" not in self.text

    @property
    def beats_remarks(self) -> bool:
        """Return whether a line's known meaning counts before a remark."""
        return PROGRAM <= self.grade <= SYMPTOM and bool(self.cause)

    @property
    def _meaning(self) -> tuple[str, int]:
        return meaning(self.text + self.rest, tuple(text for text, _ in self.episode))


@dataclass(frozen=True)
class Shape:
    """Properties of all lines of a shape."""

    may_fail: bool
    is_step: bool


def shape_of(raw: bytes) -> bytes:
    """Return a line in small letters without its digits: many lines have few shapes."""
    return raw[:MOST_LINE].lower().translate(None, _DIGITS)


@lru_cache(maxsize=4096)
def read_shape(shape: bytes) -> Shape:
    return Shape(bool(_MAY_FAIL.search(shape)), bool(_STEP.search(shape)))


@dataclass
class _Stream:
    """The state of the lines of a process."""

    in_traceback: bool = False
    in_chain: bool = False
    after_file: bool = False
    frame: tuple[str, int] = ("", 0)
    """The first line of the last frame, with its place."""
    source: str = ""
    """The line of code of the last frame. Some loggers cut off its indentation."""
    first: Symptom | None = None
    """The symptom of the chain so far."""
    last: Symptom | None = None
    """The last symptom, if the next line may continue it."""
    wants: str = ""
    """The expected continuation in the next line."""
    is_boxed: bool = False
    """The last symptom came after a traceback in a box."""

    indent: int = 0
    """The indentation of the whole traceback."""

    def open(self, bare: str, is_file: bool, offset: int) -> None:
        """Take the first line of a traceback or of a frame."""
        self.wants = ""
        if is_file:
            self.indent = max(0, _indent(bare) - _FRAME_INDENT)
        if not (self.in_traceback or self.in_chain):
            self.first = None
        self.in_traceback, self.after_file = True, is_file
        self.source = self.source if is_file else ""
        self.frame = (bare.strip()[:MOST_QUOTED] if is_file else "", offset)

    def close(self) -> bool:
        """End the traceback; return whether it continued a chain."""
        chained, self.in_chain, self.in_traceback = self.in_chain, False, False
        return chained

    def chain(self, *, is_open: bool) -> None:
        self.in_chain = is_open

    def keep(self, symptom: Symptom | None) -> None:
        self.first = symptom

    def expect(self, wants: str, symptom: Symptom, *, is_boxed: bool) -> None:
        """Expect lines that continue a symptom."""
        self.wants, self.last, self.is_boxed = wants, symptom, is_boxed

    def follow(self, symptom: Symptom) -> None:
        self.last = symptom

    def continued(self, text: str, bare: str, offset: int) -> Symptom | None:
        """Return the last symptom with a line that continues its episode; None for other lines."""
        last, stripped, wants = self.last, bare.strip(), self.wants
        if last is None or not stripped:
            self.wants = ""
            return None
        quoted = text.strip()[:MOST_QUOTED]
        known = (*last.episode, (last.text, last.offset))[-MOST_OF_EPISODE:]
        moved = replace(last, text=quoted, rest="", offset=offset, episode=known)
        if wants == "stack" and _STACK.match(stripped):
            return moved
        if wants == "detail":
            if stripped.startswith(_DETAIL):
                self.wants = "last error"
                return last
            announced = _ANNOUNCES.search(last.text) is not None
            is_detail = announced or re.match(r"nccl\w+: ", stripped) is not None
            if announced and not _ANNOUNCES.search(text):
                self.wants = ""
            if is_detail or (self.is_boxed and _is_wrapped(last, text, bare)):
                more = (*last.episode, (quoted, offset))[-MOST_OF_EPISODE:]
                return replace(last, episode=more)
        self.wants = ""
        if wants == "last error" and is_harmless(bare):
            return last
        if wants == "last error":
            grade = grade_of(text, bare)
            return replace(moved, grade=PROGRAM if grade is None else grade)
        return None

    def takes_source(self, bare: str) -> bool:
        """Return whether a line is a frame's source, indented or not."""
        after_file, self.after_file = self.after_file, False
        if not self.in_traceback:
            return False
        bare = bare[min(self.indent, _indent(bare)) :]
        if not _SOURCE.match(bare) and not (after_file and _CODE.match(bare)):
            return False
        if bare.strip(" ^~"):
            self.source = bare.strip()
        return True


def _indent(bare: str) -> int:
    return len(bare) - len(bare.lstrip(" "))


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
        self._previous = 0
        self._this = 0
        """The places of the line before, and of this line."""
        self._box_end = -1
        self._in_advice = False
        """The lines before list causes or remedies in general."""
        self._is_open = False
        """The line before is such a remark, in the midst of its sentence."""
        self._report: int | None = None
        """Symptoms before a launcher's report."""

    def take(self, raw: bytes, offset: int) -> None:
        self._previous, self._this = self._this, offset
        if raw.startswith(_BOX_ENDS):
            self._box_end = offset
        if b":::MLLOG" in raw:
            self._records.append(offset)
            return
        shape = read_shape(shape_of(raw))
        if not (shape.may_fail or self._streams or self._in_remark() or _OPENS.search(raw)):
            self._take_ordinary(shape, offset)
            return
        text = line(raw[:MOST_LINE].decode("utf-8", "replace"), MOST_LINE)
        bare = without_prefixes(text)
        name = stream_of(text, bare)
        is_file = _FILE.match(bare) is not None
        if is_file or "Traceback (most recent" in bare:
            self._open_traceback(offset)
            self._streams.setdefault(name, _Stream()).open(bare, is_file, offset)
            return
        stream = self._streams.get(name)
        if stream is not None and stream.takes_source(bare):
            return
        if stream is not None and bare.startswith(_CHAIN):
            stream.chain(is_open=True)
            return
        if stream is not None and stream.wants and self._continues(stream, text, bare, offset):
            return
        if self._is_advice(text, bare):
            self._take_ordinary(shape, offset)
            return
        self._last.append(offset)
        self._follow_report(bare)
        symptom = self._symptom(text, bare, offset, stream)
        if stream is not None and stream.in_traceback:
            symptom = self._end_traceback(stream, bare.strip(), symptom)
        else:
            if stream is not None and bare.strip():
                stream.chain(is_open=False)
            if symptom is None:
                self._ordinary += 1
                if shape.is_step:
                    self._steps.append(offset)
        if symptom is None:
            return
        before = self._symptoms[-1] if self._symptoms else None
        if before is not None and _is_explained(before, symptom):
            self._symptoms.pop()
            symptom = replace(symptom, episode=(*before.episode, (before.text, before.offset)))
        self._symptoms.append(symptom)
        has_stack = text.rstrip().endswith(_STACK_OPENS)
        if has_stack or symptom.raised:
            stream = self._streams.setdefault(name, _Stream())
            is_boxed = self._box_end == self._previous
            stream.expect("stack" if has_stack else "detail", symptom, is_boxed=is_boxed)

    def _in_remark(self) -> bool:
        return self._in_advice or self._is_open

    def _is_advice(self, text: str, bare: str) -> bool:
        """Return whether a line belongs to a remark: to a list of causes or remedies in general, or
        to a sentence that the line before has begun."""
        self._in_advice = opens_advice(bare) or (self._in_advice and is_advice_item(bare))
        is_rest = self._is_open and _REST.match(bare) is not None
        is_rest = is_rest and grade_of(text, bare) in (None, MENTION)
        self._is_open = (is_rest or is_advice(bare)) and _BROKEN.search(bare) is not None
        return self._in_advice or is_rest

    def _follow_report(self, bare: str) -> None:
        """Drop the other processes' ends in a launcher's report, if it names the first."""
        if bare.startswith(_OTHERS):
            self._report = len(self._symptoms)
        elif bare.startswith(_FIRST) and self._report is not None:
            others = self._symptoms[self._report :]
            self._symptoms[self._report :] = [seen for seen in others if seen.grade != END]
            self._report = None

    def _open_traceback(self, offset: int) -> None:
        """Demote the line before a traceback, if it only announces it."""
        last = self._symptoms[-1] if self._symptoms else None
        if last is None or last.offset < self._previous or last.grade == WRAPPER:
            return
        bare = without_prefixes(last.text).strip()
        if last.grade == END:
            return
        if bare.endswith(":") or (not last.raised and is_header(bare)):
            self._symptoms[-1] = replace(last, grade=WRAPPER)

    def _symptom(self, text: str, bare: str, offset: int, stream: _Stream | None) -> Symptom | None:
        if len(self._symptoms) >= MOST_SYMPTOMS:
            return None
        grade = grade_of(text, bare)
        raised = EXCEPTION.match(bare.strip()) is not None
        if grade is None and stream is not None and stream.in_traceback and raised:
            grade = PROGRAM
        if grade is None:
            return None
        quoted, rest = _cut(text)
        time = seconds_of(text)
        return Symptom(grade, quoted, offset, time, raised, self._ordinary, rest=rest)

    def _take_ordinary(self, shape: Shape, offset: int) -> None:
        self._last.append(offset)
        self._ordinary += 1
        if shape.is_step:
            self._steps.append(offset)

    def _continues(self, stream: _Stream, text: str, bare: str, offset: int) -> bool:
        """Add a line to the episode of the stream's last symptom, if it continues it."""
        last, symptom = stream.last, stream.continued(text, bare, offset)
        if symptom is not None and self._symptoms and self._symptoms[-1] is last:
            self._symptoms[-1] = symptom
            stream.follow(symptom)
        return symptom is not None

    def _end_traceback(self, stream: _Stream, bare: str, symptom: Symptom | None) -> Symptom | None:
        """Return the symptom of a traceback that ends with the line `bare`, if any."""
        chained = stream.close()
        has_message = ": " in bare
        if symptom is not None and not has_message and stream.source:
            # An exception without a message: only its source names the failure.
            quoted = f"{stream.source} ({bare})"[:MOST_QUOTED]
            symptom = replace(symptom, text=quoted, rest="")
        if symptom is not None and _OF_ENVIRONMENT.match(stream.frame[0]):
            symptom = replace(symptom, episode=(*symptom.episode, stream.frame))
        first = stream.first
        if chained and symptom is not None and first is not None and first in self._symptoms[-50:]:
            chosen, other = (first, symptom) if _is_deeper(first, symptom) else (symptom, first)
            also = (*other.episode, (other.text, other.offset), *chosen.episode)[-MOST_OF_EPISODE:]
            self._symptoms.remove(first)
            symptom = replace(chosen, episode=also)
        stream.keep(symptom)
        return symptom

    def result(self) -> list[Symptom]:
        """Return the symptoms that the program did not outlive."""
        went_on = [seen[0] for seen in (self._records, self._steps) if len(seen) == seen.maxlen]
        outlived = max(went_on, default=0)
        counted = [
            symptom for symptom in self._symptoms if _counts(symptom, outlived, self._last[0])
        ]
        ends = [symptom for symptom in counted if symptom.grade == PROGRAM]
        if ends:
            limit = ends[-1].before - OUTLIVED_LINES
            counted = [
                symptom
                for symptom in counted
                if symptom.raised or symptom.before > limit or _is_hard(symptom)
            ]
        counted = _without_killed_tasks(_without_late_warnings(counted))
        return _without_outer_ends(_without_announcements(counted))


def _is_wrapped(last: Symptom, text: str, bare: str) -> bool:
    """Return whether a line continues a message broken at the width of a box."""
    before = last.episode[-1][0] if last.episode else last.text
    is_rest = _BROKEN.search(before) is not None and _REST.match(bare) is not None
    return is_rest and grade_of(text, bare) in (None, MENTION)


def _cut(text: str) -> tuple[str, str]:
    text = text.strip()
    return text[:MOST_QUOTED], text[MOST_QUOTED:MOST_COMPARED]


def _is_deeper(first: Symptom, second: Symptom) -> bool:
    """Return whether the first exception of a chain names the failure, not the second."""
    if first.grade != second.grade:
        return first.grade < second.grade
    bare = without_prefixes(first.text).strip()
    if _LOOK_UP.match(bare):
        return False
    return ": " in bare or bare.startswith("assert ") or ": " not in without_prefixes(second.text)


def is_look_up(symptom: Symptom) -> bool:
    """Return whether a line is an exception that an earlier failure may have caused."""
    return _LOOK_UP.match(without_prefixes(symptom.text).strip()) is not None


def _is_explained(before: Symptom, after: Symptom) -> bool:
    """Return whether an exception without its traceback explains a look-up that failed just
    before."""
    return (
        before.raised
        and after.raised
        and before.before == after.before
        and before.grade == after.grade == PROGRAM
        and is_look_up(before)
        and not is_look_up(after)
        and stream_of(before.text, without_prefixes(before.text))
        == stream_of(after.text, without_prefixes(after.text))
    )


def _is_hard(symptom: Symptom) -> bool:
    return symptom.grade < PROGRAM or symptom.grade >= MENTION


def _counts(symptom: Symptom, outlived: int, last: int) -> bool:
    """Return whether the program neither outlived a symptom nor mentioned it in passing."""
    if symptom.grade == MENTION:
        return symptom.offset >= max(last, outlived)
    is_lasting = symptom.grade < PROGRAM or symptom.grade >= ECHO
    return is_lasting or symptom.offset >= outlived


def _without_late_warnings(candidates: list[Symptom]) -> list[Symptom]:
    """Return the symptoms without RCCL's warnings that follow a collective's time-out."""
    first = next(
        (symptom.offset for symptom in candidates if _TIMED_OUT.search(symptom.text)), None
    )
    if first is None:
        return candidates
    return [
        symptom
        for symptom in candidates
        if symptom.offset <= first or symptom.raised or "CCL WARN" not in symptom.text
    ]


def _without_killed_tasks(candidates: list[Symptom]) -> list[Symptom]:
    """Return the symptoms without the tasks that Slurm killed as it ended the step."""
    first = next((symptom.offset for symptom in candidates if ends_step(symptom.text)), None)
    if first is None:
        return candidates
    return [
        symptom
        for symptom in candidates
        if symptom.offset <= first or not is_killed_task(symptom.text)
    ]


def _without_announcements(candidates: list[Symptom]) -> list[Symptom]:
    """Demote lines that announce others to wrappers, if an exception follows."""
    last = max((symptom.offset for symptom in candidates if symptom.raised), default=-1)
    return [
        replace(symptom, grade=WRAPPER)
        if symptom.offset < last
        and _ANNOUNCES.search(symptom.text)
        and (symptom.raised or not symptom.cause)
        else symptom
        for symptom in candidates
    ]


def _without_outer_ends(candidates: list[Symptom]) -> list[Symptom]:
    """Return the symptoms without the ends that others made of an earlier failure."""
    outer = {symptom for symptom in candidates if is_outer_end(symptom.text)}
    if not outer:
        return candidates
    failures = [
        symptom.offset
        for symptom in candidates
        if PROGRAM <= symptom.grade <= SYMPTOM and symptom not in outer and not symptom.is_remark
    ]
    first = min(failures, default=None)
    return [
        symptom
        for symptom in candidates
        if first is None or symptom not in outer or symptom.offset < first
    ]
