"""An engine that is reached by its socket, with the docker SDK."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.container.image import EngineError, Image, Look, image_of

if TYPE_CHECKING:
    from docker import DockerClient

_KNOCK_S = 10.0
CONNECT_HINT = (
    "start the engine, or say where it is: --engine unix:///path/of/the.sock, or DOCKER_HOST"
)


@contextmanager
def engine(address: str = "", *, timeout_s: float = 60) -> Iterator[DockerClient]:
    """Open the engine at `address` (default: $DOCKER_HOST, else /var/run/docker.sock) and close it again.

    Every failure of it inside the block becomes an EngineError in plain words.
    """
    import docker
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    where = address or os.environ.get("DOCKER_HOST", "") or "unix:///var/run/docker.sock"
    client = None
    try:
        _knock(where)
    except OSError as error:
        raise EngineError(
            f"the container engine at {where}: {words(error)}", hint=CONNECT_HINT
        ) from error
    try:
        client = docker.DockerClient(base_url=where, timeout=math.ceil(timeout_s), version="auto")
        yield client
    except (DockerException, RequestException) as error:
        raise EngineError(
            f"the container engine at {where}: {words(error)}",
            hint=CONNECT_HINT if client is None else "",
        ) from error
    finally:
        if client is not None:
            client.close()


def _knock(where: str) -> None:
    """Raise OSError where nobody listens at a socket: the SDK would leave its own one open then."""
    if where.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_KNOCK_S)
            probe.connect("/" + where.removeprefix("unix://").lstrip("/"))


def words(error: Exception) -> str:
    """What an exception of the SDK says, without its stack of class names."""
    explanation = getattr(error, "explanation", None)
    if explanation:
        return str(explanation).strip()
    text = str(error)
    for known, plain in (
        ("No such file or directory", "there is no such socket"),
        ("Connection refused", "nothing listens there"),
        ("Permission denied", "permission denied"),
        ("Read timed out", "no answer in time"),
    ):
        if known in text:
            return plain
    return text.strip()


def find_image(client: DockerClient, reference: str) -> Image | None:
    """Return the image that `reference` (a tag, a digest or an id) means in this engine, or None."""
    from docker.errors import ImageNotFound, NotFound

    try:
        return image_of(client.api.inspect_image(reference))
    except (ImageNotFound, NotFound):
        return None


def split_reference(reference: str) -> tuple[str, str]:
    """Return repository and tag of `name:tag`; the tag is `latest` where there is none.

    A digest goes in the place of the tag, as the engine's API wants it.
    """
    if "@" in reference:
        name, _, digest = reference.partition("@")
        return name, digest
    head, slash, last = reference.rpartition("/")
    name, _, tag = last.partition(":")
    return f"{head}{slash}{name}", tag or "latest"


class SocketEngine:
    """The image store of one node whose engine has an address of its own."""

    def __init__(
        self, node: str, address: str, *, timeout_s: float = 60, load_timeout_s: float = 3600
    ) -> None:
        self.node = node
        self.address = address
        self.timeout_s = timeout_s
        self.load_timeout_s = load_timeout_s

    def look(self, reference: str) -> Look:
        """Ask which image `reference` means here; never raises for an engine that does not answer."""
        try:
            with engine(self.address, timeout_s=self.timeout_s) as client:
                return Look(self.node, find_image(client, reference))
        except EngineError as error:
            return Look(self.node, problem=error.message)

    def install(self, tar: Path, image: Image, reference: str) -> Look:
        """Load `tar` unless the image is here under another name, and make `reference` mean it. Returns a new look."""
        try:
            with engine(self.address, timeout_s=self.load_timeout_s) as client:
                if find_image(client, image.id) is None:
                    _load(client, tar)
                here = find_image(client, image.id)
                if here is None:
                    return Look(
                        self.node, problem=f"{tar.name} was loaded, but does not hold {image.id}"
                    )
                name, tag = split_reference(reference)
                client.api.tag(image.id, name, tag)
                return Look(self.node, find_image(client, reference))
        except EngineError as error:
            return Look(self.node, problem=error.message)
        except OSError as error:
            return Look(self.node, problem=f"{tar}: {error.strerror or error}")


def _load(client: DockerClient, tar: Path) -> None:
    with tar.open("rb") as file:
        # The SDK sends an open file in pieces; its answers come one JSON object per line, an error among them.
        for line in client.api.load_image(file):
            _check(line)


def _check(line: Any) -> None:
    if isinstance(line, dict) and line.get("error"):
        raise EngineError(f"docker load: {line['error']}")
