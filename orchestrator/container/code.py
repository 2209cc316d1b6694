"""Copying code out of an image, through a container that never runs."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.container.image import EngineError, Image
from orchestrator.container.local import engine, find_image
from orchestrator.container.unpack import Unpacked, unpack
from orchestrator.errors import InputError, UsageError
from orchestrator.words import quoted

if TYPE_CHECKING:
    from docker import DockerClient


@dataclass(frozen=True)
class Copied:
    folder: Path
    image: Image
    content: Unpacked


def copy_code(reference: str, code_dir: str, target: Path, *, address: str = "") -> Copied:
    """Copy an image's folder `code_dir` to the new or empty `target`.

    A failed copy leaves nothing. Raises UsageError, InputError or EngineError.
    """
    _check_target(target)
    with engine(address, timeout_s=300) as client:
        image = find_image(client, reference)
        if image is None:
            raise EngineError(
                f"the engine does not have {reference}",
                hint=f"orchestrator images pull --image {quoted(reference)}",
            )
        # In the same folder as the target: the last step is a rename.
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.tmp.", dir=target.parent))
        try:
            content = _copy(client, image, code_dir, work)
            _put(work / Path(code_dir).name, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return Copied(target, image, content)


def _check_target(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UsageError(f"{target} exists and is not a folder", hint="name another folder: -o DIR")
    try:
        has_files = target.is_dir() and any(target.iterdir())
    except OSError as error:
        raise UsageError(
            f"{target}: {error.strerror}", hint="name another folder: -o DIR"
        ) from error
    if has_files:
        raise UsageError(
            f"{target} is not empty; nothing in it is overwritten",
            hint="name another folder: -o DIR",
        )


def _put(source: Path, target: Path) -> None:
    if source.is_symlink() or not source.is_dir():
        raise InputError(f"{source.name} is no folder in this image")
    with suppress(FileNotFoundError):
        target.rmdir()
    try:
        source.rename(target)
    except OSError as error:
        raise InputError(
            f"{target}: {error.strerror}", hint="name another folder: -o DIR"
        ) from error


def _copy(client: DockerClient, image: Image, code_dir: str, work: Path) -> Unpacked:
    from docker.errors import NotFound

    # Needed for an image without a command; it never runs.
    container = client.api.create_container(
        image.id, command=["true"], labels={"orchestrator": "code"}
    )
    try:
        pieces, _ = client.api.get_archive(container["Id"], code_dir)
        with Pieces.buffered(pieces) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            return unpack(tar, work)
    except NotFound as error:
        raise InputError(
            f"there is no {code_dir} in {', '.join(image.tags) or image.id}"
        ) from error
    except tarfile.TarError as error:
        raise EngineError(f"the engine's archive of {code_dir} cannot be read: {error}") from error
    finally:
        client.api.remove_container(container["Id"], v=True, force=True)


class Pieces(io.RawIOBase):
    """The engine's pieces as a file."""

    @classmethod
    def buffered(cls, pieces: Iterable[bytes]) -> io.BufferedReader:
        return io.BufferedReader(cls(iter(pieces)), 1 << 20)

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        """End the pieces, too: they may hold a connection."""
        super().close()
        if isinstance(self._pieces, Generator):
            self._pieces.close()


def default_folder(system: str, workload: str) -> Path:
    return Path(os.curdir) / f"code-{system}-{workload}"
