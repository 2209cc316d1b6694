"""Images as tars on shared storage: `<name>_<tag>.<64 hex digits>.tar`, each with a small JSON file beside it.

Both are written to a temporary name, synced and renamed; the JSON comes last, so a tar that has one is whole.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from orchestrator.container.image import EngineError, Image, short
from orchestrator.errors import InputError, SetError, is_full
from orchestrator.onnode.kernel.regular import parse, read_bytes

CLOCK_SKEW_S = 3600
"""How far ahead the clock of the host that wrote a tar may be."""
SPARE_BYTES = 1_000_000_000
"""Left free on the file system besides the tar, so that others do not fail because of it."""


@dataclass(frozen=True, slots=True)
class StoredImage:
    """A whole tar on shared storage."""

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
    """Return the file name of an image's tar: readable, and with the whole digest."""
    readable = re.sub(r"[^A-Za-z0-9.-]+", "_", reference)[:120].strip("_.")
    return f"{readable}.{image.id.removeprefix('sha256:')}.tar"


def stored(folder: Path, reference: str) -> StoredImage | None:
    """Return the newest whole tar of `reference` in `folder`, or None; one of another user only where none is ours or root's."""
    found = [
        one
        for path in sorted(folder.glob("*.tar.json"))
        if (one := _read(path)) and one.reference == reference
    ]
    return max(
        found, key=lambda one: (_owner(one.tar) in (os.getuid(), 0), one.created_ms), default=None
    )


def _owner(path: Path) -> int:
    try:
        return path.stat().st_uid
    except OSError:
        return -1


def _read(path: Path) -> StoredImage | None:
    """Return what the JSON file says; None when it cannot be used or its tar is not as long as it says."""
    try:
        data = parse(read_bytes(path))
        image = Image(
            data["image"]["id"],
            tuple(data["image"]["repo_digests"]),
            tuple(data["image"]["tags"]),
            int(data["image"]["bytes"]),
        )
        tar = path.with_suffix("")
        known = StoredImage(
            tar, data["reference"], image, int(data["bytes"]), int(data["created_ms"])
        )
        from_the_future = known.created_ms > (time.time() + CLOCK_SKEW_S) * 1000
        return known if tar.stat().st_size == known.bytes and not from_the_future else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(folder: Path, reference: str, image: Image, pieces: Iterable[bytes]) -> StoredImage:
    """Write the tar that the engine sends in `pieces` into `folder`.

    Raises InputError when there is no room or the folder cannot be written, EngineError when the tar does not hold
    `image`. Nothing of it is left in either case.
    """
    path = folder / tar_name(reference, image)
    check_room(folder, image)
    try:
        with _written(path) as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            _check_content(Path(file.name), image)
        size = path.stat().st_size
        known = StoredImage(path, reference, image, size, time.time_ns() // 1_000_000)
        with _written(path.with_name(path.name + ".json")) as file:
            file.write(json.dumps(known.to_json(), indent=2).encode() + b"\n")
    except OSError as error:
        raise (SetError if is_full(error) else InputError)(
            f"{path}: cannot be written: {error.strerror or error}",
            hint=f"df -h {folder}, or another folder: --tar DIR",
        ) from error
    return known


def check_room(folder: Path, image: Image) -> None:
    """Raise InputError when `folder` cannot be made or its file system has no room for `image`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise InputError(
            f"{folder}: {error.strerror or error}", hint="another folder: --tar DIR"
        ) from error
    if free < image.size + SPARE_BYTES:
        raise InputError(
            f"{folder}: {free / 1e9:.1f} GB free, and the tar of {short(image.id)} needs about "
            f"{(image.size + SPARE_BYTES) / 1e9:.1f} GB",
            hint="another folder: --tar DIR",
        )


@contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name when the block ends well, and is gone when it does not."""
    temporary = path.with_name(f".{path.name[-200:]}.tmp.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _check_content(path: Path, image: Image) -> None:
    """Raise EngineError unless the saved tar names `image`: its configuration, or its manifest in newer engines."""
    digits = image.id.removeprefix("sha256:")
    try:
        with tarfile.open(path) as tar:
            texts = [
                file.read()
                for name in ("manifest.json", "index.json")
                if name in tar.getnames() and (file := tar.extractfile(name))
            ]
    except (tarfile.TarError, EOFError) as error:
        raise EngineError(f"the engine's tar of {short(image.id)} is damaged: {error}") from error
    if not any(digits.encode() in text for text in texts):
        raise EngineError(f"the engine's tar does not hold the image {image.id}")
