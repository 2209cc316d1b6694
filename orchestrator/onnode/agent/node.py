"""This node's identity, its folders, and its messages to the loop."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from ..kernel.events import UNIT, UNSHOWN
from ..kernel.files import PathLike, make_below
from ..kernel.jobs import NODENAME
from ..kernel.layout import Layout
from ..kernel.program import Program
from ..kernel.regular import read_bytes
from ..kernel.settings import Settings
from ..kernel.settings_file import declared, rehearsed
from ..kernel.system import Inventory, entries
from ..kernel.world import log, now_ms

HOST_NAME, HOST_S = "import socket; print(socket.getfqdn())", 20
"""Prints torchrun's host name; its limit in seconds, since it asks the name service."""
ENVIRONMENT_SHA256 = "ORCH_ENVIRONMENT_SHA256"
_NAME = ".name"
_RANDOM = re.compile("[0-9a-f]{32}")
_LINE_BYTES = 960  # a longer line can reach the loop cut (kernel/events.py)
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
"""Check, verdict (pass, warn, fail, skip), text, remedy. Verdict `same`: all nodes must have the
same text."""


class Node(NamedTuple):
    """A node of a job. `root`, `sys`, `proc`, `dev`, `run_dir`: replaced in rehearsals; `channels`:
    the parent of folders shared with containers.

    Processes (also of GPUs) and network interfaces are below `sys` and `proc`. Devices
    (GPUs, RDMA devices, disks) and the host are below `hardware_sys` and `hardware_proc`. A
    rehearsal that replaces `root` alone has other hardware, but the runs' real processes.
    """

    name: str
    settings: Settings
    program: Program
    layout: Layout
    job_id: str
    root: str
    sys: str
    proc: str
    dev: str
    run_dir: str
    channels: str

    @property
    def hardware_sys(self) -> str:
        return f"{self.root}/sys" if self.sys == "/sys" else self.sys

    @property
    def hardware_proc(self) -> str:
        return f"{self.root}/proc" if self.proc == "/proc" else self.proc

    def inventory(self) -> Inventory:
        """Return an inventory that reads anew: between two runs a driver can be reloaded and a GPU
        lost."""
        return Inventory(self.root, self.hardware_sys, self.hardware_proc)

    @property
    def folder(self) -> Path:
        return self.layout.node(self.name)

    @property
    def owner(self) -> str:
        """Job and node as one word: a host can serve several jobs and virtual nodes."""
        return "-".join(re.sub(r"[^A-Za-z0-9_.-]", "_", part) for part in (self.job_id, self.name))

    @property
    def channel(self) -> str:
        """The folder mounted into the container as /orch."""
        return f"{self.channels}/orch-{os.getuid()}-{self.owner}"

    @property
    def own_code(self) -> bool:
        """Runs use the bundle's code, on the host."""
        return self.settings.engine == "none" and not self.settings.code_source

    @property
    def code(self) -> str:
        return f"{self.channel}/code" if self.own_code else self.settings.code_source

    @property
    def results(self) -> str:
        """The folder for the container's /results. A run's files there are moved to its attempt."""
        if self.settings.results == "local":
            return f"{self.channel}/results"
        is_open = self.settings.engine == "none"
        return self.shared_results if is_open else hidden(self.shared_results)

    @property
    def shared_results(self) -> str:
        """The folder of `results` in the set; no Scratch."""
        return str(self.folder / "scratch")

    @property
    def mounted(self) -> set[str]:
        """Names of mounts in /results."""
        return self.mounted_by_site | self._in_results(self.settings.launch_shared)

    @property
    def mounted_by_site(self) -> set[str]:
        return self._in_results(mount.split("\t")[1] for mount in self.settings.site_mounts)

    def _in_results(self, places: Iterable[str]) -> set[str]:
        if self.settings.engine == "none":
            return set()
        return {place.split("/")[2] for place in places if place.startswith("/results/")}

    def run_variables(self) -> dict[str, str]:
        """Return the variables of environment.sh, not checked against its hash. Raises OSError."""
        return declared(read_bytes(self.layout.environment))

    def make_in_set(self, folder: PathLike) -> None:
        """Raises OSError, also if the set's folder is missing."""
        make_below(self.layout.root, folder)

    @property
    def hold_log(self) -> Path:
        return self.folder / "hold.log"

    def open_log(self) -> IO[bytes]:
        try:
            return open(self.hold_log, "ab")
        except OSError:
            return open(os.devnull, "ab")

    def last_words(self, lines: int = 1) -> str:
        try:
            with open(self.hold_log, "rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - 4096, 0))
                return " ".join(
                    file.read().decode("utf-8", "replace").split("\n")[-1 - lines :]
                ).strip()
        except OSError:
            return ""

    def say(self, word: str, *fields: str | int) -> None:
        say(self.name, word, *fields)

    def log(self, text: str) -> None:
        log(now_ms(), f"node {self.name}: {text}")


class EngineState(NamedTuple):
    """A node's engine. `state`: up, silent or none; `image_id`: "" if missing."""

    state: str
    image_id: str
    problem: str = ""

    @property
    def kind(self) -> str:
        return "engine" if self.state == "silent" else "image"


def removal(node: Node, container: str) -> list[list[str]]:
    """Return commands; the last shows success.

    With a single command podman would wait ten seconds if TERM is ignored, and fail if the monitor
    was killed with its client.
    """
    end = [["stop", "--time", "0", container]] if node.settings.engine == "podman" else []
    return [
        [*node.settings.engine_command, *arguments]
        for arguments in (*end, ["rm", "--force", container])
    ]


def own_name() -> str:
    get = os.environ.get
    return get("ORCH_NODE") or get(NODENAME) or os.uname().nodename.split(".")[0]


def this_node(program: Program, settings: Settings) -> Node:
    """Describe this node, from the step's environment. Raises KeyError without ORCH_SET_DIR."""
    name, environment = own_name(), os.environ
    return Node(
        name=name,
        settings=settings,
        program=program,
        layout=Layout(Path(environment["ORCH_SET_DIR"])),
        job_id=environment.get("ORCH_JOB_ID", "none"),
        root=rehearsed("ORCH_TUNABLES_ROOT", "", name),
        sys=rehearsed("ORCH_SYS_ROOT", "/sys", name),
        proc=rehearsed("ORCH_PROC_ROOT", "/proc", name),
        dev=rehearsed("ORCH_DEV_ROOT", "/dev", name),
        run_dir=rehearsed("ORCH_RUN_ROOT", "/run", name),
        channels=settings.orch_channels or "/tmp",
    )


def runs_environment(node: Node) -> bytes:
    """Return the environment as the loop wrote it. Raises OSError."""
    text, wanted = read_bytes(node.layout.environment), os.environ.get(ENVIRONMENT_SHA256, "")
    if wanted and hashlib.sha256(text).hexdigest() != wanted:
        path = os.fspath(node.layout.environment)
        raise OSError(0, "it was changed since the job wrote it, and is not used", path)
    return text


def lay(files: Mapping[str, bytes], folder: str) -> None:
    """Write files below a new folder of this user alone. Raises OSError."""
    os.mkdir(folder, 0o700)
    for name, content in files.items():
        path = f"{folder}/{name}"
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        mode = 0o700 if content.startswith(b"#!") else 0o600
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)


# ---- folders of a set that containers write ----

# The container's root is another user on many file servers (root_squash), so everybody may write
# there. Other users of the storage are kept out: they can enter the folder above, but not list it,
# and the name below it is random. It is the only entry of a folder that they cannot list.


def make_hidden(folder: str) -> str:
    """Return the place that every user may write, the same for all nodes. Raises OSError."""
    Path(folder).mkdir(exist_ok=True)
    os.chmod(folder, 0o711)
    if not _read(folder):
        _name_it(folder)
    place = hidden(folder)
    if place == folder:
        raise OSError(f"{folder}/{_NAME} names no folder")
    Path(place).mkdir(exist_ok=True)
    os.chmod(place, 0o1777)  # sticky: only this user can remove files of others
    return place


def hidden(folder: str) -> str:
    """Return the place that containers write; `folder` itself without a name."""
    name = _read(folder)
    return f"{folder}/{name}" if name else folder


def close_hidden(folder: str) -> None:
    """Only this user may write from now on."""
    place = hidden(folder)
    if place != folder and os.path.isdir(place):
        os.chmod(place, 0o755)


def keep_from_others(folder: str) -> None:
    """Let only this user, and a group that may write, enter: everybody may write containers'
    files."""
    mode = os.stat(folder).st_mode & 0o7770
    os.chmod(folder, mode if mode & 0o020 else mode & ~0o070)


def _read(folder: str) -> str:
    return next(filter(_RANDOM.fullmatch, entries(f"{folder}/{_NAME}")), "")


def _name_it(folder: str) -> None:
    """Write the name, unless another node was first."""
    new = f"{folder}/{_NAME}.{os.urandom(8).hex()}"
    os.mkdir(new, 0o700)
    os.mkdir(f"{new}/{os.urandom(16).hex()}")
    try:
        # Fails if another is there, as it is not empty. Some storage has no hard links.
        os.rename(new, f"{folder}/{_NAME}")
    except OSError:
        import shutil

        shutil.rmtree(new, ignore_errors=True)
        if not _read(folder):
            raise


# ---- messages ----


class Outbox:
    def __init__(self) -> None:
        self._kept: list[bytes] | None = None

    def put(self, line: bytes) -> None:
        if self._kept is not None:
            self._kept.append(line)
            return
        with contextlib.suppress(OSError):  # without a reader the input ends, too
            os.write(1, line)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Write the lines of a block together: TCP holds a second small packet until the receipt of
        the first, up to 40 ms."""
        self._kept = []
        try:
            yield
        finally:
            lines, self._kept = self._kept, None
            self.put(b"".join(lines))


OUTBOX = Outbox()


def say(node: str, word: str, *fields: str | int) -> None:
    """Write a line to the loop."""
    detail = UNIT.join(str(field).translate(UNSHOWN) for field in fields)
    OUTBOX.put(f"{word}\t{node}\t{detail}".encode("utf-8", "replace")[:_LINE_BYTES] + b"\n")


def host_environment() -> dict[str, str]:
    """For a run without a container."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


def shortened(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8, without half characters."""
    line = text.translate(UNSHOWN)
    raw = line.encode("utf-8", "replace")
    return line if len(raw) <= limit else raw[: limit - 3].decode("utf-8", "ignore") + "..."


def listed(texts: list[str], most: int = 6) -> str:
    """The first words, and the number of the others."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
