"""Free space on a node: its folders, and room for an image to pull."""

from __future__ import annotations

import json
import os
from typing import Any

from ..kernel.client import repository_in, with_proxy
from ..kernel.events import number
from ..kernel.settings_file import rehearsed
from ..kernel.system import ask
from .gpu import gib
from .node import EngineState, Node, Rows, listed

UNPACKED = 4
"""Room for an image, as a multiple of its compressed size: layers, which stay until they are
unpacked (in containerd's store for good), and three times as much unpacked. Images with ROCm grow
three- to fourfold: over 20 GB become almost 80 GB (michaelfeil/infinity issue 555)."""
PLENTY = 250 * 10**9
"""With more free space the registry is not asked, which has a rate limit."""


def free_space(node: Node, state: EngineState) -> Rows:
    given, short, free = number(node.settings.preflight_free_gb), [], []
    needed = 1 if given is None else given
    engine = _usual_storage(node)
    for folder in dict.fromkeys((node.settings.logdir, node.channels, engine)):
        try:
            about = os.statvfs(folder)
        except OSError:
            continue
        mib = about.f_bavail * about.f_frsize >> 20
        free.append(f"{folder} {gib(mib)} GB")
        if mib < needed * 1024:
            short.append(f"{folder}: {gib(mib)} GB free, at least {needed} needed")
        elif about.f_files and not about.f_ffree:
            short.append(f"{folder}: no inodes free")
    remedy = "remove old results, containers or images there, or lower preflight.free_gb"
    if not short and (problem := _no_room_for_image(node, state)):
        short.append(problem)
        remedy = (
            "remove old images there, or give the engine a larger storage; preflight.warn: "
            "[free_space] if the image fits all the same"
        )
    if short:
        yield "free_space", "fail", listed(short), remedy
    elif free:
        yield "free_space", "pass", f"free: {', '.join(free)}", ""
    else:
        yield (
            "free_space",
            "warn",
            "cannot be checked: the file systems do not report their size",
            "",
        )


def _usual_storage(node: Node) -> str:
    podman = (
        "/var/lib/containers"
        if os.geteuid() == 0
        else f"{os.environ.get('HOME', '')}/.local/share/containers"
    )
    docker = rehearsed("ORCH_ENGINE_STORAGE", "/var/lib/docker", node.name)
    return {"docker": docker, "podman": podman}.get(node.settings.engine, "")


def _no_room_for_image(node: Node, state: EngineState) -> str:
    """Return why an image to pull does not fit; "" if it fits or its size is unknown."""
    if state.state != "up" or state.image_id or node.settings.pull != "missing":
        return ""
    folder = storage(node)
    try:
        about = os.statvfs(folder)
    except OSError:
        return ""
    free = about.f_bavail * about.f_frsize
    if free >= PLENTY:
        return ""
    size, source = _size(node)
    if free >= size * UNPACKED:
        return ""
    return (
        f"{folder}: {free / 1e9:.1f} GB free, {size * UNPACKED / 1e9:.1f} needed to pull "
        f"{node.settings.cont} ({size / 1e9:.1f} GB compressed, by {source}, times {UNPACKED})"
    )


def storage(node: Node) -> str:
    """The folder into which the engine pulls. Asking takes a second on some hosts."""
    if folder := rehearsed("ORCH_ENGINE_STORAGE", "", node.name):
        return folder
    form = "{{.DockerRootDir}}\n{{json .DriverStatus}}"
    if node.settings.engine == "podman":
        form = "{{.Store.GraphRoot}}\n"
    seconds = node.settings.preflight_check_s / 4
    status, text = ask([*node.settings.engine_command, "info", "--format", form], seconds)
    folder, _, driver = text.strip().partition("\n")
    if status != 0 or not folder.startswith("/"):
        return ""
    # With containerd's image store Docker's own folder has no images.
    return "/var/lib/containerd" if "io.containerd.snapshotter" in driver else folder


def _size(node: Node) -> tuple[int, str]:
    """Compressed size and its source: the registry, else the round's document (0: neither)."""
    from .container import pulled_name  # a bundle without an engine does not carry it

    if size := _registry_bytes(node, pulled_name(node.settings)):
        return size, "the registry"
    return node.settings.image_gb * 10**9, "the round's image_gb"


def _registry_bytes(node: Node, name: str) -> int:
    """The layers in the image's manifest; 0 without an answer."""
    document = _manifest(node, name)
    for manifest in _dicts(document.get("manifests")):  # an index of several platforms
        platform = manifest.get("platform")
        if isinstance(platform, dict) and platform.get("architecture") == "amd64":
            document = _manifest(node, f"{repository_in(name)}@{manifest.get('digest')}")
            break
    sizes = [layer.get("size") for layer in _dicts(document.get("layers"))]
    return sum(size for size in sizes if isinstance(size, int) and 0 < size < 1 << 50)


def _manifest(node: Node, name: str) -> dict[str, Any]:
    # The process is the check's own. Older clients require the variable.
    os.environ["DOCKER_CLI_EXPERIMENTAL"] = "enabled"
    settings = node.settings
    engine = with_proxy(settings.engine_command, settings.proxy, ("docker", "podman"))
    argv = [*engine, "manifest", "inspect", name]
    status, text = ask(argv, settings.preflight_check_s / 4)
    try:
        document = json.loads(text) if status == 0 else {}
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
