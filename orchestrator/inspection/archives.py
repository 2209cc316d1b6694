"""Reading an image's layers: `docker save`, OCI layout, file system tar, or registry."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import posixpath
import shutil
import subprocess
import tarfile
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Protocol, cast

from orchestrator.container.local import split_reference
from orchestrator.container.registry import PIECE, Blob, Registry
from orchestrator.errors import InputError
from orchestrator.inspection.sources import (
    MOST_TEXT,
    Header,
    KeptFiles,
    Progress,
    read_folder,
    read_members,
)
from orchestrator.inspection.tree import ImageConfig, ImageTree
from orchestrator.onnode.kernel.regular import open_regular
from orchestrator.words import quoted

ZSTD = b"\x28\xb5\x2f\xfd"
MOST_JSON = 8 * MOST_TEXT
MOST_NESTED = 8
"""Indexes in indexes."""
MOST_HEADER = 4 * MOST_TEXT
"""Bytes read from a tar at once: long names and attributes are in memory."""
MOST_MEMBERS = 10_000
"""Of an archive with images."""
MOST_HEADERS = 64 << 20
MOST_GROWTH = 200
"""Multiple of its size to which a layer may unpack; real layers stay below 20."""
LEAST_LIMIT = 4 << 30
"""Smaller layers may grow more: zeros do."""
DAMAGE = (
    *(OSError, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError),
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError),
)


class Readable(Protocol):
    def read(self, count: int, /) -> bytes: ...


class Store(Protocol):
    def has(self, name: str) -> bool: ...

    def size(self, name: str) -> int: ...

    def open(self, name: str) -> io.BufferedReader: ...


class TarStore:
    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._members: dict[str, tarfile.TarInfo] = {}
        headers = 0
        # Not all members: a file system has millions.
        while (member := tar.next()) is not None and len(self._members) < MOST_MEMBERS:
            self._members[posixpath.normpath(member.name)] = member
            headers += member.offset_data - member.offset
            if headers > MOST_HEADERS:
                raise tarfile.ReadError(f"its headers have more than {MOST_HEADERS} bytes")

    def has(self, name: str) -> bool:
        return name in self._members

    def size(self, name: str) -> int:
        return self._member(name).size

    def _member(self, name: str) -> tarfile.TarInfo:
        member = self._members[name]
        if member.issym():  # docker save: a layer of several images
            return self._members[
                posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))
            ]
        return self._members[posixpath.normpath(member.linkname)] if member.islnk() else member

    def open(self, name: str) -> io.BufferedReader:
        member = self._member(name)
        file = self._tar.extractfile(member) if member.isfile() else None
        if not isinstance(file, io.BufferedReader):
            raise KeyError(f"{name} is no file")
        return file


class FolderStore:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, name: str) -> bool:
        return self._path(name).is_file()

    def size(self, name: str) -> int:
        return self._path(name).stat().st_size

    def open(self, name: str) -> io.BufferedReader:
        return _opened(self._path(name))

    def _path(self, name: str) -> Path:
        if posixpath.isabs(name) or ".." in name.split("/"):
            raise KeyError(f"{name} is outside of the folder")
        return self._folder / name


class RegistryStore:
    """A registry's image as an OCI layout: everything that its descriptions name exists."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._blobs: dict[str, Blob] = {}
        self._manifests: set[str] = set()
        self.digest, top = registry.manifest()
        index = json.dumps({"manifests": [{"digest": self.digest}]}).encode()
        self._known = {"index.json": index, _blob({"digest": self.digest}): top}
        self._note(top)

    def has(self, name: str) -> bool:
        return name in self._known or name in self._blobs

    def size(self, name: str) -> int:
        return self._blobs[name].size

    def open(self, name: str) -> io.BufferedReader:
        if name in self._known:
            return _in_memory(self._known[name])
        if name in self._manifests:
            _, content = self._registry.manifest(self._blobs[name].digest)
            self._note(content)
            return _in_memory(content)
        return self._registry.blob(self._blobs[name])

    def _note(self, content: bytes) -> None:
        described = json.loads(content)
        manifests = described.get("manifests") or []
        layers = [described["config"], *described["layers"]] if not manifests else []
        self._manifests.update(map(_blob, manifests))
        self._blobs.update({_blob(blob): Blob.of(blob) for blob in (*manifests, *layers)})


@dataclass(frozen=True)
class SavedImage:
    """A stored image; its oldest layer comes first."""

    config: ImageConfig
    layers: tuple[str, ...]


def read_saved(
    path: Path,
    names: Iterable[str] = (),
    progress: Progress = lambda text: None,
    *,
    reference: str = "",
) -> ImageTree:
    """Return a saved or unpacked image; of several images `reference`. Raises InputError."""
    try:
        if path.is_dir():
            if not any((path / name).is_file() for name in ("oci-layout", "manifest.json")):
                return read_folder(path, names)
            store: Store = FolderStore(path)
            return _read(store, described(store, reference), names, progress)
        with (
            _opened(path) as file,
            _seekable(file, path) as plain,
            tarfile.TarFile(fileobj=_Bounded(plain), tarinfo=Header) as tar,  # type: ignore[arg-type]
        ):
            store = TarStore(tar)
            if not (store.has("manifest.json") or store.has("index.json")):
                return _read_root(path, names, progress)
            return _read(store, described(store, reference), names, progress)
    except DAMAGE as error:
        raise InputError(
            f"{path}: this cannot be read as an image: {_short(error)}",
            hint="docker save -o image.tar IMAGE makes one",
        ) from error


def read_registry(
    registry: Registry, names: Iterable[str] = (), progress: Progress = lambda text: None
) -> ImageTree:
    """Return a registry's image, without storing its layers. Raises EngineError or InputError."""
    try:
        store = RegistryStore(registry)
        image = described(store, "")
        named = f"{split_reference(registry.reference)[0]}@{store.digest}"
        config = replace(image.config, reference=registry.reference, digests=(named,))
        return _read(store, replace(image, config=config), names, progress)
    except DAMAGE as error:
        raise InputError(
            f"{registry.reference}: its answers cannot be read as an image: {_short(error)}",
            hint="pull the image with an engine and inspect it there",
        ) from error


def _in_memory(content: bytes) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(content))


def _short(error: BaseException) -> str:
    return str(error).partition("\n")[0].strip("':") or type(error).__name__


def _read_root(path: Path, names: Iterable[str], progress: Progress) -> ImageTree:
    kept = KeptFiles(names)
    with _opened(path) as file:
        _read_layer(file, path.name, path.stat().st_size, kept, progress)
    return kept.tree(ImageConfig(reference=str(path)))


def _read(store: Store, image: SavedImage, names: Iterable[str], progress: Progress) -> ImageTree:
    kept = KeptFiles(names)
    sizes = [store.size(layer) for layer in image.layers]
    for number, (layer, size) in enumerate(zip(image.layers, sizes, strict=True), 1):
        progress(
            f"layer {number} of {len(sizes)}: {size / 1e9:.1f} GB, "
            f"{sum(sizes[: number - 1]) / 1e9:.1f} of {sum(sizes) / 1e9:.1f} GB read"
        )
        with store.open(layer) as file:
            _read_layer(file, layer, size, kept)
            while file.read(PIECE):  # a registry's stream is verified at its end
                pass
        kept.end_layer()
    return kept.tree(replace(image.config, size=kept.bytes))


def _opened(path: Path) -> io.BufferedReader:
    """Raises OSError, also for a pipe."""
    return cast(io.BufferedReader, open_regular(path))


# ---- layers ----


def _read_layer(
    file: io.BufferedReader,
    name: str,
    size: int,
    kept: KeptFiles,
    progress: Progress = lambda text: None,
) -> None:
    with _unpacked(file, name) as plain:
        stream = _Forward(plain, max(size * MOST_GROWTH, LEAST_LIMIT))
        with tarfile.TarFile(fileobj=stream, tarinfo=Header) as tar:  # type: ignore[arg-type]
            read_members(tar, kept, progress)
        stream.finish()


class _Bounded:
    """An archive for tarfile, read at any place."""

    def __init__(self, stream: Readable) -> None:
        self._stream = cast(IO[bytes], stream)

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, place: int) -> int:
        return self._stream.seek(place)

    def read(self, count: int) -> bytes:
        if count > MOST_JSON:
            raise tarfile.ReadError(f"a name or attribute has {count} bytes")
        return self._stream.read(count)


class _Forward:
    """A bounded stream for tarfile, read from front to back."""

    def __init__(self, stream: Readable, most: int) -> None:
        self._stream = stream
        self._most = most
        self._place = 0

    def tell(self) -> int:
        return self._place

    def seek(self, place: int) -> int:
        if place < self._place:
            raise tarfile.StreamError("a file is named before its content")
        while self._place < place and self._taken(min(place - self._place, PIECE)):
            pass
        return self._place

    def read(self, count: int) -> bytes:
        if count > MOST_HEADER:
            raise tarfile.ReadError(f"a name or attribute has {count} bytes")
        parts = []
        while count > 0 and (part := self._taken(count)):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def finish(self) -> None:
        """Read to the end, where unpacking finds a stream's damages."""
        while self._taken(PIECE):
            pass

    def _taken(self, count: int) -> bytes:
        part = self._stream.read(count)
        self._place += len(part)
        if self._place > self._most:
            raise tarfile.ReadError(f"a layer grows to more than {self._most} bytes")
        return part


@contextmanager
def _seekable(file: io.BufferedReader, path: Path) -> Iterator[Readable]:
    if file.peek(4).startswith(ZSTD):
        raise InputError(
            f"{path}: an archive compressed with zstd can only be read from front to back",
            hint=f"zstd -d {quoted(str(path))} -o image.tar, then name image.tar with --from",
        )
    with _unpacked(file, path.name) as plain:
        yield plain


@contextmanager
def _unpacked(file: io.BufferedReader, layer: str) -> Iterator[Readable]:
    head = file.peek(4)
    if head.startswith(ZSTD):
        with _unzstd(file, layer) as plain:
            yield plain
    elif head.startswith(b"\x1f\x8b"):
        with gzip.open(file) as unpacked:
            yield unpacked
    elif head.startswith(b"BZh"):
        with bz2.open(file) as unpacked:
            yield unpacked
    elif head.startswith(b"\xfd7zXZ"):
        with lzma.open(file) as unpacked:
            yield unpacked
    else:
        yield file


@contextmanager
def _unzstd(file: IO[bytes], layer: str) -> Iterator[IO[bytes]]:
    program = shutil.which("zstd")
    if program is None:
        raise InputError(
            f"layer {layer} is compressed with zstd, and there is no zstd on this host",
            hint="install it (apt-get install zstd), or load the image into an engine and name it",
        )
    failures: list[Exception] = []
    with subprocess.Popen(
        [program, "--decompress", "--stdout", "--quiet"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        feeder = threading.Thread(target=_feed, args=(file, process.stdin, failures), daemon=True)
        feeder.start()
        try:
            if process.stdout is not None:
                yield process.stdout
            if process.wait():  # its output has been read to the end
                raise ValueError(f"zstd cannot unpack {layer}")
        except DAMAGE:
            process.kill()
            feeder.join()
            if failures:  # the archive ends because its source did
                raise failures[0] from None
            raise
        finally:
            process.kill()
            feeder.join()
    if failures:
        raise failures[0]


def _feed(file: IO[bytes], pipe: IO[bytes], failures: list[Exception]) -> None:
    with suppress(BrokenPipeError), pipe:  # nobody reads on
        try:
            while piece := file.read(PIECE):
                pipe.write(piece)
        except BrokenPipeError:
            raise
        except Exception as error:  # raised again by the reader
            failures.append(error)


# ---- descriptions ----


def described(store: Store, reference: str) -> SavedImage:
    """Return the image `reference`, or a store's only image. Raises ValueError or KeyError."""
    if store.has("manifest.json"):
        manifest = _chosen(_json(store, "manifest.json"), reference, _tags)
        config = _settings(store, manifest["Config"], _tags(manifest), reference)
        return SavedImage(config, tuple(posixpath.normpath(layer) for layer in manifest["Layers"]))
    listed = [
        entry for entry in _json(store, "index.json")["manifests"] if not _is_attestation(entry)
    ]
    named = {tuple(_annotated(entry)): entry for entry in listed}
    top = _chosen(list(named.values()), reference, _annotated) if len(named) > 1 else None
    manifest = _manifest(store, [top] if top else listed)
    config = _settings(store, _blob(manifest["config"]), _annotated(top or listed[0]), reference)
    return SavedImage(config, tuple(map(_blob, manifest["layers"])))


def _settings(store: Store, file: str, tags: Sequence[str], reference: str) -> ImageConfig:
    content = _content(store, file)
    name = reference if reference in tags else next(iter(tags), "")
    # An archive can claim any id by the file's name.
    digits = hashlib.sha256(content).hexdigest()
    return ImageConfig.of(json.loads(content), reference=name, id=f"sha256:{digits}")


def _chosen(images: Sequence[Any], reference: str, names_of: Any) -> Any:
    if len(images) == 1:
        return images[0]
    fitting = [image for image in images if reference and reference in names_of(image)]
    if len(fitting) != 1:
        names = ", ".join(name for image in images for name in names_of(image)[:1])
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
    usable = [
        descriptor
        for descriptor in descriptors
        if not _is_attestation(descriptor) and store.has(_blob(descriptor))
    ]
    if not usable or depth > MOST_NESTED:
        raise ValueError("its index names no image of which the files are here")
    manifest = _json(store, _blob(min(usable, key=_foreign)))
    return (
        _manifest(store, manifest["manifests"], depth + 1) if "manifests" in manifest else manifest
    )


def _foreign(descriptor: Mapping[str, Any]) -> int:
    """Return a platform's distance from linux/amd64, which all hosts of Instinct GPUs have."""
    platform = descriptor.get("platform")
    if not platform:
        return 1
    pair = platform.get("os", "linux"), platform.get("architecture", "amd64")
    return 0 if pair == ("linux", "amd64") else 2


def _blob(described: Mapping[str, Any]) -> str:
    return "blobs/" + str(described["digest"]).replace(":", "/")


def _json(store: Store, name: str) -> Any:
    return json.loads(_content(store, name))


def _content(store: Store, name: str) -> bytes:
    if not store.has(name):
        raise KeyError(f"{name} is missing")
    with store.open(name) as file:
        return file.read(MOST_JSON)
