"""Pulling an image into the local engine. The password goes into the request only: no argument, no file, no log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from orchestrator.container.image import EngineError, Image, short
from orchestrator.container.local import find_image, split_reference, words
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from docker import DockerClient


@dataclass(frozen=True, slots=True)
class Login:
    """A registry login; its text form hides the password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user!r}, ...)"


def read_login(user: str, stdin: IO[str]) -> Login:
    """Read the password of `user` from the first line of `stdin`. Raises UsageError when there is none."""
    password = stdin.readline().rstrip("\r\n")
    if not password:
        raise UsageError(
            "--password-stdin: standard input is empty",
            hint="orchestrator images pull ... --login USER --password-stdin <file-with-the-password",
        )
    return Login(user, password)


def pull(
    client: DockerClient, reference: str, login: Login | None, tell: Callable[[str], None]
) -> Image:
    """Pull `reference` and return the image. `tell` gets a line now and then. Raises EngineError when it is refused."""
    from docker.errors import APIError

    name, tag = split_reference(reference)
    auth = {"username": login.user, "password": login.password} if login else None
    layers: dict[str, bool] = {}
    try:
        lines = client.api.pull(name, tag=tag, stream=True, decode=True, auth_config=auth)
    except (
        APIError
    ) as error:  # refused before the first layer, as a registry does that wants a login
        raise _refused(reference, words(error)) from error
    for line in lines:
        if line.get("error"):
            raise _refused(reference, str(line["error"]))
        done = line.get("status") in ("Pull complete", "Already exists")
        if (
            line.get("id")
            and line.get("status") != f"Pulling from {name}"
            and (done or line["id"] not in layers)
        ):
            layers[line["id"]] = done
            tell(f"{sum(layers.values())} of {len(layers)} layers")
    image = find_image(client, reference)
    if image is None:
        raise EngineError(f"{reference} was pulled, but the engine does not have it")
    tell(f"pulled {short(image.id)}")
    return image


def _refused(reference: str, why: str) -> EngineError:
    login = any(
        word in why.lower()
        for word in ("denied", "unauthorized", "authentication", "auth credentials")
    )
    return EngineError(
        f"pulling {reference}: {why}",
        hint="orchestrator images pull ... --login USER --password-stdin <file-with-the-password"
        if login
        else "",
    )
