"""Images as tars on shared storage: `<name>_<tag>.<64 hex digits>.tar`, each with a JSON file.

Both are renamed into place, the JSON file last.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from orchestrator.container.image import EngineError, Image, short
from orchestrator.errors import InputError, SetError, is_full
from orchestrator.onnode.kernel.regular import parse, read_bytes
from orchestrator.onnode.kernel.world import now_ms
from orchestrator.trust import others
from orchestrator.words import quoted

CLOCK_SKEW_S = 3600
"""Tolerated difference of clocks."""
SPARE_BYTES = 1_000_000_000
"""Left free for the file system's other users."""
READABLE_CHARACTERS = 120
"""With the digest a name stays below 255 bytes."""


@dataclass(frozen=True, slots=True)
class StoredImage:
    """A complete tar; `created_ms` is Unix time."""

    tar: Path
    reference: str
    image: Image
    bytes: int
    created_ms: int

    def to_json(self) -> dict[str, Any]:
        return {
            "tar": str(self.tar),
            "reference": self.reference,
            "bytes": self.bytes,
            "created_ms": self.created_ms,
            "image": self.image.to_json(),
        }


def tar_name(reference: str, image: Image) -> str:
    cleaned = re.sub(r"[^A-Za-z0-9.-]+", "_", reference)
    readable = cleaned[:READABLE_CHARACTERS].strip("_.")
    return f"{readable}.{image.id.removeprefix('sha256:')}.tar"


def stored(folder: Path, reference: str, *, of_others: bool = False) -> StoredImage | None:
    """Return the newest tar of `reference` that only this user and root can write, or None; with
    `of_others`, else anybody's."""
    tars = [_read(path) for path in sorted(folder.glob("*.tar.json"))]
    matching = [tar for tar in tars if tar is not None and tar.reference == reference]
    mine = [tar for tar in matching if not whose(tar)]
    tars_left = mine or matching if of_others else mine
    return max(tars_left, key=lambda tar: tar.created_ms, default=None)


def whose(kept: StoredImage) -> str:
    """Return why another user decides a tar's content, or ""."""
    try:
        both = (kept.tar, kept.tar.with_name(kept.tar.name + ".json"))
        return next(filter(None, (others(path, parents=False) for path in both)), "")
    except OSError as error:
        return f"{kept.tar}: {error.strerror or error}"


def _read(path: Path) -> StoredImage | None:
    """Return a described tar; None if unusable or of another size."""
    try:
        data = parse(read_bytes(path))
        image = Image(
            data["image"]["id"],
            tuple(data["image"]["repo_digests"]),
            tuple(data["image"]["tags"]),
            int(data["image"]["bytes"]),
        )
        tar = path.with_suffix("")
        size = int(data["bytes"])
        created_ms = int(data["created_ms"])
        in_future = created_ms > now_ms() + CLOCK_SKEW_S * 1000
        if in_future or tar.stat().st_size != size:
            return None
        return StoredImage(tar, data["reference"], image, size, created_ms)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(folder: Path, reference: str, image: Image, pieces: Iterable[bytes]) -> StoredImage:
    """Write the tar of `image`. A failure leaves no file.

    Raises InputError without room or rights, SetError if full, EngineError for another image, and
    the errors of `pieces`.
    """
    from requests.exceptions import RequestException

    path = folder / tar_name(reference, image)
    check_room(folder, image)
    try:
        with _renamed_at_end(path) as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            _check_content(Path(file.name), image)
        size = path.stat().st_size
        kept = StoredImage(path, reference, image, size, now_ms())
        with _renamed_at_end(path.with_name(path.name + ".json")) as file:
            file.write(json.dumps(kept.to_json(), indent=2).encode() + b"\n")
    except RequestException:
        raise  # an OSError, too, but of the engine
    except OSError as error:
        raise (SetError if is_full(error) else InputError)(
            f"{path}: cannot be written: {error.strerror or error}",
            hint=f"df -h {quoted(folder)}, or another folder: --tar DIR",
        ) from error
    return kept


def check_room(folder: Path, image: Image) -> None:
    """Make `folder`. Raises InputError without room for `image`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise InputError(
            f"{folder}: {error.strerror or error}", hint="another folder: --tar DIR"
        ) from error
    needed = image.size + SPARE_BYTES
    if free < needed:
        raise InputError(
            f"{folder}: {free / 1e9:.1f} GB free, and the tar of {short(image.id)} needs about "
            f"{needed / 1e9:.1f} GB",
            hint="another folder: --tar DIR",
        )


@contextmanager
def _renamed_at_end(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that becomes `path`, unless an error removes it."""
    temporary = path.with_name(f".{path.name[-200:]}.tmp.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, 0o644)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _check_content(path: Path, image: Image) -> None:
    """Raise EngineError unless the tar names `image`."""
    digits = image.id.removeprefix("sha256:").encode()
    try:
        with tarfile.open(path) as tar:
            present = {"manifest.json", "index.json"} & set(tar.getnames())
            texts = [file.read() for name in present if (file := tar.extractfile(name))]
    except (tarfile.TarError, EOFError) as error:
        raise EngineError(f"the engine's tar of {short(image.id)} is damaged: {error}") from error
    if not any(digits in text for text in texts):
        raise EngineError(f"the engine's tar does not hold the image {image.id}")
