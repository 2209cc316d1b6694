"""Checks of a node's host: engine, image, clock, limits, versions, RDMA ports, log folder, data."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator

from ..kernel.client import folders
from ..kernel.events import number
from ..kernel.plural import count
from ..kernel.records import replace
from ..kernel.system import ask, entries, first_line, lines
from .gpu import Verdict
from .network import rdma_verdict
from .node import EngineState, Node, Rows, listed
from .reach import daemon_lacks_proxy

MAX_ENTRIES = 2000
"""Names of data compared between nodes."""


def engine_and_its_users(node: Node, state: EngineState) -> Rows:
    """For checks without a container, whose shell shows its root at less cost."""
    if state.state == "up":
        from .engine import mapped_users, users_question, users_verdict

        command, limit_s = users_question(node.settings), node.settings.preflight_check_s / 4
        status, output = ask(command, limit_s)
        if kind := mapped_users(node.settings, output) if status == 0 else "":
            yield from users_verdict(node.settings, kind)
            return
    yield from engine(node, state)


def engine(node: Node, state: EngineState) -> Rows:
    name, command = node.settings.engine, " ".join(node.settings.engine_command)
    if name == "none":
        yield "engine", "skip", "runs start on the host, without a container", ""
    elif state.state == "up":
        from .engine import hides_channels  # only bundles with containers have it

        if name == "docker" and hides_channels(node):
            text = f"the engine does not see {node.channels} of the job: it is private to jobs"
            remedy = "give the site a local container.channel_dir that is not, such as /var/tmp"
            yield "engine", "fail", text, remedy
        else:
            yield "engine", "pass", f"{name} answers", ""
    else:
        remedy = (
            f"start it (systemctl start {name}), or let this user talk to it (its group, the "
            "site's sudo)"
        )
        yield "engine", "fail", f"the container engine ({command}) does not answer", remedy


def image(node: Node, state: EngineState) -> Rows:
    name = node.settings.cont
    if node.settings.engine == "none":
        yield "image", "skip", "runs start on the host, without a container", ""
    elif state.image_id:
        yield "image", "pass", f"{name} {state.image_id[:19]}", ""
    elif state.state != "up":
        yield "image", "skip", "cannot be checked: the engine does not answer", ""
    elif node.settings.pull == "missing":
        remedy = (
            node.settings.built or "it will be pulled when the job starts, which may take a while"
        )
        if daemon_lacks_proxy(node):
            remedy += ". Docker's daemon has no proxy, and pulls do not use container.proxy"
        yield "image", "warn", f"image {name} is not on this node yet", remedy
    else:
        yield (
            "image",
            "fail",
            f"image {name} is not on this node",
            node.settings.built or "pull or load it there",
        )


def clock(node: Node, state: EngineState) -> Rows:
    """Report the time source; the judge compares clocks."""
    text, timesync = "time source unknown", f"{node.run_dir}/systemd/timesync"
    fields = (
        ask(["chronyc", "-c", "tracking"], 3)[1].strip().split(",")
        if node.run_dir == "/run"
        else []
    )
    if len(fields) > 12:
        synchronised = not fields[-1].startswith("Not sync")
        text = (
            f"synchronised (chrony, stratum {fields[2]})"
            if synchronised
            else "not synchronised (chrony)"
        )
    elif os.path.exists(timesync):
        word = (
            "synchronised" if os.path.exists(f"{timesync}/synchronized") else "not synchronised yet"
        )
        text = f"{word} (systemd-timesyncd)"
    yield "clock", "pass", text, ""


def root(node: Node, state: EngineState) -> Rows:
    """Check root's rights, by this user or the site's sudo."""
    settings = node.settings
    uses = ["host settings"] * settings.runtime_tunables
    uses += ["dropping caches"] * settings.clear_caches
    prefix, user = " ".join(settings.sudo), os.geteuid()
    if settings.sudo:
        argv = [*settings.sudo, "bash", "-c", "echo $EUID"]
        status, reply = ask(argv, settings.preflight_check_s / 4, errors=True)
        answers = [line for line in reply.splitlines() if line.strip()] or ["no answer"]
        is_root, who = status == 0 and answers[-1] == "0", f"`{prefix}`: {answers[-1]}"
    else:
        is_root = user == 0 or bool(node.root)  # another root folder needs no rights
        who = f"jobs run as user {user}, and the site has no `sudo`"
    if not uses:
        yield "root", "skip", "not needed (tunables, clear_caches)", ""
    elif is_root:
        yield "root", "pass", f"for {' and '.join(uses)}", ""
    else:
        remedy = (
            "`sudo: [sudo, -n]` with a sudoers rule without password; or without these: "
            "`tunables: off`, `clear_caches: false`"
        )
        yield "root", "fail", f"root is needed for {' and '.join(uses)}; {who}", remedy


def limits(node: Node, state: EngineState) -> Rows:
    """Check a run's limits; only warn for containers, which get theirs from the engine and
    --ulimit."""
    wanted, inside, verdict, troubles, remedies = (
        node.settings,
        node.settings.engine != "none",
        "pass",
        [],
        [],
    )
    memlock, nofile = (
        _limit(node, "Max locked memory", "memlock"),
        _limit(node, "Max open files", "nofile"),
    )
    uses_rdma = (
        wanted.fabric not in ("", "none", "ethernet")
        and wanted.network_rdma != "off"
        and wanted.nnodes > 1
    )
    if (amount := number(memlock)) is not None and uses_rdma and (inside or os.geteuid() != 0):
        verdict = "warn" if inside else "fail"
        troubles.append(f"locked memory is limited to {amount // 1024} KiB, RDMA needs unlimited")
        remedies.append(
            "memlock unlimited (limits.conf, slurmd's LimitMEMLOCK, --ulimit memlock=-1)"
        )
    if (amount := number(nofile)) is not None and amount < 65536:
        verdict = verdict if verdict == "fail" else "warn"
        troubles.append(f"open files are limited to {nofile}")
        remedies.append(
            "nofile 65536 or more (limits.conf, slurmd's LimitNOFILE, --ulimit nofile=1048576)"
        )
    text = listed(troubles) or f"memlock {memlock or 'unknown'}, nofile {nofile or 'unknown'}"
    yield "limits", verdict, text, listed(remedies)


def _limit(node: Node, title: str, option: str) -> str:
    """The container's limit, from its options; else this process's."""
    options = " ".join(node.settings.container_options) if node.settings.engine != "none" else ""
    values = re.findall(rf"(?:^| |--ulimit=){option}=([^ :]*)", options)
    values = (
        values
        or re.findall(rf"(?m)^{title} +([^ ]+)", "\n".join(lines(f"{node.proc}/self/limits")))
        or [""]
    )
    return "unlimited" if values[-1] == "-1" else values[-1]


_REMEDIES = {
    "driver": "install a newer amdgpu driver",
    "rocm": "install a newer ROCm",
    "nic_firmware": "update the NICs (AINIC bundle)",
    "gfx": "take another system, or another image",
}


_VERSIONS = {
    "kernel": "kernel",
    "driver": "amdgpu",
    "rocm": "ROCm",
    "vbios": "VBIOS",
    "nic_firmware": "NIC firmware",
}


def _older(version: str, least: str) -> bool:
    """By their numbers: 1.117.5-a-56 is older than 1.117.5-a-77."""
    have, want = (
        [int(digits) for digits in re.findall("[0-9]{1,9}", text)] for text in (version, least)
    )
    return have < want


def _unmet(node: Node, reported: dict[str, list[str]]) -> Iterator[tuple[str, str, str]]:
    """Yield (verdict, text, remedy) of the image's requirements. Unknown versions warn: many hosts
    have no ROCm."""
    for requirement in node.settings.requires:
        name, _, wanted = requirement.partition("=")
        remedy = f"{_REMEDIES.get(name, 'check it')}, or name another image"
        if name == "gfx":
            if node.settings.gpu_gfx not in (*wanted.split(), ""):
                text = (
                    f"the image is built for {wanted}, {node.settings.system} has "
                    f"{node.settings.gpu_gfx}"
                )
                yield "fail", text, _REMEDIES[name]
            continue
        present = sorted(filter(None, set(reported.get(name, ()))))
        shown = name.replace("_", " ")
        if old := [version for version in present if _older(version, wanted)]:
            # A container has its own ROCm: the host's hints at old drivers.
            yield (
                "warn" if name == "rocm" else "fail",
                f"{shown} {listed(old)}: {node.settings.cont} needs {wanted} or newer",
                remedy,
            )
        elif not present and name != "rocm":
            need = f"{node.settings.cont} needs {wanted} or newer"
            text = f"{shown}: the host does not report it, {need}"
            yield "warn", text, f"check it by hand; {remedy}"


def versions(node: Node, state: EngineState) -> Rows:
    host = node.inventory()
    reported = {
        "kernel": [host.kernel],
        "driver": [host.driver],
        "rocm": [host.rocm],
        "vbios": host.gpu_versions(),
        "nic_firmware": host.nic_versions(),
    }
    summary = ", ".join(
        f"{_VERSIONS[name]} {value}"
        for name, values in reported.items()
        if (value := next(filter(None, values), ""))
    )
    unmet = sorted(_unmet(node, reported))  # "fail" before "warn"
    text, remedies = (
        "; ".join(text for _, text, _ in unmet),
        "; ".join(dict.fromkeys(remedy for _, _, remedy in unmet)),
    )
    yield "versions", unmet[0][0] if unmet else "pass", text or summary, remedies


def rdma(node: Node, state: EngineState) -> Rows:
    """Apply the rules used before the container starts."""
    yield ("rdma", *rdma_verdict(node))


# ---- storage ------------------------------------------------------------------------------------


def log_dir(node: Node, state: EngineState) -> Rows:
    """Find the batch host's marker; write a marker for the judge."""
    marker, wanted = os.environ.get("ORCH_MARKER", ""), os.environ.get("ORCH_MARKER_TEXT", "")
    yield ("log_dir", *(_see_marker(node, marker, wanted) if marker else _try_log_dir(node)))


def _try_log_dir(node: Node) -> Verdict:
    probe = f"{node.settings.logdir}/.orch-probe-{node.name}-{os.urandom(8).hex()}"
    verdict = _write_probe(probe, "", f"{node.settings.logdir} is writable")
    if os.path.isfile(probe):
        os.unlink(probe)
    return verdict


def _see_marker(node: Node, marker: str, wanted: str) -> Verdict:
    begin, waited, folder = time.monotonic(), 0.0, os.path.dirname(marker)
    while (seen := first_line(marker)) != wanted or not seen:
        waited = time.monotonic() - begin
        if waited > node.settings.preflight_check_s - 0.7:
            shown = (
                "an older marker is there" if seen else "the marker of the batch host is missing"
            )
            shown = shown if os.path.isdir(folder) else "the folder is not on this node"
            remedy = (
                "mount the shared file system here; with NFS, a shorter acdirmax or "
                "lookupcache=none"
            )
            return "fail", f"{folder}: {shown} after {waited:.0f} s", remedy
        time.sleep(0.1)
        entries(folder)  # makes an NFS client ask again, instead of using its cache
    late = f"; the batch host's file appeared after {waited:.1f} s" if waited else ""
    passed = f"{folder}: readable and writable{late}"
    return _write_probe(f"{marker}.{node.name}", wanted, passed)


def _write_probe(path: str, text: str, passed: str) -> Verdict:
    try:
        # Others may write there: it follows no links of theirs.
        replace(path, f"{text}\n".encode("utf-8", "surrogateescape"), sync=False)
        if first_line(path) == text:
            return "pass", passed, ""
        why = "what was written cannot be read again"
    except OSError as error:
        why = error.strerror or str(error)
    remedy = "check rights, quota and mount options (ro, root_squash) of this folder here"
    return "fail", f"cannot write to {os.path.dirname(path)}: {why}", remedy


def data(node: Node, state: EngineState) -> Rows:
    """Check the data; send its fingerprint."""
    contents = {}
    for variable, source, place in folders(node.settings.mounts, node.settings.data):
        target = place.rpartition(":")[0]
        if variable == "LOGDIR" or target == "/results":
            continue
        name = f"data.{node.settings.workload}.{variable}"
        if not source:
            yield (
                "data",
                "fail",
                f"{variable} is not set",
                f"give the site file {name}, or export {variable}",
            )
            return
        if problem := _unusable(source):
            remedy = f"mount or copy it here and give the rights, or correct {name} of the site"
            yield "data", "fail", f"{variable}: {source} {problem}", remedy
            return
        contents[source] = _content(source)
    if not contents:
        yield "data", "skip", "the workload mounts no data", ""
        return
    paths = [path for content in contents.values() for path in content][:MAX_ENTRIES]
    yield "data", "same", _fingerprint(paths), ""
    if empty := [source for source, content in contents.items() if not content]:
        yield (
            "data",
            "warn",
            f"{listed(empty)}: empty",
            "fetch the data, or mount the file system that has it",
        )
    else:
        checked = f"{count(len(contents), 'folder')}, {count(len(paths), 'entry')} checked"
        yield "data", "pass", checked, ""


def _unusable(source: str) -> str:
    """Return why training cannot read the data."""
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = f"user {os.geteuid()}"
    if not os.path.exists(source):
        return "does not exist on this node"
    if not os.access(source, os.R_OK | (os.X_OK if os.path.isdir(source) else 0)):
        return f"cannot be read by {user}"
    return ""


def _content(source: str) -> list[str]:
    """The first paths of two levels; a file is its own content."""
    paths = _visible(source) if os.path.isdir(source) else [source]
    for folder in _visible(source):
        if len(paths) >= MAX_ENTRIES:
            break
        paths += _visible(folder)
    return paths[:MAX_ENTRIES]


def _visible(folder: str) -> list[str]:
    return [f"{folder}/{name}" for name in sorted(entries(folder)) if not name.startswith(".")]


def _fingerprint(paths: list[str]) -> str:
    """Hash names, and files' sizes and times: a folder's depend on the file system."""
    import hashlib

    value = hashlib.md5(usedforsecurity=False)
    for path in paths:
        try:
            about = os.stat(path)
        except OSError:  # it vanished meanwhile
            continue
        identity = (
            path
            if stat.S_ISDIR(about.st_mode)
            else f"{path} {about.st_size} {about.st_mtime_ns // 10**9}"
        )
        value.update(os.fsencode(f"{identity}\n"))
    return value.hexdigest()
