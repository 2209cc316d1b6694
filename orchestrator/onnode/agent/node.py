"""The identity of this node, its folders, and its messages to the loop."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from ..kernel.events import UNIT
from ..kernel.layout import Layout
from ..kernel.settings import Settings
from ..kernel.settings_file import rehearsed

HOST_NAME, HOST_S = "import socket; print(socket.getfqdn())", 20
"""A program that prints torchrun's host name, and its limit in seconds: it asks the name
service."""
_LINE_BYTES = 960  # srun keeps a line whole only up to about a kilobyte
_CONTROL = dict.fromkeys((*range(32), 127, *range(128, 160)), " ")
_KEPT = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TMPDIR",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
)


Rows = Iterator[tuple[str, str, str, str]]
"""Check, verdict (pass, warn, fail, skip), text, remedy. Verdict `same`: text is a value that
must be equal on all nodes."""


class Node(NamedTuple):
    """One node of a job. `root` and the others replace /, /sys, /proc, /dev, /run in rehearsals (""
    and "/sys" otherwise).

    `channels` is the folder for the folders that nodes share with their containers.
    """

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

    @property
    def folder(self) -> Path:
        """Return nodes/<node>/ of the set."""
        return self.layout.node(self.name)

    @property
    def owner(self) -> str:
        """Return job and node in one word: one host and one engine can serve several jobs and
        several virtual nodes."""
        return "-".join(re.sub(r"[^A-Za-z0-9_.-]", "_", one) for one in (self.job_id, self.name))

    @property
    def channel(self) -> str:
        """Return the folder of this node that is also mounted into the container as /orch."""
        return f"{self.channels}/orch-{os.getuid()}-{self.owner}"

    @property
    def results(self) -> str:
        """Return the folder that is /results of the running container. A run's files there are
        moved to its attempt."""
        return (
            f"{self.channel}/results"
            if self.settings.results == "local"
            else str(self.folder / "scratch")
        )

    @property
    def hold_log(self) -> Path:
        return self.folder / "hold.log"

    def open_log(self) -> IO[bytes]:
        """Return hold.log, open to append to; unwritable text is lost."""
        try:
            return open(self.hold_log, "ab")
        except OSError:
            return open(os.devnull, "ab")

    def last_words(self, lines: int = 1) -> str:
        """Return the last lines of hold.log as one."""
        try:
            with open(self.hold_log, "rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - 4096, 0))
                return " ".join(
                    file.read().decode("utf-8", "replace").split("\n")[-1 - lines :]
                ).strip()
        except OSError:
            return ""

    def say(self, word: str, *fields: str | int) -> None:
        """Write one line to the loop: word, node, fields."""
        say(self.name, word, *fields)

    def log(self, text: str) -> None:
        """Write one line with a time stamp to standard error."""
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} orchestrator: node {self.name}: {text}\n"
        _write(2, line.encode("utf-8", "backslashreplace"))


class EngineState(NamedTuple):
    """The engine of a node. `state`: up, silent or none; `image_id` "" if the image is missing;
    `problem`: its error."""

    state: str
    image_id: str
    problem: str = ""

    @property
    def kind(self) -> str:
        """Return the protocol's word for the problem."""
        return "engine" if self.state == "silent" else "image"


def removal(node: Node, container: str) -> list[list[str]]:
    """Return the commands that end and remove a container, one after the other; the last status
    tells success.

    Asked to do both at once, podman waits ten seconds for one that ignores TERM, and fails for one
    whose monitor was killed with its client.
    """
    end = [["stop", "--time", "0", container]] if node.settings.engine == "podman" else []
    return [
        [*node.settings.engine_command, *words] for words in (*end, ["rm", "--force", container])
    ]


def own_name() -> str:
    return (
        os.environ.get("ORCH_NODE")
        or os.environ.get("SLURMD_NODENAME")
        or os.uname().nodename.split(".")[0]
    )


def this_node(bundle: Path, settings: Settings) -> Node:
    """Return this node, from the environment of the loop's step. Raises KeyError without
    ORCH_SET_DIR."""
    name, environment = own_name(), os.environ
    roots = {
        one: rehearsed(f"ORCH_{one.upper()}_ROOT", f"/{one}", name)
        for one in ("sys", "proc", "dev", "run")
    }
    return Node(
        name=name,
        settings=settings,
        bundle=bundle,
        layout=Layout(Path(environment["ORCH_SET_DIR"])),
        job_id=environment.get("ORCH_JOB_ID", "none"),
        root=rehearsed("ORCH_TUNABLES_ROOT", "", name),
        channels=settings.orch_channels or "/tmp",
        **roots,
    )


def say(node: str, word: str, *fields: str | int) -> None:
    """Write one line to the loop: word, node, fields."""
    detail = UNIT.join(str(one).translate(_CONTROL) for one in fields)
    _write(1, f"{word}\t{node}\t{detail}".encode("utf-8", "replace")[:_LINE_BYTES] + b"\n")


def _write(fd: int, line: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody reads it; the input ends, too
        os.write(fd, line)


def host_environment() -> dict[str, str]:
    """Return the part of this process's environment for a run without a container."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


def shortened(text: str, limit: int) -> str:
    """Return `text` as one line of at most `limit` bytes of UTF-8, no character cut in half."""
    line = text.translate(_CONTROL)
    raw = line.encode("utf-8", "replace")
    return line if len(raw) <= limit else raw[: limit - 3].decode("utf-8", "ignore") + "..."


def listed(words: list[str], most: int = 6) -> str:
    """Return the first words with commas between them, and how many more there are."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")
