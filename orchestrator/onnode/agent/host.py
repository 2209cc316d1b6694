"""The host of a node: engine, image, clock, limits, versions, RDMA ports, log folder, data, free space."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

from ..events import number
from ..settings import rehearsed
from .node import Node, first_line, listed
from .tools import ask, entries, which

if TYPE_CHECKING:
    from .checks import Rows
    from .container import EngineState

MAX_ENTRIES = 2000
"""So many names of data are compared between the nodes."""
_NO_CONTAINER = "runs start on the host, without a container"


def engine(node: Node, state: EngineState) -> Rows:
    name = node.settings.engine
    if name == "none":
        yield "engine", "skip", _NO_CONTAINER, ""
    elif state.state == "up":
        yield "engine", "pass", f"{name} answers", ""
    else:
        text = f"the container engine ({' '.join(node.settings.engine_command)}) does not answer"
        remedy = f"start it (systemctl start {name}), or let this user talk to it (its group, the site's sudo)"
        yield "engine", "fail", text, remedy


def image(node: Node, state: EngineState) -> Rows:
    name = node.settings.cont
    if node.settings.engine == "none":
        yield "image", "skip", _NO_CONTAINER, ""
    elif state.image_id:
        yield "image", "pass", f"{name} {state.image_id[:19]}", ""
    elif state.state != "up":
        yield "image", "skip", "cannot be checked: the engine does not answer", ""
    elif node.settings.pull == "missing":
        remedy = "it is pulled when the job starts; that can take long"
        yield "image", "warn", f"image {name} is not on this node yet", remedy
    else:
        yield "image", "fail", f"image {name} is not on this node", "pull or load it there"


def clock(node: Node, state: EngineState) -> Rows:
    """Say where the node has its time from; the time between nodes is for the judge."""
    text = ""
    if node.run == "/run" and which("chronyc"):
        fields = ask(["chronyc", "-c", "tracking"], 3)[1].strip().split(",")
        if len(fields) > 12:
            synchronised = not fields[-1].startswith("Not sync")
            text = f"synchronised (chrony, stratum {fields[2]})" if synchronised else "not synchronised (chrony)"
    timesync = f"{node.run}/systemd/timesync"
    if not text and os.path.exists(timesync):
        word = "synchronised" if os.path.exists(f"{timesync}/synchronized") else "not synchronised yet"
        text = f"{word} (systemd-timesyncd)"
    yield "clock", "pass", text or "time source unknown", ""


def limits(node: Node, state: EngineState) -> Rows:
    """With a container its limits come from the engine and from --ulimit, so these are worth a warning; a run on the host has these."""
    inside = node.settings.engine != "none"
    memlock, nofile = (_limit(node, *names) for names in (("Max locked memory", "memlock"), ("Max open files", "nofile")))
    verdict, troubles, remedies = "pass", [], []
    if (amount := number(memlock)) is not None and _uses_rdma(node) and (inside or os.geteuid() != 0):
        verdict = "warn" if inside else "fail"
        troubles.append(f"locked memory is limited to {amount // 1024} KiB, RDMA needs unlimited")
        remedies.append("memlock unlimited (limits.conf, slurmd's LimitMEMLOCK, --ulimit memlock=-1)")
    if (number(nofile) or 65536) < 65536:
        verdict = verdict if verdict == "fail" else "warn"
        troubles.append(f"open files are limited to {nofile}")
        remedies.append("nofile 65536 or more (limits.conf, slurmd's LimitNOFILE, --ulimit nofile=1048576)")
    text = listed(troubles) or f"memlock {memlock or 'unknown'}, nofile {nofile or 'unknown'}"
    yield "limits", verdict, text, listed(remedies)


def _limit(node: Node, title: str, option: str) -> str:
    """Return what holds in the container where its options say so, else for this process."""
    if node.settings.engine != "none":
        words = " ".join(node.settings.container_options)
        if given := re.findall(rf"(?:^| |--ulimit=){option}=([^ :]*)", words):
            return "unlimited" if given[-1] == "-1" else given[-1]
    try:
        with open(f"{node.proc}/self/limits", encoding="utf-8", errors="replace") as file:
            return next((line[len(title) :].split()[0] for line in file if line.startswith(title)), "")
    except (OSError, IndexError):
        return ""


def _uses_rdma(node: Node) -> bool:
    has = node.settings.fabric not in ("", "none", "ethernet")
    return has and node.settings.network_rdma != "off" and node.settings.nnodes > 1


def versions(node: Node, state: EngineState) -> Rows:
    """Say what is there; the facts of all nodes are compared by the loop."""
    pci, nics = f"{node.root}/sys/bus/pci/drivers/amdgpu", f"{node.root}/sys/class/infiniband"
    told = {
        "kernel": [f"{node.root}/proc/sys/kernel/osrelease"],
        "amdgpu": [f"{node.root}/sys/module/amdgpu/version"],
        "ROCm": [f"{node.root}/opt/rocm/.info/version"],
        "VBIOS": [f"{pci}/{name}/vbios_version" for name in entries(pci) if ":" in name],
        "NIC firmware": [f"{nics}/{name}/fw_ver" for name in entries(nics)],
    }
    found = {name: next(filter(None, map(first_line, files)), "") for name, files in told.items()}
    yield "versions", "pass", ", ".join(f"{name} {value}" for name, value in found.items() if value), ""


def rdma(node: Node, state: EngineState) -> Rows:
    """Look at the ports with the same rules and the same words as before the container starts."""
    from .network import rdma_verdict

    yield ("rdma", *rdma_verdict(node))


# ---- storage ---------------------------------------------------------------------------------------------------------


def log_dir(node: Node, state: EngineState) -> Rows:
    """The batch host wrote a marker just before; the node has to see it, and to write one that the judge sees."""
    begin = time.monotonic()
    marker, wanted = os.environ.get("ORCH_MARKER", ""), os.environ.get("ORCH_MARKER_TEXT", "")
    if not marker:
        probe = f"{node.settings.logdir}/.orch-probe-{node.name}-{os.getpid()}"
        problem = _write_probe(probe, "")
        yield ("log_dir", *(problem or ("pass", f"{node.settings.logdir} is writable", "")))
        if not problem:
            os.unlink(probe)
        return
    folder = os.path.dirname(marker)
    while (seen := first_line(marker)) != wanted or not seen:
        waited = time.monotonic() - begin
        if waited > node.settings.preflight_check_s - 0.7:
            shown = "an older marker is there" if seen else "the marker that the batch host wrote is not there"
            shown = shown if os.path.isdir(folder) else "the folder is not on this node"
            remedy = "mount the shared file system here; with NFS, a shorter acdirmax or lookupcache=none"
            yield "log_dir", "fail", f"{folder}: {shown} after {waited:.0f} s", remedy
            return
        time.sleep(0.1)
        entries(folder)  # An NFS client may answer from its cache for some seconds: a listing makes it ask again.
    waited = time.monotonic() - begin
    passed = ("pass", f"{folder}: marker seen after {waited * 1000:.0f} ms, own one written", "")
    yield ("log_dir", *(_write_probe(f"{marker}.{node.name}", wanted) or passed))


def _write_probe(path: str, text: str) -> tuple[str, str, str] | None:
    """Write a line and read it again; return verdict, text and remedy when that cannot be done."""
    try:
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text + "\n")
        why = "" if first_line(path) == text else "what was written cannot be read again"
    except OSError as error:
        why = error.strerror or str(error)
    remedy = "look at rights, quota and mount options (ro, root_squash) of this folder here"
    return ("fail", f"cannot write to {os.path.dirname(path)}: {why}", remedy) if why else None


def data(node: Node, state: EngineState) -> Rows:
    """Every folder of data is there and can be used; what they hold becomes one value that must be equal on all nodes."""
    sources, empty, found = [], [], []
    for mount in node.settings.mounts:
        variable, below, target, mode = (mount.split("\t") + [""] * 4)[:4]
        if variable == "LOGDIR" or target == "/results":
            continue
        source, name = node.settings.data.get(variable, ""), f"data.{node.settings.workload}.{variable}"
        if not source:
            yield "data", "fail", f"{variable} is not set", f"give the site file {name}, or export {variable}"
            return
        source = source if below == "." else f"{source}/{below}"
        if problem := _unusable(source, mode):
            remedy = f"mount or copy it here and give the rights, or correct {name} of the site"
            yield "data", "fail", f"{variable}: {source} {problem}", remedy
            return
        sources.append(source)
    for source in sources:
        told = _content(source, MAX_ENTRIES - len(found))
        found += told
        if not told and len(found) < MAX_ENTRIES:
            empty.append(source)
    if not sources:
        yield "data", "skip", "the workload mounts no data", ""
        return
    yield "data", "same", _fingerprint(found), ""
    if empty:
        yield "data", "warn", f"{listed(empty)}: empty", "fetch the data, or mount the file system that has it"
    else:
        yield "data", "pass", f"{len(sources)} folders, {len(found)} entries looked at", ""


def _unusable(source: str, mode: str) -> str:
    if not os.path.exists(source):
        return "does not exist on this node"
    if not os.access(source, os.R_OK | (os.X_OK if os.path.isdir(source) else 0)):
        return f"cannot be read by {_user()}"
    return f"cannot be written by {_user()}" if mode.startswith("rw") and not os.access(source, os.W_OK) else ""


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"


def _content(source: str, most: int) -> list[str]:
    """Return the paths of two levels, at most so many; a file is its own."""
    if not os.path.isdir(source):
        return [source][:most]
    found = _visible(source)[:most]
    for folder in _visible(source):
        if len(found) >= most:
            break
        found += _visible(folder)[: most - len(found)]
    return found


def _visible(folder: str) -> list[str]:
    return [f"{folder}/{name}" for name in sorted(entries(folder)) if not name.startswith(".")]


def _fingerprint(paths: list[str]) -> str:
    """Return one value for names, and sizes and times of files; those of folders are the file system's own affair."""
    import hashlib
    import stat

    value = hashlib.md5(usedforsecurity=False)
    for path in paths:
        try:
            about = os.stat(path)
        except OSError:  # it vanished meanwhile
            continue
        words = path if stat.S_ISDIR(about.st_mode) else f"{path} {about.st_size} {about.st_mtime_ns // 10**9}"
        value.update(os.fsencode(f"{words}\n"))
    return value.hexdigest()


def free_space(node: Node, state: EngineState) -> Rows:
    """The log folder, the folder of the channels and the engine's storage."""
    needed = number(node.settings.preflight_free_gb)
    needed, short, free = 1 if needed is None else needed, [], []
    for folder in dict.fromkeys((node.settings.logdir, node.channels, _engine_storage(node))):
        try:
            about = os.statvfs(folder) if os.path.isdir(folder) else None
        except OSError:
            about = None
        if about is None:
            continue
        mib = about.f_bavail * about.f_frsize >> 20
        gib = f"{mib // 1024}.{mib % 1024 * 10 // 1024}"
        free.append(f"{folder} {gib} GB")
        if mib < needed * 1024:
            short.append(f"{folder}: {gib} GB free, at least {needed} needed")
        elif about.f_files and not about.f_ffree:
            short.append(f"{folder}: no inodes free")
    if short:
        remedy = "remove old results, containers or images there, or lower preflight.free_gb"
        yield "free_space", "fail", listed(short), remedy
    elif free:
        yield "free_space", "pass", f"free: {', '.join(free)}", ""
    else:
        yield "free_space", "warn", "cannot be checked: the file systems do not tell their size", ""


def _engine_storage(node: Node) -> str:
    own = "/var/lib/containers" if os.geteuid() == 0 else f"{os.environ.get('HOME', '')}/.local/share/containers"
    docker = rehearsed("ORCH_ENGINE_STORAGE", "/var/lib/docker", node.name)
    return {"docker": docker, "podman": own}.get(node.settings.engine, "")
