"""Silence of a set's runs, by their loop's rule, and of the loop itself.

The rule is onnode/policy/hang.py. The loop records its result about once a minute (`pulse`,
docs/events.md) and ends a hanging run itself. Event files of older versions have no pulses: nothing
is reported then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.evidence.events import event_files, parse_event
from orchestrator.evidence.progress import age_s, read_end
from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.kernel.events import Event, Pulse, number
from orchestrator.onnode.kernel.walk import FilesInside
from orchestrator.onnode.policy.hang import Silence
from orchestrator.onnode.policy.reports import line

CAUSES = ("loop_silent", "hung", "silent")
"""As in docs/explain.md, the most urgent first: a stuck loop never ends a hung run."""
LOOP_SILENT_S = 300.0
"""Five pulses: the loop records one a minute, and NFS may show it a minute late."""
TAIL_BYTES = 256 * 1024
"""Read at the end of an event file. A pulse has 60 bytes; a running run's nodes send little."""


def recorded(event: Event) -> tuple[str, Silence] | None:
    """Return attempt (`3.1`) and silence of a `pulse` event; None if damaged."""
    attempt, *parts = event.parts
    numbers = [value for part in parts if (value := number(part)) is not None and value >= 0]
    if len(parts) != 6 or len(numbers) != 6:
        return None
    limit_ms, unheard, *pulse = numbers
    return attempt, Silence(Pulse(*pulse), limit_ms, unheard)


@dataclass(frozen=True, slots=True)
class RunSilence:
    """The loop's last record of a watched run."""

    run: int
    attempt: int
    file: Path
    """The event file of the run's nodes."""
    silence: Silence | None = None
    hung: str = ""
    """Why the loop is ending the run, or ""."""
    odd: str = ""
    """The node that stands out in the silence, and its activity."""
    loop_s: float = 0.0
    """Seconds since the loop's last write."""
    recorded_s: float = 0.0
    """Seconds since the loop's last record of the silence."""

    @property
    def record(self) -> str:
        """Return the age and text of the loop's last record, or ""."""
        if self.silence is None:
            return ""
        return f"{_span(self.recorded_s)} ago: {self.silence.text}"

    @property
    def cause(self) -> str:
        """Return the first of CAUSES that applies, or ""."""
        if self.loop_s > LOOP_SILENT_S:
            return "loop_silent"
        if self.hung:
            return "hung"
        is_silent = self.silence is not None and (self.silence.is_long or self.odd)
        return "silent" if is_silent else ""

    @property
    def sentence(self) -> str:
        """Return the cause in words for people, or ""."""
        if self.cause == "hung":
            return f"run {self.run}: {self.hung}; the loop is ending it"
        if self.cause == "loop_silent":
            return (
                f"the loop is silent: it has recorded nothing for {_span(self.loop_s)} while run "
                f"{self.run} is running"
            )
        if self.cause == "silent" and self.silence is not None:
            quiet, limit = _span(self.silence.quiet_s), _span(self.silence.limit_s)
            odd = f"; {self.odd}" if self.odd else ""
            return f"run {self.run}: silent for {quiet}; ended as hung after {limit}{odd}"
        return ""


def _span(seconds: float) -> str:
    """Return whole minutes, or seconds below two of them: `7 min`, `90 s`. Rounded down."""
    return f"{seconds // 60:.0f} min" if seconds >= 120 else f"{math.floor(seconds)} s"


def most_urgent(runs: Iterable[RunSilence | None]) -> RunSilence | None:
    """Return the run that needs attention most, if any."""
    ill = (run for run in runs if run is not None and run.cause)
    return min(ill, key=lambda run: CAUSES.index(run.cause), default=None)


def read_silences(files: SetEvidence) -> dict[tuple[int, int], RunSilence]:
    """Return the last job's records of its active runs, by (run, attempt)."""
    if files.job is None:
        return {}
    paths = event_files(files, files.job.job_id)
    silences = (_running(path, files.findings.inside) for path in paths)
    return {(run.run, run.attempt): run for run in silences if run is not None}


def _running(path: Path, files: FilesInside) -> RunSilence | None:
    """Return the active run at the end of an event file; None without one, or without pulses."""
    running, silence, hung, odd, wrote_ms, has_pulses = "", None, "", "", 0, False
    before_ms = pulse_ms = 0
    for event in _last_events(path, files):
        wrote_ms = event.ms
        if event.source != "loop":
            continue
        if event.word == "go":
            running, silence, hung, odd = event.detail, None, "", ""
        elif event.word == "pulse" and (pulse := recorded(event)) is not None:
            running, silence = pulse
            pulse_ms = event.ms
            has_pulses = True
            if silence.pulse.quiet_ms < before_ms:
                odd = ""  # output has come since
            before_ms = silence.pulse.quiet_ms
        elif event.word == "look":
            odd = _odd(event)
        elif event.word == "hung":
            hung = line(str(event.data().get("reason", "")), 300)
        elif event.word == "stop":
            silence = None
        elif event.word in ("outcome", "begin"):
            running, silence, hung, odd = "", None, "", ""
    first, _, second = running.partition(".")
    run, attempt = number(first, 6), number(second, 6)
    if not has_pulses or run is None or attempt is None:
        return None
    # The clock of the batch host or of the storage may be wrong: the loop is silent by both.
    loop_s = min(max(0.0, time.time() - wrote_ms / 1000), age_s(path))
    recorded_s = loop_s + (wrote_ms - pulse_ms) / 1000
    return RunSilence(run, attempt, path, silence, hung, odd, loop_s, recorded_s)


def _odd(event: Event) -> str:
    """Return `node n3 (rank 2): <activity>` of a `look` event, or ""."""
    about = event.data()
    ranks, activity = about.get("ranks"), line(str(about.get("activity", "")), 200)
    if not event.node or not isinstance(ranks, list) or event.node not in ranks:
        return ""
    return f"node {event.node} (rank {ranks.index(event.node)}): {activity}"


def _last_events(path: Path, files: FilesInside) -> list[Event]:
    lines = read_end(path, files).splitlines(keepends=True)
    return [event for line in lines if (event := parse_event(line)) is not None]
