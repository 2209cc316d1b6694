"""The script's output: a row per setting, or per reverted file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple

COLUMNS = ("knob", "wanted", "before", "after", "result", "need", "action", "time_ms", "target")
RESULTS = frozenset({"ok", "failed", "unsupported", "change"})


class SettingRow(NamedTuple):
    """`result` is ok, failed, unsupported, or change (`apply` would set it)."""

    knob: str
    wanted: str
    before: str
    after: str
    result: str
    need: str
    action: str
    time_ms: int
    target: str = ""

    @property
    def broken(self) -> bool:
        return self.result == "failed" and self.need == "required"

    def to_json(self) -> dict[str, object]:
        return self._asdict()


@dataclass(frozen=True, slots=True)
class HostState:
    """The output of `status`; `watchdog` is a pid or 0."""

    owners: tuple[dict[str, object], ...] = ()
    """name, state (alive, gone, over), pid or 0, until (Unix s) or 0."""
    remembered: tuple[dict[str, str], ...] = ()
    """knob, before, now, target."""
    watchdog: int = 0

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def parse_rows(lines: Iterable[str]) -> list[SettingRow]:
    """Return the rows of plan, apply, verify, revert, or a tunables.tsv.

    Other lines are skipped; missing cells of a torn line are empty.
    """
    rows = []
    for line in lines:
        cells = line.rstrip("\n").split("\t")
        if 5 <= len(cells) <= len(COLUMNS) and cells[4] in RESULTS:
            texts = cells + [""] * (len(COLUMNS) - len(cells))
            values = dict(zip(COLUMNS, texts, strict=True))
            time = values.pop("time_ms")
            time_ms = int(time) if time.isdecimal() and len(time) < 16 else 0
            rows.append(SettingRow(**values, time_ms=time_ms))
    return rows


def is_complete(lines: Iterable[str]) -> bool:
    """Return whether the last row of apply, revert or revert-all is there (revert: every value is
    back, or kept for another owner)."""
    return any(line.split("\t")[4:5] == ["complete"] for line in lines)


def parse_status(lines: Iterable[str]) -> HostState:
    owners: list[dict[str, object]] = []
    remembered: list[dict[str, str]] = []
    watchdog = 0
    for line in lines:
        match line.rstrip("\n").split("\t"):
            case ["owner", name, state, pid, until]:
                owners.append({"name": name, "state": state, "pid": int(pid), "until": int(until)})
            case ["remembered", knob, before, now, target]:
                remembered.append({"knob": knob, "before": before, "now": now, "target": target})
            case ["watchdog", pid]:
                watchdog = int(pid)
    return HostState(tuple(owners), tuple(remembered), watchdog)
