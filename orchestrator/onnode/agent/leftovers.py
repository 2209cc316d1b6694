"""A job's files on a host outside its set: the folder that a node shares with its container, and
leftovers of our earlier jobs (such folders, files in shared memory, pipes, containers).

Only leftovers with our name whose job and holder have both ended are removed. Everything else is
reported and left alone: it can be another job of ours on the same host, or somebody else's work.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

from ..kernel.events import number
from ..kernel.records import write_bytes
from ..kernel.system import ENDED_STATES, ask, entries, first_line, job_state, process_start
from .node import EngineState, Node, Rows, listed, removal

_DAY_S = 86400

# ---- the folder of a node -----------------------------------------------------------------------


def open_channel(node: Node) -> bool:
    """Create the node's channel with `hold_pid` in it: this process, and its start.

    Return whether an earlier agent of this job left it: it was killed, and may have left its
    container. Raises OSError.
    """
    for folder in _abandoned(node)[0]:  # by killed holders: the next one on this host removes them
        try:
            remove_folder(folder)
        except OSError as error:
            node.log(f"{folder} of an ended job stays: {error.strerror}")
    was_killed = os.path.lexists(node.channel)
    if was_killed:
        remove_folder(node.channel, held=True)
    os.mkdir(node.channel, 0o700)
    me = f"{os.getpid()} {process_start(os.getpid())}\n"
    try:
        write_bytes(f"{node.channel}/hold_pid", me.encode(), sync=False)
    except OSError:  # full: without hold_pid nobody would take the folder for theirs
        with suppress(OSError):
            os.rmdir(node.channel)
        raise
    return was_killed


def close_channel(node: Node) -> None:
    """Remove the node's channel, if it is this process's. Raises OSError."""
    if first_line(f"{node.channel}/hold_pid").split()[:1] == [str(os.getpid())]:
        remove_folder(node.channel, held=True)


def _own(path: str) -> tuple[int, float]:
    """Return type and time of change of this user's own file, no link followed: in /tmp anybody can
    create any name.

    (0, 0) for everything else.
    """
    try:
        about = os.lstat(path)
    except OSError:
        return 0, 0
    return (stat.S_IFMT(about.st_mode), about.st_mtime) if about.st_uid == os.getuid() else (0, 0)


def holder(folder: str) -> tuple[str, bool]:
    """Return the holder in a channel's hold_pid, and whether that process lives: its id and, to
    detect a later one, its start."""
    words = first_line(f"{folder}/hold_pid").split() if _own(folder)[0] == stat.S_IFDIR else []
    pid = number(words[0], 9) if words else None
    start = process_start(pid) if pid else ""
    return " ".join(words), bool(start) and start == (words[1] if len(words) > 1 else start)


def remove_folder(path: str, *, held: bool = False) -> None:
    """Remove a folder with its content, that of a live holder only if `held`. A new folder of
    its name stays, and somebody else may be removing it, too. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not held and holder(f"/proc/self/fd/{fd}/.")[1]:
            return
        for _, folders, files, inside in os.fwalk(".", topdown=False, dir_fd=fd):
            for name in (*files, *folders):
                with suppress(FileNotFoundError):
                    is_folder = stat.S_ISDIR(os.lstat(name, dir_fd=inside).st_mode)
                    (os.rmdir if is_folder else os.unlink)(name, dir_fd=inside)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), os.lstat(path)):
                os.rmdir(path)
    finally:
        os.close(fd)


def _abandoned(node: Node) -> tuple[list[str], list[str]]:
    """Return the folders of killed holders, and the names of those whose holders live.

    This job's folders for other nodes of this host are left out: they can be recreated at any time.
    """
    gone, alive, own = [], [], os.path.basename(node.channel)
    for name in sorted(entries(node.channels)):
        if name.startswith(f"orch-{os.getuid()}-") and name != own:
            folder = f"{node.channels}/{name}"
            words, lives = holder(folder)
            alive += [name] if lives else []
            left = (
                not lives if words else _is_old(folder, stat.S_IFDIR)
            )  # killed before it wrote hold_pid
            if left and not name.startswith(own[: -len(node.name)]):
                gone.append(folder)
    return gone, [own, *alive]


def _is_old(path: str, kind: int) -> bool:
    """Return whether a file of this user and of this type has not changed for a day."""
    found, changed_s = _own(path)
    return found == kind and time.time() - changed_s > _DAY_S


# ---- the check ----------------------------------------------------------------------------------

_STUCK, _FOREIGN = "of an earlier job, and could not be removed", "not ours, left alone"
_IN_USE, _CLEANED = "in use by another job of ours", "removed what an ended job left"
_VERDICTS = {
    _STUCK: ("fail", "remove them by hand on this node"),
    _FOREIGN: ("warn", "ask whose they are; two jobs on one node disturb each other"),
    _IN_USE: ("warn", "two jobs on one node disturb each other: ask for whole nodes (exclusive)"),
}
Left = dict[str, list[str]]
"""Findings, in words, by their heading."""


def leftovers(node: Node, engine: EngineState) -> Rows:
    left: Left = defaultdict(list)
    for path in _files(node):
        _remove(path, left)
    has_engine = node.settings.engine != "none" and engine.state == "up"
    told = not has_engine or _containers(node, left)
    for text, (verdict, remedy) in _VERDICTS.items():
        if left[text]:
            yield "leftovers", verdict, f"{text}: {listed(left[text])}", remedy
            return
    if not told:
        remedy = f"look at it on this node: {' '.join(node.settings.engine_command)} ps"
        yield "leftovers", "warn", "the container engine does not list its containers", remedy
    else:
        cleaned = left[_CLEANED]
        text = f"{_CLEANED}: {listed(cleaned)}" if cleaned else "nothing left of earlier jobs"
        yield "leftovers", "pass", text, ""


def _files(node: Node) -> Iterator[str]:
    """Yield the files and folders of dead holders."""
    folders, alive = _abandoned(node)
    yield from folders
    for path in (
        f"{node.channels}/{name}"
        for name in sorted(entries(node.channels))
        if name.startswith("orch-pipe.")
    ):
        if _is_old(path, stat.S_IFIFO):  # a pipe of ours has a name for a moment only
            yield path
    # Files in shared memory are named like the folder of their holder, or with a dot and more
    # behind it.
    shm = f"{node.dev}/shm"
    for name in sorted(entries(shm)):
        lives = any(name == one or name.startswith(f"{one}.") for one in alive)
        if name.startswith(f"orch-{os.getuid()}-") and not lives and _own(f"{shm}/{name}")[0]:
            yield f"{shm}/{name}"


def _remove(path: str, left: Left) -> None:
    try:
        remove_folder(path) if _own(path)[0] == stat.S_IFDIR else os.unlink(path)
    except OSError:
        pass
    if not os.path.lexists(path):
        left[_CLEANED].append(os.path.basename(path))
    elif not holder(path)[1]:
        left[_STUCK].append(path)


def _ask_engine(node: Node, *words: str) -> tuple[int, str]:
    return _ask(node, [*node.settings.engine_command, *words])


def _ask(node: Node, argv: list[str]) -> tuple[int, str]:
    """Ask within a part of the check's time, so that some is left for the report."""
    return ask(argv, (node.settings.preflight_check_s + 1) // 2)


def _containers(node: Node, left: Left) -> bool:
    """Ask one question for all containers; a second only if some of others run. Return whether
    the engine answered."""
    label = "index .Labels" if node.settings.engine == "podman" else ".Label"
    labels = "|".join(f'{{{{{label} "orchestrator.{name}"}}}}' for name in ("job", "node"))
    status, rows = _ask_engine(
        node, "ps", "--all", "--format", f"{{{{.ID}}}}|{labels}|{{{{.Names}}}}|{{{{.State}}}}"
    )
    others = []
    for row in rows.splitlines() if status == 0 else ():
        identity, job, at, name, state = (row.split("|") + [""] * 5)[:5]
        if job in ("", "<no value>"):
            runs = state in ("", "running") or state.startswith(
                "Up "
            )  # a container without it has no GPU
            others += [identity] if identity and runs else []
        elif at == node.name and job != node.job_id:
            _container(node, left, identity, job, name)
    devices = (
        "{{.Name}} {{.HostConfig.Privileged}} {{range .HostConfig.Devices}}{{.PathOnHost}} {{end}}"
    )
    rows = _ask_engine(node, "inspect", "--format", devices, *others)[1] if others else ""
    for row in rows.splitlines():
        name, privileged, *paths = row.split() + ["", ""]
        # A privileged container has every device.
        if "/dev/kfd" in paths or (privileged == "true" and os.path.exists(f"{node.dev}/kfd")):
            left[_FOREIGN].append(f"container {name.lstrip('/')}")
    return status == 0


def _container(node: Node, left: Left, identity: str, job: str, name: str) -> None:
    """Identify a container by its folder /orch (/deep of a measurement) on the host: engines
    list the containers of all users."""
    mounts = (
        '{{range .Mounts}}{{if or (eq .Destination "/orch") (eq .Destination '
        '"/deep")}}{{.Source}}{{end}}{{end}}'
    )
    source = re.sub(
        "-deep$", "", _ask_engine(node, "inspect", "--format", mounts, identity)[1].strip()
    )
    if os.path.basename(source) != os.path.basename(node._replace(job_id=job).channel):
        left[_FOREIGN].append(f"container {name} of another user's job {job}")
    elif holder(source)[1] or not has_ended(node, job):
        left[_IN_USE].append(f"container {name}")
    else:
        *_, (status, _) = (_ask(node, words) for words in removal(node, identity))
        left[_STUCK if status else _CLEANED].append(f"container {name}")


def has_ended(node: Node, job: str) -> bool:
    """Return whether its scheduler reports its end, or has forgotten it as Slurm does after some
    minutes; without an answer it is alive."""
    state = job_state(job, (node.settings.preflight_check_s + 1) // 2)
    return not state or state.startswith(tuple(ENDED_STATES))
