"""Notifications about a set: command, mail, webhook (docs/notify.md), each by a process
(notify.py)."""

from __future__ import annotations

import json
import sys
from typing import Any

from ..kernel.events import clean
from ..kernel.plural import count
from ..kernel.program import Program
from ..kernel.regular import parse
from ..kernel.settings import Settings
from ..policy.job_state import SetCounts, due
from ..set.folder import Folder
from .host import BatchHost, StartedProgram

SENDER = "lib/loop/notify.py"
GRACE_S = 2.0
"""A process this far beyond its limit is killed."""
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR")
_OUTWARD = ("http_proxy", "https_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir")
"""Of the webhook alone, in both cases: a proxy's address may have a password."""
_PREDICATES = {
    "complete": "is complete",
    "paused": "waits for `orchestrator resume`",
    "failed": "has failed",
    "score": "has enough runs for a score",
}


class Notices:
    """Removes the webhook's address from the environment."""

    def __init__(
        self,
        program: Program,
        settings: Settings,
        folder: Folder,
        job_id: str,
        world: BatchHost,
    ) -> None:
        self._sender, self._settings, self._folder = program.files[SENDER], settings, folder
        self._job_id, self._world = job_id, world
        name = settings.notify_webhook
        self._address = world.forget(name) if name else ""
        targets = {
            "command": settings.notify_command,
            "mail": settings.notify_mail,
            "webhook": self._address,
        }
        self._methods = [method for method, target in targets.items() if target]
        if name and not self._address:
            consequence = "so nothing goes to the webhook"
            world.log(f"notify: {name} is not set in the job's environment, {consequence}")
        self._required, self._before = 0, (0, 0)
        if self._methods:
            self._required = _required(program, settings, folder.record.nexp)
            self._before = self._counts()
        self._sent: list[str] = []
        self._running: dict[str, tuple[StartedProgram, float]] = {}
        """Channel -> process, and when to kill it (World.now)."""

    def check(self, state: str, reason: str = "") -> dict[str, Any] | None:
        """Return the decision and its facts, if notifications were due."""
        if not self._methods or not self._folder.is_mine:
            return None
        converged, missed = self._counts()
        counts = SetCounts(
            state, self._required, converged, missed, self._before, tuple(self._sent)
        )
        events = due(counts)
        self._sent += events
        for event in events:
            if event in self._settings.notify_events:
                self._send(event, counts, reason)
        return {"counts": vars(counts), "due": events} if events else None

    def finish(self) -> None:
        """Wait for all, within their limits."""
        for method in self._methods:
            self._await(method)

    def _await(self, method: str) -> None:
        if method not in self._running:
            return
        program, deadline = self._running.pop(method)
        if not program.finish(deadline - self._world.now()):
            self._world.log(f"notify: {method}: killed, as it had not ended in time")

    def _counts(self) -> tuple[int, int]:
        """Converged runs, and missed targets."""
        states = [self._folder.run_state(run) for run in range(1, self._folder.record.nexp + 1)]
        outcomes = [state.outcome for state in states if state is not None and state.done]
        return outcomes.count("success"), outcomes.count("not_converged")

    def _send(self, event: str, counts: SetCounts, reason: str) -> None:
        settings = self._settings
        notification = {
            "message": self._message(event, counts, clean(reason, 600)),
            "command": settings.notify_command,
            "mail": settings.notify_mail,
            "address": self._address,
            "seconds": settings.notify_seconds,
        }
        for method in self._methods:
            self._start(method, json.dumps(notification).encode())

    def _message(self, event: str, counts: SetCounts, reason: str) -> dict[str, Any]:
        record = self._folder.record
        done = counts.converged + counts.missed
        text = f"{record.set_id} {_PREDICATES[event]}: {done} of {count(record.nexp, 'run')} done"
        if counts.missed:
            text += f", {counts.missed} without reaching the target"
        if reason:
            text += f" ({reason})"
        return {
            "schema": 1,
            "event": event,
            "text": text,
            "set": str(self._folder.layout.root),
            "set_id": record.set_id,
            "system": record.system,
            "workload": record.workload,
            "job_id": self._job_id,
            "state": counts.state,
            "reason": reason,
            "nexp": record.nexp,
            "converged": counts.converged,
            "missed": counts.missed,
            "ledger": self._folder.head,
            "time_ms": self._world.wall_ms(),
        }

    def _start(self, method: str, notification: bytes) -> None:
        self._await(method)  # only a job's end comes so soon after a score
        argv = [sys.executable, "-I", "-S", "-B", "-c", self._sender.decode(), method]
        outward = _OUTWARD if method == "webhook" else ()
        env = {
            name: value
            for name, value in self._world.environment.items()
            if name in _KEPT or name.lower() in outward
        }
        try:
            sender = self._world.program(argv, notification, env)
        except OSError as error:
            self._world.log(f"notify: {method}: {error.strerror}")
            return
        deadline = self._world.now() + self._settings.notify_seconds + GRACE_S
        self._running[method] = sender, deadline


def _required(program: Program, settings: Settings, nexp: int) -> int:
    """By a workload's own rules, all runs are required for a score."""
    try:
        number = parse(program.files.get("workload.json", b"")).get("runs_required")
    except (ValueError, AttributeError):
        number = None
    required = number if isinstance(number, int) else 1
    return max(required, nexp) if settings.ruleset == "own" else required
