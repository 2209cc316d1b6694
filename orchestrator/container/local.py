"""This host's engine: the docker SDK, to which podman answers with a temporary service, and builds
with the engine's command."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.container.image import EngineError, Image, image_of
from orchestrator.errors import UsageError
from orchestrator.onnode.kernel.client import repository_in, with_proxy

if TYPE_CHECKING:
    from docker import DockerClient

CONNECT_HINT = (
    "start the engine, or name its socket: --engine unix:///path/of/the.sock, or DOCKER_HOST"
)
PROBE_S = 10.0
SERVICE_START_S = 30
SERVICE_END_S = 10
SERVICE_IDLE_S = 60
"""Another user's service cannot be ended, but ends itself when idle."""

# Standard input is a pipe of this process. At its end, the service and its folder
# ($1) are removed. The other arguments are the command.
_SERVE = r"""
exec 3<&0 </dev/null
{ read -r _ <&3; kill "$$"; rm -rf "$1"; } >/dev/null 2>&1 &
shift
exec "$@" 3<&-
"""


@contextmanager
def engine(address: str = "", *, timeout_s: float = 60) -> Iterator[DockerClient]:
    """Open the engine at `address` (default: $DOCKER_HOST, else /var/run/docker.sock). Its
    failures become EngineError."""
    import docker
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    url = address or os.environ.get("DOCKER_HOST", "") or "unix:///var/run/docker.sock"
    client = None
    try:
        _probe(url)
    except OSError as error:
        raise EngineError(
            f"the container engine at {url}: {reason(error)}", hint=CONNECT_HINT
        ) from error
    try:
        client = docker.DockerClient(base_url=url, timeout=math.ceil(timeout_s), version="auto")
        yield client
    except (DockerException, RequestException) as error:
        raise EngineError(
            f"the container engine at {url}: {reason(error)}",
            hint=CONNECT_HINT if client is None else "",
        ) from error
    finally:
        if client is not None:
            client.close()


def _probe(url: str) -> None:
    """Raise OSError for a dead socket: the SDK would leave its socket open."""
    if url.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(PROBE_S)
            probe.connect("/" + url.removeprefix("unix://").lstrip("/"))


def reason(error: Exception) -> str:
    """Return an SDK exception's message, without class names."""
    explanation = getattr(error, "explanation", None)
    if explanation:
        return str(explanation).strip()
    text = str(error)
    for sign, plain in (
        ("No such file or directory", "there is no such socket"),
        ("Connection refused", "nothing listens there"),
        ("Permission denied", "permission denied"),
        ("Read timed out", "no answer in time"),
    ):
        if sign in text:
            return plain
    return text.strip()


def storage_folder(client: DockerClient, address: str) -> Path | None:
    """Return this host's engine folder for images and containers; None if unknown."""
    url = address or os.environ.get("DOCKER_HOST", "") or "unix:"
    if not url.startswith("unix:"):
        return None
    info = client.info()
    folder = Path(str(info.get("DockerRootDir") or ""))
    if any("io.containerd.snapshotter" in str(pair) for pair in info.get("DriverStatus") or ()):
        folder = Path("/var/lib/containerd")
    return folder if folder.is_absolute() and folder.is_dir() else None


def find_image(client: DockerClient, reference: str) -> Image | None:
    """Return the image with the tag, digest or id `reference`, or None."""
    from docker.errors import ImageNotFound, NotFound

    try:
        return image_of(client.api.inspect_image(reference))
    except (ImageNotFound, NotFound):
        return None


def split_reference(reference: str) -> tuple[str, str]:
    """Return repository and tag (default `latest`), or digest."""
    name, _, digest = reference.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return repository_in(name), digest or tag or "latest"


@contextmanager
def reachable(
    address: str, kind: str, command: Sequence[str] | None, proxy: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield the address of the site's engine: `address`, else a podman service's, else "".

    `command` calls podman; `proxy` has variables for its pulls. Raises EngineError for an unusable
    service.
    """
    if address or kind != "podman":
        yield address
        return
    argv = tuple(command or ("podman",))
    if shutil.which(argv[0]) is None:
        raise EngineError(
            f"the container engine ({shlex.join(argv)}) cannot be started: there is no {argv[0]}",
            hint="install podman here, or name its socket: --engine unix:///run/podman/podman.sock",
        )
    folder = Path(tempfile.mkdtemp(prefix="orch-podman."))
    service_socket = folder / "sock"
    log = folder / "log"
    variables = [f"{name}={value}" for name, value in (proxy or {}).items()]
    service = _start_service(with_proxy(argv, variables), service_socket, log)
    try:
        _await_service(argv, service, service_socket, log)
        yield f"unix://{service_socket}"
    finally:
        if service.stdin:
            service.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            service.wait(SERVICE_END_S)
        shutil.rmtree(folder, ignore_errors=True)


def _start_service(argv: Sequence[str], service_socket: Path, log: Path) -> subprocess.Popen[bytes]:
    address = f"unix://{service_socket}"
    command = [*argv, "system", "service", f"--time={SERVICE_IDLE_S}", address]
    with log.open("wb") as output:
        # In its own session: after Ctrl-C it is needed to clean up.
        return subprocess.Popen(
            ["sh", "-c", _SERVE, "sh", str(service_socket.parent), *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _await_service(
    argv: Sequence[str], service: subprocess.Popen[bytes], service_socket: Path, log: Path
) -> None:
    deadline = time.monotonic() + SERVICE_START_S
    while not service_socket.exists():
        if service.poll() is not None or time.monotonic() > deadline:
            lines = log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
            raise EngineError(
                f"`{shlex.join(argv)} system service` does not run: {lines[-1]}",
                hint="name a socket that there is: --engine unix:///run/podman/podman.sock",
            )
        time.sleep(0.02)
    if not os.access(service_socket, os.W_OK):
        raise EngineError(
            f"the service of `{shlex.join(argv)}` is for another user only",
            hint="call orchestrator as that user, or name a socket that you may use: "
            "--engine unix:///path/of/the.sock",
        )


def build(command: Sequence[str], reference: str, tree: Path, dockerfile: str, source: str) -> None:
    """Build an image that no registry has from `dockerfile` in `tree`, the published `source`; the
    engine's output goes to standard error.

    Raises UsageError for a missing Dockerfile, EngineError if the engine fails.
    """
    file = tree / dockerfile
    if not file.is_file():
        raise UsageError(f"there is no {file}", hint=f"--tree DIR: {source}")
    argv = [*command, "build", "--tag", reference, "--file", str(file), str(tree)]
    try:
        ended = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    except OSError as error:
        raise EngineError(f"{argv[0]}: {error.strerror}") from error
    if ended.returncode:
        raise EngineError(f"{shlex.join(argv)} exited {ended.returncode}")
