"""Who this node is, where it looks, and how it speaks to the loop."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from ..events import UNIT, now_ms
from ..layout import Layout
from ..settings import Settings, rehearsed

LINE_BYTES = 960
"""srun keeps a line whole only up to about a kilobyte."""
_CONTROL = dict.fromkeys((*range(32), 127, *range(128, 160)), " ")


def shortened(text: str, limit: int) -> str:
    """Return `text` as one line of at most `limit` bytes of UTF-8, no character cut in half."""
    line = text.translate(_CONTROL)
    raw = line.encode("utf-8", "replace")
    return line if len(raw) <= limit else raw[: limit - 3].decode("utf-8", "ignore") + "..."


def listed(words: list[str], most: int = 6) -> str:
    """Return the first words with commas between them, and how many more there are."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def first_line(path: str | os.PathLike[str]) -> str:
    """Return the first line of a small file without blanks around it; "" when there is none, or it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.readline(4096).decode("utf-8", "replace").strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class Node:
    """One node of a job. `root` and the others stand for /, /sys, /proc, /dev, /run in rehearsals ("" and "/sys" otherwise)."""

    name: str
    settings: Settings
    bundle: Path
    layout: Layout
    job_id: str
    root: str
    sys: str
    proc: str
    dev: str
    run: str
    channels: str
    """Folder for the folder that this node shares with its container."""

    @property
    def folder(self) -> Path:
        """nodes/<node>/ of the set."""
        return self.layout.node(self.name)

    @property
    def owner(self) -> str:
        """Job and node in one word: one host and one engine can serve several jobs and several virtual nodes."""
        return f"{_word(self.job_id)}-{_word(self.name)}"

    @property
    def channel(self) -> str:
        """Folder of this node that is also mounted into the container as /orch."""
        return f"{self.channels}/orch-{os.getuid()}-{self.owner}"

    @property
    def hold_log(self) -> Path:
        return self.folder / "hold.log"

    def say(self, word: str, *fields: str | int) -> None:
        """Write one line to the loop: word, node, fields."""
        detail = UNIT.join(str(one).translate(_CONTROL) for one in fields)
        line = f"{word}\t{self.name}\t{detail}".encode("utf-8", "replace")[:LINE_BYTES] + b"\n"
        try:
            os.write(1, line)
        except OSError:  # the loop is gone; the end of the input says so, too
            pass

    def log(self, text: str) -> None:
        """Write one line with a time stamp to standard error."""
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} orchestrator: node {self.name}: {text}\n"
        try:
            os.write(2, line.encode("utf-8", "backslashreplace"))
        except OSError:  # nobody reads it any more
            pass


def this_node(bundle: Path, settings: Settings) -> Node:
    """Return this node, from the environment that the loop gave the step. Raises KeyError without ORCH_SET_DIR."""
    name = os.environ.get("ORCH_NODE") or os.environ.get("SLURMD_NODENAME") or os.uname().nodename.split(".")[0]
    root = rehearsed("ORCH_TUNABLES_ROOT", "", name)
    return Node(
        name=name,
        settings=settings,
        bundle=bundle,
        layout=Layout(Path(os.environ["ORCH_SET_DIR"])),
        job_id=os.environ.get("ORCH_JOB_ID", "none"),
        root=root,
        sys=rehearsed("ORCH_SYS_ROOT", "/sys", name),
        proc=rehearsed("ORCH_PROC_ROOT", "/proc", name),
        dev=rehearsed("ORCH_DEV_ROOT", "/dev", name),
        run=rehearsed("ORCH_RUN_ROOT", "/run", name),
        channels=os.environ.get("ORCH_CHANNELS", "/tmp"),
    )


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)


def process_start(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot, which tells a recycled pid; "" when it is gone.

    A process that has ended and that nobody has waited for is gone.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().decode("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


__all__ = ["LINE_BYTES", "Node", "first_line", "listed", "now_ms", "process_start", "shortened", "this_node"]
