"""What holds nodes: a job that works on a set, or a preflight that only asks."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..events import EventLog
from ..layout import Layout
from ..settings import Settings
from .nodes import Local, Reactor, Slurm


def log(text: str) -> None:
    """Write one line with a time stamp to standard error. Where that cannot be written (a full disk), nothing stops."""
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} orchestrator: {text}\n"
    with suppress(OSError):
        os.write(2, line.encode("utf-8", "backslashreplace"))


class Work:
    """What a group of nodes needs of who holds it. A job keeps records beside it: `write`, `put_aside`."""

    has_spares = False
    run = attempt = 0
    """What is going on; 0 before the first."""
    image = ""
    """The identity of the image that the nodes have."""
    events: EventLog
    scheduler: Slurm | Local
    job_id: str
    log = staticmethod(log)

    def __init__(self, bundle: Path, settings: Settings, layout: Layout, environment: dict[str, str]) -> None:
        self.bundle, self.settings, self.layout, self.environment = bundle, settings, layout, environment
        self.reactor = Reactor(self.look_at_signals)
        self.ending = ""
        """Why nothing more is begun; "" as long as it is."""
        self.warnings: list[str] = []
        self.aside: list[dict[str, Any]] = []
        """Nodes that are not used any more, as the job's record has them."""

    def look_at_signals(self) -> None:
        """Take in signals."""
        self.ending = "cancelled"

    def warn(self, text: str) -> None:
        """Keep a warning, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def write(self, state: str = "", reason: str = "") -> None:
        """Write the own state."""

    def put_aside(self, node: str, kind: str, reason: str) -> None:
        """Put on record that a node is not used any more."""

    def append_to(self, path: Path, text: str) -> None:
        """Add a line to a log. One that cannot be written stops nothing."""
        try:
            with open(path, "a", encoding="utf-8", errors="replace") as file:
                file.write(text + "\n")
        except OSError:
            pass

    def group_record(self) -> dict[str, Any]:
        """Return the settings as the event file has them: what decisions are made from, without the site's folders."""
        return {**vars(self.settings), "data": {}}
