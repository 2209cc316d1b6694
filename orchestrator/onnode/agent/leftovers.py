"""A job's files on a host outside its set: the channel to its container, and leftovers of earlier
jobs (channels, shared memory, pipes, containers).

This user's leftovers are removed after the end of job and holder. Everything else is only reported:
it can be another job, or another person's work.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

from ..kernel.events import number
from ..kernel.jobs import ENDED_STATES, job_state
from ..kernel.records import write_bytes
from ..kernel.system import ask, entries, first_line, process_start
from .node import EngineState, Node, Rows, listed, removal

_DAY_S = 86400
_NEW = ".new."
_HOLDER_IN_NAME = re.compile(rf"{re.escape(_NEW)}([0-9]+)\.([0-9]*)$")
"""Until the folder has hold_pid."""
_AGAIN_S = 0.02, 0.1, 0.5, 1.0
"""Pauses if a folder is not empty: the last processes of an ended container still write there."""

# ---- the folder of a node -----------------------------------------------------------------------


def open_channel(node: Node) -> bool:
    """Create the node's channel. Raises OSError.

    Return whether a killed agent of this job left a channel, perhaps with a container.
    """
    # Channels of killed holders are removed by the next process on the host.
    for folder in _abandoned(node)[0]:
        try:
            remove_folder(folder)
        except OSError as error:
            node.log(f"{folder} of an ended job stays: {error.strerror}")
    was_killed = os.path.lexists(node.channel)
    if was_killed:
        remove_folder(node.channel, held=True)
    make_folder(node.channel)
    return was_killed


def holds_channel(node: Node) -> bool:
    return first_line(f"{node.channel}/hold_pid").split()[:1] == [str(os.getpid())]


def close_channel(node: Node) -> None:
    """Raises OSError."""
    if holds_channel(node):
        remove_folder(node.channel, held=True)


def _own(path: str) -> tuple[int, float]:
    """Type and time of change of this user's own file; (0, 0) for anything else, links included:
    anybody can create any name in /tmp."""
    try:
        about = os.lstat(path)
    except OSError:
        return 0, 0
    return (stat.S_IFMT(about.st_mode), about.st_mtime) if about.st_uid == os.getuid() else (0, 0)


def make_folder(path: str) -> None:
    """Create this user's folder with `hold_pid`: this process and its start. After a kill at any
    moment, its holder is known. Raises OSError."""
    me = str(os.getpid()), process_start(os.getpid())
    new = f"{path}{_NEW}{'.'.join(me)}"
    os.mkdir(new, 0o700)
    try:
        write_bytes(f"{new}/hold_pid", f"{' '.join(me)}\n".encode(), sync=False)
        os.rename(new, path)
    except OSError:  # full
        with suppress(OSError):
            remove_folder(new, held=True)
        raise


def holder(folder: str, name: str = "") -> tuple[str, bool]:
    """Return the process in hold_pid, or in the folder's name, and whether it lives, by its id and
    start."""
    fields = first_line(f"{folder}/hold_pid").split() if _own(folder)[0] == stat.S_IFDIR else []
    if not fields and (named := _HOLDER_IN_NAME.search(name or folder)):
        fields = [*filter(None, named.groups())]
    pid = number(fields[0], 9) if fields else None
    start = process_start(pid) if pid else ""
    return " ".join(fields), bool(start) and start == (fields[1] if len(fields) > 1 else start)


def remove_folder(path: str, *, held: bool = False) -> None:
    """Remove a folder; a live holder's only if `held`. Others may remove it, too. Raises
    OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not held and holder(f"/proc/self/fd/{fd}/.", path)[1]:
            return
        for pause_s in _AGAIN_S:
            try:
                return _remove_tree(path, fd)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                time.sleep(pause_s)
        _remove_tree(path, fd)
    finally:
        os.close(fd)


def _remove_tree(path: str, fd: int) -> None:
    """`fd`: the open folder. Raises OSError.

    hold_pid goes last: after a kill, the rest of the folder still names its holder, or is empty.
    """
    for place, folders, files, inside in os.fwalk(".", topdown=False, dir_fd=fd):
        for name in (*files, *folders):
            if (place, name) == (".", "hold_pid"):
                continue
            with suppress(FileNotFoundError):
                is_folder = stat.S_ISDIR(os.lstat(name, dir_fd=inside).st_mode)
                (os.rmdir if is_folder else os.unlink)(name, dir_fd=inside)
    if set(os.listdir(fd)) - {"hold_pid"}:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
    with suppress(FileNotFoundError):
        os.unlink("hold_pid", dir_fd=fd)
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(fd), os.lstat(path)):
            os.rmdir(path)


def _abandoned(node: Node) -> tuple[list[str], list[str]]:
    """Return folders of killed holders, and names of live holders.

    Leave out this job's folders for other nodes of this host: they can return at any time.
    """
    gone, alive, channel = [], [], os.path.basename(node.channel)
    for name in sorted(entries(node.channels)):
        if name.startswith(f"orch-{os.getuid()}-") and name != channel:
            folder = f"{node.channels}/{name}"
            process, lives = holder(folder)
            alive += [name] if lives else []
            left = not lives if process else _is_empty(folder) or is_old(folder)
            is_of_node = name.startswith(f"{channel}{_NEW}")
            if left and (is_of_node or not name.startswith(channel[: -len(node.name)])):
                gone.append(folder)
    return gone, [channel, *alive]


def _is_empty(folder: str) -> bool:
    """This user's folder is empty: no holder makes or uses such a folder."""
    return _own(folder)[0] == stat.S_IFDIR and entries(folder) == []


def is_old(path: str, kind: int = stat.S_IFDIR) -> bool:
    """This user's file of this type is unchanged for a day."""
    file_type, changed_s = _own(path)
    return file_type == kind and time.time() - changed_s > _DAY_S


# ---- the check ----------------------------------------------------------------------------------

_STUCK, _FOREIGN = "of an earlier job, and could not be removed", "of somebody else, left alone"
_IN_USE, _CLEANED = "in use by another job of orchestrator", "removed what an ended job left"
_VERDICTS = {
    _STUCK: ("fail", "remove them by hand on this node"),
    _FOREIGN: ("warn", "ask whose they are; two jobs on one node disturb each other"),
    _IN_USE: ("warn", "two jobs on one node disturb each other: ask for whole nodes (exclusive)"),
}
Left = dict[str, list[str]]
"""Heading -> findings."""


def leftovers(node: Node, engine: EngineState) -> Rows:
    left: Left = defaultdict(list)
    for path in _files(node):
        _remove(path, left)
    has_engine = node.settings.engine != "none" and engine.state == "up"
    answered = not has_engine or _containers(node, left)
    for text, (verdict, remedy) in _VERDICTS.items():
        if left[text]:
            yield "leftovers", verdict, f"{text}: {listed(left[text])}", remedy
            return
    if not answered:
        remedy = f"check it on this node: {' '.join(node.settings.engine_command)} ps"
        yield "leftovers", "warn", "the container engine does not list its containers", remedy
    else:
        cleaned = left[_CLEANED]
        text = f"{_CLEANED}: {listed(cleaned)}" if cleaned else "nothing left of earlier jobs"
        yield "leftovers", "pass", text, ""


def _files(node: Node) -> Iterator[str]:
    folders, alive = _abandoned(node)
    yield from folders
    for path in (
        f"{node.channels}/{name}"
        for name in sorted(entries(node.channels))
        if name.startswith("orch-pipe.")
    ):
        if is_old(path, stat.S_IFIFO):  # a pipe's name lives for a moment
            yield path
    # Files in shared memory are named after their holder's folder, with or without a suffix.
    shm = f"{node.dev}/shm"
    for name in sorted(entries(shm)):
        lives = any(name == folder or name.startswith(f"{folder}.") for folder in alive)
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


def _ask_engine(node: Node, *arguments: str) -> tuple[int, str]:
    return _ask(node, [*node.settings.engine_command, *arguments])


def _ask(node: Node, argv: list[str]) -> tuple[int, str]:
    """Ask within a part of the check's time: the report needs the rest."""
    return ask(argv, (node.settings.preflight_check_s + 1) // 2)


def _containers(node: Node, left: Left) -> bool:
    """Return whether the engine answered. It is asked again only if others' containers run."""
    label = "index .Labels" if node.settings.engine == "podman" else ".Label"
    labels = "|".join(f'{{{{{label} "orchestrator.{name}"}}}}' for name in ("job", "node"))
    status, rows = _ask_engine(
        node, "ps", "--all", "--format", f"{{{{.ID}}}}|{labels}|{{{{.Names}}}}|{{{{.State}}}}"
    )
    others = []
    for row in rows.splitlines() if status == 0 else ():
        identity, job, at, name, state = (row.split("|") + [""] * 5)[:5]
        if job in ("", "<no value>"):
            runs = state in ("", "running") or state.startswith("Up ")  # without it, no GPU
            others += [identity] if identity and runs else []
        elif at == node.name and job != node.job_id:
            _container(node, left, identity, job, name)
    devices = (
        "{{.Name}} {{.HostConfig.Privileged}} {{range .HostConfig.Devices}}{{.PathOnHost}} {{end}}"
    )
    rows = _ask_engine(node, "inspect", "--format", devices, *others)[1] if others else ""
    for row in rows.splitlines():
        name, privileged, *paths = row.split() + ["", ""]
        # A privileged container has all devices.
        if "/dev/kfd" in paths or (privileged == "true" and os.path.exists(f"{node.dev}/kfd")):
            left[_FOREIGN].append(f"container {name.lstrip('/')}")
    return status == 0


def _container(node: Node, left: Left, identity: str, job: str, name: str) -> None:
    """The host's folder of /orch or /deep identifies the owner."""
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
        *_, (status, _) = (_ask(node, command) for command in removal(node, identity))
        left[_STUCK if status else _CLEANED].append(f"container {name}")


def has_ended(node: Node, job: str) -> bool:
    """The scheduler reports the end, or has forgotten the job (Slurm: after minutes); False without
    an answer."""
    state = job_state(job, (node.settings.preflight_check_s + 1) // 2)
    return not state or state.startswith(tuple(ENDED_STATES))
