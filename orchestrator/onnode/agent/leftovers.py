"""What earlier jobs of ours left on a node: folders, files in shared memory, pipes, containers.

Only what carries our name and whose job and holder are both gone is removed. Everything else is told and left alone: it can
be another job of ours on the same host, or somebody else's work.
"""

from __future__ import annotations

import os
import re
import stat
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..events import number
from .kernel import entries
from .node import EngineState, Node, first_line, listed, process_start
from .tools import ask

if TYPE_CHECKING:
    from .checks import Rows

_ENDED = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")
_DAY_S = 86400


@dataclass
class _Left:
    """What was found, in words."""

    cleaned: list[str] = field(default_factory=list)
    in_use: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)


def leftovers(node: Node, engine: EngineState) -> Rows:
    left, verdict, text, remedy = _Left(), "pass", "nothing left of earlier jobs", ""
    _files(node, left)
    has_engine = node.settings.engine != "none" and engine.state == "up"
    told = not has_engine or _containers(node, left)
    if left.stuck:
        verdict, text = "fail", f"of an earlier job, and could not be removed: {listed(left.stuck)}"
        remedy = "remove them by hand on this node"
    elif left.foreign:
        verdict, text = "warn", f"not ours, left alone: {listed(left.foreign)}"
        remedy = "ask whose they are; two jobs on one node disturb each other"
    elif left.in_use:
        verdict, text = "warn", f"in use by another job of ours: {listed(left.in_use)}"
        remedy = "two jobs on one node disturb each other: ask for whole nodes (exclusive)"
    elif not told:
        verdict, text = "warn", "the container engine does not list its containers"
        remedy = f"look at it on this node: {' '.join(node.settings.engine_command)} ps"
    elif left.cleaned:
        text = f"removed what an ended job left: {listed(left.cleaned)}"
    yield "leftovers", verdict, text, remedy


# ---- folders and files -----------------------------------------------------------------------------------------------


def _own(path: str) -> int:
    """Return the type of a file of this user, no link followed: in /tmp anybody can make something of a name. Else 0."""
    try:
        about = os.lstat(path)
    except OSError:
        return 0
    return stat.S_IFMT(about.st_mode) if about.st_uid == os.getuid() else 0


def holder(folder: str) -> tuple[str, bool]:
    """Return what hold_pid of a channel says, and whether that process lives: its id and, to tell a later one, its start."""
    words = first_line(f"{folder}/hold_pid").split() if _own(folder) == stat.S_IFDIR else []
    pid = number(words[0], 9) if words else None
    start = process_start(pid) if pid else ""
    return " ".join(words), bool(start) and start == (words[1] if len(words) > 1 else start)


def remove_folder(path: str) -> None:
    """Remove a folder with what is in it, unless its holder lives. What somebody makes anew under its name meanwhile stays.

    Raises OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if holder(f"/proc/self/fd/{fd}/.")[1]:
            return
        for _, folders, files, inside in os.fwalk(".", topdown=False, dir_fd=fd):
            for name in (*files, *folders):
                is_folder = stat.S_ISDIR(os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode)
                (os.rmdir if is_folder else os.unlink)(name, dir_fd=inside)
        if os.path.samestat(os.fstat(fd), os.lstat(path)):
            os.rmdir(path)
    finally:
        os.close(fd)


def _remove(path: str, left: _Left) -> None:
    try:
        remove_folder(path) if _own(path) == stat.S_IFDIR else os.unlink(path)
    except OSError:
        pass
    if not os.path.lexists(path):
        left.cleaned.append(os.path.basename(path))
    elif not holder(path)[1]:
        left.stuck.append(path)


def _files(node: Node, left: _Left) -> None:
    """Remove folders and shared memory of holders that a kill left no time to remove them.

    Not what this job has for other nodes of this host, which can make it anew at any time.
    """
    top, shm, prefix = node.channels, f"{node.dev}/shm", f"orch-{os.getuid()}-"
    alive, this_job = [os.path.basename(node.channel)], os.path.basename(node.channel)[: -len(node.name)]
    for name in sorted(entries(top)):
        path = f"{top}/{name}"
        if name.startswith(prefix) and path != node.channel:
            words, lives = holder(path)
            alive += [name] if lives else []
            if words and not lives and not name.startswith(this_job):
                _remove(path, left)
        # A pipe of ours has a name for a moment only.
        elif (
            name.startswith("orch-pipe.")
            and _own(path) == stat.S_IFIFO
            and time.time() - os.lstat(path).st_mtime > _DAY_S
        ):
            _remove(path, left)
    # Files in shared memory are named like the folder of their holder, or so with a dot and more behind it.
    for name in sorted(entries(shm)):
        lives = any(name == one or name.startswith(f"{one}.") for one in alive)
        if name.startswith(prefix) and not lives and _own(f"{shm}/{name}"):
            _remove(f"{shm}/{name}", left)


# ---- containers ------------------------------------------------------------------------------------------------------


def _ask_engine(node: Node, *words: str) -> tuple[int, str]:
    """Ask within a part of the check's time, so that there is some left to say so."""
    return ask([*node.settings.engine_command, *words], (node.settings.preflight_check_s + 1) // 2)


def _containers(node: Node, left: _Left) -> bool:
    """Ask one question for all containers; a second one only where some of others run. Return whether the engine told."""
    label = "index .Labels" if node.settings.engine == "podman" else ".Label"
    labels = "|".join(f'{{{{{label} "orchestrator.{name}"}}}}' for name in ("job", "node"))
    status, rows = _ask_engine(node, "ps", "--all", "--format", f"{{{{.ID}}}}|{labels}|{{{{.Names}}}}|{{{{.State}}}}")
    others = []
    for row in rows.splitlines() if status == 0 else ():
        identity, job, at, name, state = (row.split("|") + [""] * 5)[:5]
        if job in ("", "<no value>"):
            others += [identity] if identity and state in ("", "running") else []  # one that does not run has no GPU
        elif at == node.name and job != node.job_id:
            _container(node, left, identity, job, name)
    devices = "{{.Name}} {{.HostConfig.Privileged}} {{range .HostConfig.Devices}}{{.PathOnHost}} {{end}}"
    rows = _ask_engine(node, "inspect", "--format", devices, *others)[1] if others else ""
    for row in rows.splitlines():
        name, privileged, *paths = row.split() + ["", ""]
        # A privileged one has every device.
        if "/dev/kfd" in paths or (privileged == "true" and os.path.exists(f"{node.dev}/kfd")):
            left.foreign.append(f"container {name.lstrip('/')}")
    return status == 0


def _container(node: Node, left: _Left, identity: str, job: str, name: str) -> None:
    """Its folder /orch (/deep of a measurement) on the host says whose it is: engines list the containers of all users."""
    mounts = '{{range .Mounts}}{{if or (eq .Destination "/orch") (eq .Destination "/deep")}}{{.Source}}{{end}}{{end}}'
    source = re.sub("-deep$", "", _ask_engine(node, "inspect", "--format", mounts, identity)[1].strip())
    if os.path.basename(source) != os.path.basename(node._replace(job_id=job).channel):
        left.foreign.append(f"container {name} of another user's job {job}")
    elif holder(source)[1] or _job_lives(node, job):
        left.in_use.append(f"container {name}")
    else:
        removed = _ask_engine(node, "rm", "--force", identity)[0] == 0
        (left.cleaned if removed else left.stuck).append(f"container {name}")


def _job_lives(node: Node, job: str) -> bool:
    """Return whether its scheduler still knows it. Who cannot be asked is taken for alive."""
    if local := re.fullmatch(r"local-([0-9]{1,9})-([0-9]+)", job):
        return process_start(int(local[1])) == local[2]
    argv = ["squeue", "-h", "-j", re.split("[^0-9]", job)[0], "-o", "%T"]
    status, text = ask(argv, (node.settings.preflight_check_s + 1) // 2, errors=True)
    # Slurm forgets a job some minutes after its end, and calls its id invalid then.
    ended = text.strip() == "" or text.strip().startswith(_ENDED)
    return "Invalid job id" not in text and (status != 0 or not ended)
