"""Reading a saved image: a tar of `docker save`, an OCI layout, a tar of a file system."""

from __future__ import annotations

import json
import lzma
import posixpath
import shutil
import subprocess
import tarfile
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from orchestrator.errors import InputError
from orchestrator.inspection.sources import (
    MOST_TEXT,
    KeptFiles,
    Progress,
    read_folder,
    read_members,
)
from orchestrator.inspection.tree import ImageConfig, ImageTree

ZSTD = b"\x28\xb5\x2f\xfd"
MOST_JSON = 8 * MOST_TEXT
MOST_NESTED = 8
"""Indexes in indexes."""
DAMAGE = (
    *(OSError, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError),
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError),
)
"""Errors of damaged archives."""


class Store(Protocol):
    """The files of a saved image: its description, and its layers."""

    def names(self) -> set[str]: ...

    def open(self, name: str) -> IO[bytes]: ...


class TarStore:
    """The members of a tar."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._spelled = {posixpath.normpath(name): name for name in tar.getnames()}

    def names(self) -> set[str]:
        return set(self._spelled)

    def open(self, name: str) -> IO[bytes]:
        file = self._tar.extractfile(self._spelled[name])
        if file is None:
            raise KeyError(f"{name} is no file")
        return file


class FolderStore:
    """The files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> set[str]:
        files = (path for path in self._folder.rglob("*") if path.is_file())
        return {path.relative_to(self._folder).as_posix() for path in files}

    def open(self, name: str) -> IO[bytes]:
        if posixpath.isabs(name) or ".." in name.split("/"):
            raise KeyError(f"{name} is outside of the folder")
        return (self._folder / name).open("rb")


@dataclass(frozen=True)
class SavedImage:
    """An image of a store: its settings, and its layers, the oldest first."""

    config: ImageConfig
    layers: tuple[str, ...]


def read_saved(
    path: Path,
    names: Iterable[str] = (),
    progress: Progress = lambda text: None,
    *,
    reference: str = "",
) -> ImageTree:
    """Return the files of a saved image, or of an unpacked one. Of several saved images
    `reference` chooses. Raises InputError."""
    try:
        if path.is_dir():
            if not any((path / name).is_file() for name in ("oci-layout", "manifest.json")):
                return read_folder(path, names)
            store: Store = FolderStore(path)
            return _read(store, described(store, reference), names, progress)
        with tarfile.open(path) as tar:
            store = TarStore(tar)
            if not {"manifest.json", "index.json"} & store.names():
                return _read_root(path, names, progress)
            return _read(store, described(store, reference), names, progress)
    except DAMAGE as error:
        text = str(error).partition("\n")[0].strip("':")
        raise InputError(
            f"{path}: this cannot be read as an image: {text or type(error).__name__}",
            hint="docker save -o image.tar IMAGE makes one",
        ) from error


def _read_root(path: Path, names: Iterable[str], progress: Progress) -> ImageTree:
    kept = KeptFiles(names)
    with tarfile.open(path) as tar:
        read_members(tar, kept, progress)
    return kept.tree(ImageConfig(reference=str(path)))


def _read(store: Store, image: SavedImage, names: Iterable[str], progress: Progress) -> ImageTree:
    kept = KeptFiles(names)
    for number, layer in enumerate(image.layers, 1):
        progress(f"layer {number} of {len(image.layers)}")
        with store.open(layer) as file, _unpacked(file, layer) as tar:
            read_members(tar, kept)
        kept.end_layer()
    return kept.tree(image.config)


# ---- layers ----


@contextmanager
def _unpacked(file: IO[bytes], layer: str) -> Iterator[tarfile.TarFile]:
    head = file.read(4)
    file.seek(0)
    if head != ZSTD:
        with tarfile.open(fileobj=file, mode="r:*") as tar:
            yield tar
        return
    program = shutil.which("zstd")
    if program is None:
        raise InputError(
            f"layer {layer} is compressed with zstd, and there is no zstd on this host",
            hint="install it (apt-get install zstd), or load the image into an engine and name it",
        )
    with subprocess.Popen(
        [program, "--decompress", "--stdout", "--quiet"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        feeder = threading.Thread(target=partial(_feed, file, process.stdin), daemon=True)
        feeder.start()
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
                yield tar
        finally:
            process.kill()
            feeder.join()


def _feed(file: IO[bytes], pipe: IO[bytes] | None) -> None:
    """Copy a layer into a pipe, and close it."""
    if pipe is None:
        return
    try:
        with pipe:
            shutil.copyfileobj(file, pipe, 1 << 20)
    except OSError:  # nobody reads on
        pass


# ---- descriptions ----


def described(store: Store, reference: str) -> SavedImage:
    """Return the image `reference` of a store, or its only one. Raises ValueError or KeyError."""
    if "manifest.json" in store.names():
        manifest = _chosen(_json(store, "manifest.json"), reference, _tags)
        digits = posixpath.basename(manifest["Config"]).removesuffix(".json")
        config = _settings(_json(store, manifest["Config"]), _tags(manifest), reference, digits)
        return SavedImage(config, tuple(posixpath.normpath(one) for one in manifest["Layers"]))
    listed = [one for one in _json(store, "index.json")["manifests"] if not _is_attestation(one)]
    named = {tuple(_annotated(one)): one for one in listed}
    top = _chosen(list(named.values()), reference, _annotated) if len(named) > 1 else None
    manifest = _manifest(store, [top] if top else listed)
    digest = str(manifest["config"]["digest"])
    config = _settings(
        _json(store, _blob(manifest["config"])),
        _annotated(top or listed[0]),
        reference,
        digest.partition(":")[2],
    )
    return SavedImage(config, tuple(map(_blob, manifest["layers"])))


def _settings(
    config: Mapping[str, Any], tags: Sequence[str], reference: str, digits: str
) -> ImageConfig:
    name = reference if reference in tags else next(iter(tags), "")
    return ImageConfig.of(config, reference=name, id=f"sha256:{digits}")


def _chosen(images: Sequence[Any], reference: str, names_of: Any) -> Any:
    """Return the image that has the name `reference`, or the only one."""
    if len(images) == 1:
        return images[0]
    fitting = [one for one in images if reference and reference in names_of(one)]
    if len(fitting) != 1:
        names = ", ".join(name for one in images for name in names_of(one)[:1])
        raise ValueError(f"it has {len(images)} images ({names}): name one with --image")
    return fitting[0]


def _tags(manifest: Mapping[str, Any]) -> list[str]:
    return [str(tag) for tag in manifest.get("RepoTags") or ()]


def _annotated(descriptor: Mapping[str, Any]) -> list[str]:
    notes = descriptor.get("annotations") or {}
    keys = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
    return [str(notes[key]) for key in keys if key in notes]


def _is_attestation(descriptor: Mapping[str, Any]) -> bool:
    notes = descriptor.get("annotations") or {}
    return "vnd.docker.reference.type" in notes


def _manifest(store: Store, descriptors: Sequence[Mapping[str, Any]], depth: int = 0) -> Any:
    """Return the manifest of the image for this kind of machine."""
    names = store.names()
    usable = [one for one in descriptors if not _is_attestation(one) and _blob(one) in names]
    if not usable or depth > MOST_NESTED:
        raise ValueError("its index names no image of which the files are here")
    manifest = _json(store, _blob(min(usable, key=_foreign)))
    return (
        _manifest(store, manifest["manifests"], depth + 1) if "manifests" in manifest else manifest
    )


def _foreign(descriptor: Mapping[str, Any]) -> int:
    """Return how far a platform is from linux/amd64, which all hosts of Instinct GPUs have."""
    platform = descriptor.get("platform")
    if not platform:
        return 1
    pair = platform.get("os", "linux"), platform.get("architecture", "amd64")
    return 0 if pair == ("linux", "amd64") else 2


def _blob(described: Mapping[str, Any]) -> str:
    return "blobs/" + str(described["digest"]).replace(":", "/")


def _json(store: Store, name: str) -> Any:
    if name not in store.names():
        raise KeyError(f"{name} is missing")
    with store.open(name) as file:
        return json.loads(file.read(MOST_JSON))
