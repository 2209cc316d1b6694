"""The output of a profile's script as rows: one per setting and host, or one per reverted file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

COLUMNS = ("knob", "wanted", "before", "after", "result", "need", "action", "time_ms", "target")
RESULTS = frozenset({"ok", "failed", "unsupported", "change"})


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting of a host.

    `result` is ok, failed, unsupported (the host lacks it), or change (`apply` would set it).
    """

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
        """Return whether the row stops a run: a required setting does not hold."""
        return self.result == "failed" and self.need == "required"

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class HostState:
    """The `status` of a host. `watchdog` is the process that reverts settings, 0 without one."""

    owners: tuple[dict[str, object], ...] = ()
    """Members name, state (alive, gone, over), pid (0: no process), until (Unix s, 0: no end)."""
    remembered: tuple[dict[str, str], ...] = ()
    """Members knob, before, now, target."""
    watchdog: int = 0

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def parse_rows(lines: Iterable[str]) -> list[SettingRow]:
    """Return the rows in the output of plan, apply, verify or revert, or in a tunables.tsv.

    Other lines (a header, a message of the login shell) are skipped. Missing cells of a torn line
    are empty.
    """
    rows = []
    for line in lines:
        cells = line.rstrip("\n").split("\t")
        if 5 <= len(cells) <= len(COLUMNS) and cells[4] in RESULTS:
            *words, time, target = cells + [""] * (len(COLUMNS) - len(cells))
            knob, wanted, before, after, result, need, action = words
            time_ms = int(time) if time.isdecimal() and len(time) < 16 else 0
            rows.append(
                SettingRow(knob, wanted, before, after, result, need, action, time_ms, target)
            )
    return rows


def is_complete(lines: Iterable[str]) -> bool:
    """Return whether the output of apply, revert or revert-all has its last row.

    A revert prints that row only if every value is back, or kept for another owner.
    """
    return any(line.split("\t")[4:5] == ["complete"] for line in lines)


def parse_status(lines: Iterable[str]) -> HostState:
    """Parse the output of the script's `status`."""
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
