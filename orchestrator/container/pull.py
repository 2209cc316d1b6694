"""Pulling an image into the engine of this host, and saving its tar.

A password is only in the request: in no argument, file or log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from orchestrator.container.image import EngineError, Image, short
from orchestrator.container.local import engine, find_image, reason, split_reference
from orchestrator.container.store import StoredImage, check_room, save, stored
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from docker import DockerClient

LOGIN_HINT = "orchestrator images pull ... --login USER --password-stdin <file-with-the-password"
_REFUSED = ("denied", "unauthorized", "authentication", "auth credentials")


@dataclass(frozen=True, slots=True)
class Login:
    """A registry login; its text hides the password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user!r}, ...)"


@dataclass(frozen=True, slots=True)
class PulledImage:
    """An image on shared storage, and which steps were necessary."""

    kept: StoredImage
    image: Image
    pulled: bool
    saved: bool


def read_login(user: str, stdin: IO[str]) -> Login:
    """Read a password from the first line of `stdin`. Raises UsageError if empty."""
    password = stdin.readline().rstrip("\r\n")
    if not password:
        raise UsageError("--password-stdin: standard input is empty", hint=LOGIN_HINT)
    return Login(user, password)


def pull_and_save(
    reference: str,
    folder: Path,
    *,
    address: str,
    login: Login | None,
    always: bool,
    timeout_s: float,
    progress: Callable[[str], None],
) -> PulledImage:
    """Pull `reference` if it is missing or `always`, and save its tar in `folder`.

    Raises EngineError, InputError or SetError.
    """
    with engine(address, timeout_s=timeout_s) as client:
        image = None if always else find_image(client, reference)
        pulled = image is None
        if image is None:
            progress(f"pulling {reference}")
            image = pull(client, reference, login, lambda text: progress(f"  {reference}: {text}"))
        kept = stored(folder, reference)
        if kept is not None and kept.image.same_as(image):
            return PulledImage(kept, image, pulled, saved=False)
        check_room(folder, image)
        progress(f"saving {short(image.id)} ({image.size / 1e9:.1f} GB) into {folder}")
        kept = save(folder, reference, image, client.api.get_image(reference))
        return PulledImage(kept, image, pulled, saved=True)


def pull(
    client: DockerClient, reference: str, login: Login | None, progress: Callable[[str], None]
) -> Image:
    """Pull `reference`. Raises EngineError if the registry refuses."""
    from docker.errors import APIError

    name, tag = split_reference(reference)
    auth = {"username": login.user, "password": login.password} if login else None
    layers: dict[str, bool] = {}
    try:
        lines = client.api.pull(name, tag=tag, stream=True, decode=True, auth_config=auth)
    except APIError as error:  # a missing login is refused before the first layer
        raise _refused(reference, reason(error)) from error
    for line in lines:
        if line.get("error"):
            raise _refused(reference, str(line["error"]))
        layer = line.get("id")
        status = line.get("status")
        if not layer or status == f"Pulling from {name}":
            continue
        done = status in ("Pull complete", "Already exists")
        if done or layer not in layers:
            layers[layer] = done
            progress(f"{sum(layers.values())} of {len(layers)} layers")
    image = find_image(client, reference)
    if image is None:
        raise EngineError(f"{reference} was pulled, but the engine does not have it")
    progress(f"pulled {short(image.id)}")
    return image


def _refused(reference: str, text: str) -> EngineError:
    needs_login = any(sign in text.lower() for sign in _REFUSED)
    return EngineError(f"pulling {reference}: {text}", hint=LOGIN_HINT if needs_login else "")
