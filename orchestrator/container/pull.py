"""Pulling an image into this host's engine, and saving its tar. A password is only in the
request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from orchestrator.container.image import EngineError, Image, short
from orchestrator.container.local import engine, find_image, reason, split_reference
from orchestrator.container.store import StoredImage, check_room, save, stored
from orchestrator.errors import UsageError
from orchestrator.words import count

if TYPE_CHECKING:
    from docker import DockerClient

LOGIN_HINT = "orchestrator images pull ... --login USER --password-stdin <file-with-the-password"
_REFUSED = ("denied", "unauthorized", "authentication", "auth credentials")


@dataclass(frozen=True, slots=True)
class Login:
    """Its text hides the password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user!r}, ...)"


@dataclass(frozen=True, slots=True)
class PulledImage:
    """An image on shared storage, and the necessary steps."""

    kept: StoredImage
    image: Image
    pulled: bool
    saved: bool


def read_login(user: str, stdin: IO[str]) -> Login:
    """Read a password, the first line of `stdin`. Raises UsageError if empty."""
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
    """Pull `reference` if missing or `always`, and save its tar. Raises EngineError, InputError or
    SetError."""
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
        pieces = counted(client.api.get_image(reference), image.size, progress)
        kept = save(folder, reference, image, pieces)
        return PulledImage(kept, image, pulled, saved=True)


def counted(
    pieces: Iterable[bytes], total: int, progress: Callable[[str], None]
) -> Iterator[bytes]:
    """Yield `pieces`; call `progress` per tenth of `total` bytes."""
    done = tenths = 0
    for piece in pieces:
        yield piece
        done += len(piece)
        if total and 10 * done // total > tenths:
            tenths = 10 * done // total
            progress(f"  {_gigabytes(done, total)}")


def _gigabytes(done: int, total: int) -> str:
    return f"{done / 1e9:.1f} of {max(done, total) / 1e9:.1f} GB"


class _Layers:
    """Complete layers of a pull, and the bytes of the others."""

    def __init__(self) -> None:
        self.complete: dict[str, bool] = {}
        self._bytes: dict[str, tuple[int, int]] = {}
        self._tenths = 0

    def update(self, layer: str, status: str, detail: Mapping[str, Any]) -> str:
        """Apply a line of the engine; return progress to show, or ""."""
        done = status in ("Pull complete", "Already exists")
        changed = done or layer not in self.complete
        self.complete[layer] = done or self.complete.get(layer, False)
        current, total = detail.get("current"), detail.get("total")
        if status == "Downloading" and isinstance(current, int) and isinstance(total, int):
            self._bytes[layer] = current, total
        elif status in ("Download complete", "Pull complete") and layer in self._bytes:
            self._bytes[layer] = (self._bytes[layer][1],) * 2
        got = sum(current for current, _ in self._bytes.values())
        size = sum(total for _, total in self._bytes.values())
        tenths = 10 * got // size if size else 0
        if not changed and tenths <= self._tenths:
            return ""
        self._tenths = max(tenths, self._tenths)
        text = f"{sum(self.complete.values())} of {count(len(self.complete), 'layer')}"
        return f"{text}, {_gigabytes(got, size)}" if size else text


def pull(
    client: DockerClient, reference: str, login: Login | None, progress: Callable[[str], None]
) -> Image:
    """Pull `reference`. Raises EngineError if the registry refuses."""
    from docker.errors import APIError

    name, tag = split_reference(reference)
    auth = {"username": login.user, "password": login.password} if login else None
    layers = _Layers()
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
        if text := layers.update(layer, str(status), line.get("progressDetail") or {}):
            progress(text)
    image = find_image(client, reference)
    if image is None:
        raise EngineError(f"{reference} was pulled, but the engine does not have it")
    progress(f"pulled {short(image.id)}")
    return image


def _refused(reference: str, text: str) -> EngineError:
    needs_login = any(sign in text.lower() for sign in _REFUSED)
    return EngineError(f"pulling {reference}: {text}", hint=LOGIN_HINT if needs_login else "")
