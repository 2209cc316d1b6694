"""Telling people how a set goes: a command, a mail, a webhook (docs/notify.md).

Each of them is a process of its own (notify.py), which gets the message and the secret address on its standard input. The
loop continues meanwhile; at its end it waits for the rest, for a time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ..kernel.events import clean
from ..kernel.files import Files
from ..kernel.regular import parse
from ..kernel.settings import Settings
from ..policy.job_state import SetCounts, due
from ..set.folder import Folder
from .host import BatchHost, Program

GRACE_S = 2.0
"""Beyond its own limit, before a process is ended by force."""
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR")
_WORDS = {
    "complete": "is complete",
    "paused": "waits for `orchestrator resume`",
    "failed": "has failed",
    "score": "has enough runs for a score",
}


class Notices:
    """Who is notified, and of what by this job. The webhook's address is taken out of the environment of all others."""

    def __init__(
        self, bundle: Path, settings: Settings, folder: Folder, job_id: str, world: BatchHost
    ) -> None:
        self._lib, self._settings, self._folder, self._job_id = (
            bundle / "lib",
            settings,
            folder,
            job_id,
        )
        self._world = world
        name = settings.notify_webhook
        self._address = world.forget(name) if name else ""
        wanted = {
            "command": settings.notify_command,
            "mail": settings.notify_mail,
            "webhook": self._address,
        }
        self._channels = [channel for channel, to in wanted.items() if to]
        if name and not self._address:
            world.log(
                f"notify: {name} is not set in the job's environment, so nothing goes to the webhook"
            )
        self._required = (
            _required(bundle, settings, folder.record.nexp, world.files) if self._channels else 0
        )
        self._before = self._counted() if self._channels else (0, 0)
        self._told: list[str] = []
        self._going: dict[str, tuple[Program, float]] = {}

    def check(self, state: str, reason: str = "") -> dict[str, Any] | None:
        """Tell what is due in a job of this `state`; return the decision and what it was made from, None where nothing is due."""
        if not self._channels or not self._folder.is_mine:
            return None
        converged, missed = self._counted()
        counts = SetCounts(
            state, self._required, converged, missed, self._before, tuple(self._told)
        )
        found = due(counts)
        self._told += found
        for event in found:
            if event in self._settings.notify_events:
                self._send(event, counts, reason)
        return {"counts": vars(counts), "due": found} if found else None

    def finish(self) -> None:
        """Wait until everybody is told, or their time is over."""
        for channel in self._channels:
            self._await(channel)

    def _await(self, channel: str) -> None:
        if channel not in self._going:
            return
        program, deadline = self._going.pop(channel)
        program.finish(deadline - self._world.now())

    def _counted(self) -> tuple[int, int]:
        """Return how many runs have converged, and how many have missed the target."""
        states = [self._folder.run_state(run) for run in range(1, self._folder.record.nexp + 1)]
        outcomes = [one.outcome for one in states if one is not None and one.done]
        return outcomes.count("success"), outcomes.count("not_converged")

    def _send(self, event: str, counts: SetCounts, reason: str) -> None:
        settings, record = self._settings, self._folder.record
        done = counts.converged + counts.missed
        text = f"{record.set_id} {_WORDS[event]}: {done} of {record.nexp} runs are done"
        text += f", {counts.missed} without reaching the target" if counts.missed else ""
        message = {
            "schema": 1,
            "event": event,
            "text": text + (f" ({clean(reason, 600)})" if reason else ""),
            "set": str(self._folder.layout.root),
            "set_id": record.set_id,
            "system": record.system,
            "workload": record.workload,
            "job_id": self._job_id,
            "state": counts.state,
            "reason": clean(reason, 600),
            "nexp": record.nexp,
            "converged": counts.converged,
            "missed": counts.missed,
            "time_ms": self._world.wall_ms(),
        }
        order = {
            "message": message,
            "command": settings.notify_command,
            "mail": settings.notify_mail,
            "address": self._address,
            "seconds": settings.notify_seconds,
        }
        for channel in self._channels:
            self._start(channel, json.dumps(order).encode())

    def _start(self, channel: str, order: bytes) -> None:
        self._await(
            channel
        )  # one after the other; only the end of a job can come so soon after a score
        argv = [sys.executable, "-I", "-S", "-B", str(self._lib), "notify", channel]
        env = {name: value for name, value in self._world.environment.items() if name in _KEPT}
        try:
            program = self._world.program(argv, order, env)
        except OSError as error:
            self._world.log(f"notify: {channel}: {error.strerror}")
            return
        self._going[channel] = program, self._world.now() + self._settings.notify_seconds + GRACE_S


def _required(bundle: Path, settings: Settings, nexp: int, files: Files) -> int:
    """Return how many runs a score needs; by a workload's own rules all that were planned."""
    try:
        told = parse(files.read_bytes(bundle / "workload.json")).get("runs_required")
    except (OSError, ValueError, AttributeError):
        told = None
    required = told if isinstance(told, int) else 1
    return max(required, nexp) if settings.ruleset == "own" else required
