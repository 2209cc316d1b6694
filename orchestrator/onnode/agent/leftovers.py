"""What earlier jobs of ours left on a node: folders, files in shared memory, pipes, containers.

Only what carries our name and whose job and holder are both gone is removed. Everything else is told and left alone: it can
be another job of ours on the same host, or somebody else's work.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..events import number
from .node import Node, first_line, listed, process_start
from .tools import ask, entries, is_own_folder, which

if TYPE_CHECKING:
    from .checks import Rows
    from .container import EngineState

_ENDED = "COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL OUT_OF_MEMORY BOOT_FAIL DEADLINE".split()
DAY_S = 86400


def holder_lives(folder: str) -> bool:
    """Return whether the process that a channel belongs to is there: hold_pid has its id and, to tell a later one, its start."""
    words = first_line(f"{folder}/hold_pid").split() if is_own_folder(folder) else []
    pid = number(words[0], 9) if words else None
    start = process_start(pid) if pid else ""
    return bool(start) and start == (words[1] if len(words) > 1 else start)


def remove_folder(path: str) -> None:
    """Remove a folder with what is in it. What somebody makes anew under its name meanwhile stays. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for _, folders, files, inside in os.fwalk(".", topdown=False, follow_symlinks=False, dir_fd=fd):
            for name in files:
                os.unlink(name, dir_fd=inside)
            for name in folders:
                try:
                    os.rmdir(name, dir_fd=inside)
                except NotADirectoryError:  # a link to one
                    os.unlink(name, dir_fd=inside)
        if os.path.samestat(os.fstat(fd), os.lstat(path)):
            os.rmdir(path)
    finally:
        os.close(fd)


class _Sweep:
    def __init__(self, node: Node) -> None:
        self.node, self.prefix = node, f"orch-{os.getuid()}-"
        self.cleaned: list[str] = []
        self.in_use: list[str] = []
        self.foreign: list[str] = []
        self.stuck: list[str] = []
        self.untold = False

    def remove(self, path: str, remover: Callable[[str], None]) -> None:
        try:
            remover(path)
            self.cleaned.append(os.path.basename(path))
        except OSError:
            if os.path.lexists(path):
                self.stuck.append(path)

    def channels(self) -> list[str]:
        names = entries(self.node.channels)
        return [f"{self.node.channels}/{name}" for name in names if name.startswith(self.prefix)]

    def folders(self) -> None:
        """Those of holders that a kill left no time to remove."""
        for folder in self.channels():
            if folder != self.node.channel and is_own_folder(folder) and os.path.isfile(f"{folder}/hold_pid"):
                if first_line(f"{folder}/hold_pid") and not holder_lives(folder):
                    self.remove(folder, remove_folder)

    def memory(self) -> None:
        """Files of ours in shared memory are named like the folders of their holders, or so with a dot and more behind it."""
        shm, own = f"{self.node.dev}/shm", self.node.channel
        alive = [os.path.basename(one) for one in (own, *self.channels()) if one == own or holder_lives(one)]
        for name in entries(shm):
            if name.startswith(self.prefix) and not any(name == one or name.startswith(f"{one}.") for one in alive):
                path = f"{shm}/{name}"
                about = os.lstat(path)
                if about.st_uid == os.getuid():
                    self.remove(path, remove_folder if stat.S_ISDIR(about.st_mode) else os.unlink)

    def pipes(self) -> None:
        """Those of earlier versions that a kill left: they had a name for a moment only."""
        for name in entries(self.node.channels):
            path = f"{self.node.channels}/{name}"
            about = os.lstat(path) if name.startswith("orch-pipe.") else None
            if about and stat.S_ISFIFO(about.st_mode) and about.st_uid == os.getuid():
                if time.time() - about.st_mtime > DAY_S:
                    self.remove(path, os.unlink)

    # ---- containers

    def ask_engine(self, *words: str) -> tuple[int, str]:
        """Ask within a part of the check's time, so that there is some left to say so."""
        return ask([*self.node.settings.engine_command, *words], (self.node.settings.preflight_check_s + 1) // 2)

    def containers(self) -> None:
        """One question for all containers; a second one only where some of others run beside GPUs."""
        label = "index .Labels" if self.node.settings.engine == "podman" else ".Label"
        labels = [f'{{{{{label} "orchestrator.{name}"}}}}' for name in ("job", "node")]
        status, rows = self.ask_engine("ps", "--all", "--format", "|".join(["{{.ID}}", *labels, "{{.Names}}|{{.State}}"]))
        self.untold = status != 0
        others = []
        for row in rows.splitlines() if status == 0 else ():
            identity, job, at, name, state = (row.split("|") + [""] * 5)[:5]
            if not identity:
                continue
            if job in ("", "<no value>"):
                if state in ("", "running"):  # one that does not run has no GPU
                    others.append(identity)
            elif at == self.node.name and job != self.node.job_id:
                self.container(identity, job, name)
        if others:
            self.others(others)

    def container(self, identity: str, job: str, name: str) -> None:
        """Its folder /orch (/deep of a measurement) on the host says whose it is: engines list the containers of all users."""
        mounts = '{{range .Mounts}}{{if or (eq .Destination "/orch") (eq .Destination "/deep")}}{{.Source}}{{end}}{{end}}'
        source = self.ask_engine("inspect", "--format", mounts, identity)[1].strip()
        source = source[:-5] if source.endswith("-deep") else source
        if os.path.basename(source) != os.path.basename(replace(self.node, job_id=job).channel):
            self.foreign.append(f"container {name} of another user's job {job}")
        elif holder_lives(source) or self.job_lives(job):
            self.in_use.append(f"container {name}")
        else:
            removed = self.ask_engine("rm", "--force", identity)[0] == 0
            (self.cleaned if removed else self.stuck).append(f"container {name}")

    def others(self, identities: list[str]) -> None:
        devices = "{{.Name}} {{.HostConfig.Privileged}} {{range .HostConfig.Devices}}{{.PathOnHost}} {{end}}"
        for row in self.ask_engine("inspect", "--format", devices, *identities)[1].splitlines():
            name, privileged, *paths = row.split() + ["", ""]
            # A privileged one has every device.
            if "/dev/kfd" in paths or (privileged == "true" and os.path.exists(f"{self.node.dev}/kfd")):
                self.foreign.append(f"container {name.lstrip('/')}")

    def job_lives(self, job: str) -> bool:
        """Return whether its scheduler still knows it. Who cannot be asked is taken for alive."""
        if local := re.fullmatch(r"local-([0-9]{1,9})-([0-9]+)", job):
            return process_start(int(local[1])) == local[2]
        if not which("squeue"):
            return True
        seconds = (self.node.settings.preflight_check_s + 1) // 2
        status, text = ask(["squeue", "-h", "-j", re.split("[^0-9]", job)[0], "-o", "%T"], seconds, errors=True)
        # Slurm forgets a job some minutes after its end, and calls its id invalid then.
        if "Invalid job id" in text:
            return False
        return status != 0 or (bool(text.strip()) and not text.strip().startswith(tuple(_ENDED)))


def leftovers(node: Node, engine: EngineState) -> Rows:
    sweep = _Sweep(node)
    sweep.folders()
    sweep.memory()
    sweep.pipes()
    if node.settings.engine != "none" and engine.state == "up":
        sweep.containers()
    if sweep.stuck:
        text = f"of an earlier job, and could not be removed: {listed(sweep.stuck)}"
        yield "leftovers", "fail", text, "remove them by hand on this node"
    elif sweep.foreign:
        remedy = "ask whose they are; two jobs on one node disturb each other"
        yield "leftovers", "warn", f"not ours, left alone: {listed(sweep.foreign)}", remedy
    elif sweep.in_use:
        remedy = "two jobs on one node disturb each other: ask for whole nodes (exclusive)"
        yield "leftovers", "warn", f"in use by another job of ours: {listed(sweep.in_use)}", remedy
    elif sweep.untold:
        remedy = f"look at it on this node: {' '.join(node.settings.engine_command)} ps"
        yield "leftovers", "warn", "the container engine does not list its containers", remedy
    elif sweep.cleaned:
        yield "leftovers", "pass", f"removed what an ended job left: {listed(sweep.cleaned)}", ""
    else:
        yield "leftovers", "pass", "nothing left of earlier jobs", ""
