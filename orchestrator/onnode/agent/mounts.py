"""Compares the mounts of engine daemon and this process: /tmp may be private to jobs
(job_container/tmpfs, PrivateTmp)."""

from __future__ import annotations

import os
import socket
import struct

from ..kernel.system import lines
from .node import Node

_CREDENTIALS = struct.Struct("3i")


def is_hidden(node: Node) -> bool:
    """The daemon sees another folder at node.channels; False if unknown."""
    pid = _daemon()
    here = _origin(lines(f"{node.proc}/self/mountinfo"), node.channels)
    there = _origin(lines(f"{node.proc}/{pid}/mountinfo"), node.channels) if pid else None
    return here is not None and there is not None and here != there


def _daemon() -> int:
    """The process that listens at docker's socket; 0 if it cannot be asked."""
    address = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if not address.startswith("unix://"):
        return 0
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            client.connect(address[len("unix://") :])
            peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return 0
    return int(_CREDENTIALS.unpack(peer)[0])


def _origin(mountinfo: list[str], folder: str) -> tuple[str, str] | None:
    """A folder's device and its path there."""
    origin, length = None, -1
    path = os.path.realpath(folder)
    for line in mountinfo:
        fields = line.split()
        if len(fields) < 5:
            continue
        device, root, point = fields[2:5]
        inside = os.path.relpath(path, point)
        # Of two mounts at the same place the later counts.
        if not inside.startswith("..") and len(point) >= length:
            origin, length = (device, os.path.normpath(os.path.join(root, inside))), len(point)
    return origin
