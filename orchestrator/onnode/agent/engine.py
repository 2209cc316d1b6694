"""The engine of containers: their root user, the folders that it sees, and the removal of
containers after a kill."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import struct
import subprocess

from ..kernel.settings import Settings
from ..kernel.system import lines
from .node import Node, Rows, removal

_FORMATS = {"docker": "{{.SecurityOptions}}", "podman": "{{.Host.Security.Rootless}}"}
_ENGINE = "use the engine of the system's root (container.command, such as [sudo, -n, {engine}])"
_CREDENTIALS = struct.Struct("3i")
MADE_S = (0, 1, 2, 4)
LATEST_S = (*MADE_S, 8, 16, 32)
"""Seconds before each of the Remover's tries: MADE_S after `made`; before, the engine may still be
creating the container."""

# Its input ends with both of them; signals to the job are for the agent.
_SCRIPT = f"""
trap '' TERM INT HUP
read -r word && exit
pauses='{" ".join(map(str, LATEST_S))}'
[ -z "$word" ] || pauses='{" ".join(map(str, MADE_S))}'
for pause in $pauses; do
  sleep "$pause"
  %s
  [ -z "$(%s)" ] || exit  # engines print what they removed
done
"""


# ---- users: rootless engines, and userns-remap ----


def users_question(settings: Settings) -> list[str]:
    """Return the command whose output `mapped_users` reads."""
    return [*settings.engine_command, "info", "--format", _FORMATS[settings.engine]]


def mapped_users(settings: Settings, output: str) -> str:
    """Return "rootless", "userns-remap", or "" if the containers' root is the host's."""
    fields = output.strip().strip("[]").split()
    if "name=rootless" in fields or fields == ["true"]:
        return "rootless"
    given = " ".join(settings.container_options)
    is_off = "--userns=host" in given or "--userns host" in given
    return "userns-remap" if "name=userns" in fields and not is_off else ""


def users_remedy(settings: Settings, kind: str) -> str:
    if kind == "userns-remap":
        return "give the site container.options: [--userns=host], or switch it off (daemon.json)"
    return _ENGINE.format(engine=settings.engine)


def users_verdict(settings: Settings, kind: str) -> Rows:
    """Yield the row of the check `engine`."""
    name = settings.engine
    if kind == "userns-remap":
        text = f"{name} maps users (userns-remap): a container cannot reach the folders of the job"
        yield "engine", "fail", text, users_remedy(settings, kind)
    else:
        text = (
            f"{name} is rootless, which is not supported: its containers lack the host's groups, "
            "hence often the GPUs, and unlimited locked memory"
        )
        yield "engine", "warn", text, users_remedy(settings, kind)


# ---- mounts ----


def hides_channels(node: Node) -> bool:
    """The daemon sees another folder at node.channels: /tmp may be private to jobs
    (job_container/tmpfs, PrivateTmp). False if unknown."""
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


# ---- removal ----


class Remover:
    """A process that removes a container if agent and engine client die without `end`, or after
    `leave`.

    It tries several times: engines remove only containers that ran, and may still be creating that
    of a killed client. `held`: a descriptor for the client; nothing is removed while client or
    agent has it open. Raises OSError.
    """

    def __init__(self, node: Node, container: str) -> None:
        *before, remove = map(shlex.join, removal(node, container))
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("ORCH_")
        }
        read, self.held = os.pipe()
        try:
            self._process = subprocess.Popen(
                ["sh", "-c", _SCRIPT % ("; ".join(before) or ":", remove), "orchestrator-remover"],
                stdin=read, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, cwd="/", env=environment,
            )  # fmt: skip
        except OSError:
            os.close(self.held)
            raise
        finally:
            os.close(read)

    def made(self) -> None:
        """The container runs."""
        self._tell(b"made ")

    def end(self) -> None:
        self._tell(b"\n")
        self.leave()

    def _tell(self, word: bytes) -> None:
        with contextlib.suppress(OSError):  # killed
            os.write(self.held, word)

    def leave(self) -> None:
        """Let it remove the container after the client's end."""
        os.close(self.held)
