"""Reading an image's files: from a folder, a tar, or a container without starting it."""

from __future__ import annotations

import json
import os
import posixpath
import re
import stat
import tarfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from orchestrator.container.image import EngineError
from orchestrator.errors import InputError
from orchestrator.inspection.tree import ImageConfig, ImageFile, ImageTree

if TYPE_CHECKING:
    from docker import DockerClient

MOST_TEXT = 1 << 20
"""Bytes of a kept file: longer files are data."""
MOST_KEPT = 256 << 20
MOST_FILES = 2_000_000
_TEXT = (".sh", ".bash", ".py", ".yaml", ".yml", ".txt", ".cfg", ".toml", ".sub", ".env")
_FACTS = re.compile(
    r"(\.dist-info|\.egg-info)(/METADATA|/PKG-INFO)?$|/\.info/version|/os-release$|/torch/version\.py$"
    r"|/libibverbs\.d/|/etc/ld\.so\.conf"
)
_LIBRARY = re.compile(
    r"/(site|dist)-packages/|/usr/(share|include|src)/|/usr/lib/python|/lib/python3[^/]*/|/opt/conda/"
    r"|/proc/|/sys/"
)
_SOURCE = re.compile(r"\.(py|h|hpp|cpp|cc|hip)$")
_NAME = re.compile(rb"[A-Z][A-Z0-9_]{2,}")

Progress = Callable[[str], None]


class _Kept:
    """Which contents are kept, up to a total."""

    def __init__(self, names: Iterable[str]) -> None:
        self.files: dict[str, ImageFile] = {}
        self.mentions: dict[str, str] = {}
        self.whole = True
        self._names = {name.encode() for name in names}
        self._left = MOST_KEPT

    def add(self, file: ImageFile, read: Callable[[], bytes]) -> None:
        """Add a file. `read` is called only for a content that may matter."""
        if len(self.files) >= MOST_FILES:
            self.whole = False
            return
        content = None
        if file.kind == "file" and 0 < file.size <= MOST_TEXT:
            if self._matters(file):
                content = read()
                if not _is_text(file.path, content) or len(content) > self._left:
                    self.whole = self.whole and len(content) <= self._left
                    content = None
                else:
                    self._left -= len(content)
            elif self._names and _SOURCE.search(file.path):
                self._mention(file.path, read())
        self.files[file.path] = ImageFile(
            file.path, file.kind, file.mode, file.uid, file.size, file.link, content
        )

    def remove(self, path: str) -> None:
        """Remove a file and everything below it."""
        inside = path.rstrip("/") + "/"
        for name in [one for one in self.files if one == path or one.startswith(inside)]:
            del self.files[name]

    def _matters(self, file: ImageFile) -> bool:
        if _FACTS.search(file.path):
            return True
        if _LIBRARY.search(file.path):
            return False
        return file.path.endswith(_TEXT) or (
            file.is_executable and "." not in file.path.rpartition("/")[2]
        )

    def _mention(self, path: str, content: bytes) -> None:
        for name in self._names.intersection(_NAME.findall(content)):
            self.mentions.setdefault(name.decode(), path)
            self._names.discard(name)

    def tree(self, config: ImageConfig, *, complete: bool = True) -> ImageTree:
        whole = complete and self.whole
        return ImageTree(self.files.values(), config, complete=whole, mentions=self.mentions)


def _is_text(path: str, content: bytes) -> bool:
    return path.endswith(_TEXT) or b"\0" not in content[:4096]


def read_folder(
    folder: Path, names: Iterable[str] = (), config: ImageConfig | None = None
) -> ImageTree:
    """Return the files below `folder`, an unpacked image. Raises InputError."""
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder")
    kept = _Kept(names)
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            full = os.path.join(place, name)
            path = "/" + os.path.relpath(full, folder)
            info = os.lstat(full)
            kept.add(_described(path, info, full), partial(_read_file, full))
    return kept.tree(config or ImageConfig(reference=str(folder)))


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(MOST_TEXT)


def _described(path: str, info: os.stat_result, full: str) -> ImageFile:
    mode = stat.S_IMODE(info.st_mode)
    if stat.S_ISLNK(info.st_mode):
        return ImageFile(path, "link", mode, info.st_uid, link=os.readlink(full))
    if stat.S_ISDIR(info.st_mode):
        return ImageFile(path, "folder", mode, info.st_uid)
    kind = "file" if stat.S_ISREG(info.st_mode) else "other"
    return ImageFile(path, kind, mode, info.st_uid, info.st_size)  # type: ignore[arg-type]


def read_engine(
    client: DockerClient, reference: str, names: Iterable[str], progress: Progress
) -> ImageTree:
    """Return the files of an engine's image, through a container without starting it.

    Its whole file system goes through the engine's socket once: about a minute for 50 GB.
    Raises EngineError.
    """
    from orchestrator.container.code import Pieces
    from orchestrator.container.image import image_of
    from orchestrator.container.local import find_image

    if find_image(client, reference) is None:
        raise EngineError(
            f"the engine does not have {reference}",
            hint=f"orchestrator images pull --image {reference}, or --from a tar of it",
        )
    api = client.api
    image = api.inspect_image(reference)
    known = image_of(image)
    config = ImageConfig.of(
        {**image, "history": api.history(reference)[::-1]},
        reference=reference,
        id=known.id,
        digests=known.digests,
        size=known.size,
    )
    # An image without a command of its own needs some command here; it never runs.
    container = api.create_container(known.id, command=["true"], labels={"orchestrator": "inspect"})
    try:
        pieces = api.export(container["Id"], chunk_size=1 << 21)
        kept = _Kept(names)
        with tarfile.open(fileobj=Pieces.buffered(pieces), mode="r|") as tar:
            _read_members(tar, kept, progress)
        return kept.tree(config)
    except tarfile.TarError as error:
        raise EngineError(f"the engine's archive of the image cannot be read: {error}") from error
    finally:
        api.remove_container(container["Id"], v=True, force=True)


def _read_members(
    tar: tarfile.TarFile, kept: _Kept, progress: Progress = lambda text: None
) -> None:
    done = 0
    for member in tar:
        path = posixpath.normpath("/" + member.name)
        name = posixpath.basename(path)
        if name.startswith(".wh."):
            folder = posixpath.dirname(path)
            if name == ".wh..wh..opq":
                kept.remove(folder)
            else:
                kept.remove(posixpath.join(folder, name[len(".wh.") :]))
            continue
        kept.add(_of_member(path, member), partial(_content, tar, member))
        if path in kept.files and member.islnk():
            _link(kept, path, posixpath.normpath("/" + member.linkname))
        done += member.size
        if done >> 33 != (done - member.size) >> 33:
            progress(f"{done / 1e9:.0f} GB read")


def _of_member(path: str, member: tarfile.TarInfo) -> ImageFile:
    if member.issym():
        return ImageFile(path, "link", member.mode, member.uid, link=member.linkname)
    if member.isdir():
        return ImageFile(path, "folder", member.mode, member.uid)
    if member.isfile() or member.islnk():
        return ImageFile(path, "file", member.mode, member.uid, member.size)
    return ImageFile(path, "other", member.mode, member.uid)


def _link(kept: _Kept, path: str, target: str) -> None:
    """Give a hard link the content of its file."""
    source = kept.files.get(target)
    if source is not None:
        kept.files[path] = ImageFile(
            path, source.kind, source.mode, source.uid, source.size, source.link, source.content
        )


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read(MOST_TEXT) if file else b""


def read_tar(
    path: Path, names: Iterable[str] = (), progress: Progress = lambda text: None
) -> ImageTree:
    """Return the files of a tar: of `docker save`, of an OCI layout, or of a whole file system.

    Raises InputError.
    """
    try:
        with tarfile.open(path) as tar:
            described = _description(tar)
            kept = _Kept(names)
            if described is None:
                with tarfile.open(path) as again:
                    _read_members(again, kept, progress)
                return kept.tree(ImageConfig(reference=str(path)))
            config, layers = described
            for number, layer in enumerate(layers, 1):
                progress(f"layer {number} of {len(layers)}")
                file = tar.extractfile(layer)
                if file is None:
                    raise InputError(f"{path}: {layer} is no file")
                with _layer(file, path, layer) as members:
                    _read_members(members, kept)
            return kept.tree(config)
    except (OSError, tarfile.TarError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(
            f"{path}: this tar cannot be read as an image: {str(error).partition(chr(10))[0].rstrip(':')}",
            hint="docker save -o image.tar IMAGE makes one",
        ) from error


def _layer(file: IO[bytes], path: Path, layer: str) -> tarfile.TarFile:
    head = file.read(4)
    file.seek(0)
    if head == b"\x28\xb5\x2f\xfd":
        raise InputError(
            f"{path}: layer {layer} is compressed with zstd, which Python cannot read",
            hint="load it into an engine, and name the image",
        )
    return tarfile.open(fileobj=file, mode="r:*")


def _description(tar: tarfile.TarFile) -> tuple[ImageConfig, list[str]] | None:
    """Return the settings and the layers, oldest first; None for a tar of plain files."""
    members = {posixpath.normpath(name) for name in tar.getnames()}
    if "manifest.json" in members:
        manifest = _json(tar, "manifest.json")[0]
        config = _json(tar, manifest["Config"])
        digits = posixpath.basename(manifest["Config"]).removesuffix(".json")
        tags = manifest.get("RepoTags") or [""]
        settings = ImageConfig.of(config, reference=str(tags[0]), id=f"sha256:{digits}")
        return settings, [posixpath.normpath(one) for one in manifest["Layers"]]
    if "index.json" in members:
        manifest = _json(tar, _blob(_json(tar, "index.json")["manifests"][0]))
        while "manifests" in manifest:  # an index of platforms
            manifest = _json(tar, _blob(manifest["manifests"][0]))
        digest = manifest["config"]["digest"]
        settings = ImageConfig.of(_json(tar, _blob(manifest["config"])), id=digest)
        return settings, [_blob(one) for one in manifest["layers"]]
    return None


def _blob(described: Mapping[str, Any]) -> str:
    return "blobs/" + str(described["digest"]).replace(":", "/")


def _json(tar: tarfile.TarFile, name: str) -> Any:
    for spelled in (name, f"./{name}"):
        try:
            file = tar.extractfile(spelled)
        except KeyError:
            continue
        if file is not None:
            return json.loads(file.read(MOST_TEXT * 8))
    raise KeyError(f"{name} is missing")
