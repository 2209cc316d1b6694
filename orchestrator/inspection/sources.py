"""Files of an image, from a folder, or from a container without starting it."""

from __future__ import annotations

import os
import posixpath
import re
import stat
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.container.image import EngineError
from orchestrator.errors import InputError
from orchestrator.inspection.tree import ImageConfig, ImageFile, ImageTree
from orchestrator.words import quoted

if TYPE_CHECKING:
    from docker import DockerClient

MOST_TEXT = 1 << 20
"""Bytes of a kept file: longer files are data."""
MOST_KEPT = 256 << 20
MOST_FILES = 2_000_000
MOST_PATH = 4096
"""As Linux: characters of a path."""
MOST_FOLDERS = 200
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


class Header(tarfile.TarInfo):
    """A member of a tar. tarfile takes a damaged header after the first for the end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, *settings: str) -> Header:
        try:
            return super().frombuf(buf, *settings)
        except tarfile.HeaderError as error:
            if buf.strip(b"\0"):
                raise tarfile.ReadError(f"a header is damaged: {error}") from error
            raise


class KeptFiles:
    """An image's files, layer by layer, with contents that may matter, up to MOST_KEPT."""

    def __init__(self, names: Iterable[str]) -> None:
        self.files: dict[str, ImageFile] = {}
        self.mentions: dict[str, str] = {}
        self.whole = True
        self.bytes = 0
        """Of all layers."""
        self._layer: dict[str, ImageFile] = {}
        self._gone: set[str] = set()
        self._opaque: set[str] = set()
        self._names = {name.encode() for name in names}
        self._left = MOST_KEPT

    def add(self, file: ImageFile, read: Callable[[], bytes]) -> None:
        """`read` is called only for content that may matter."""
        if len(self.files) + len(self._layer) >= MOST_FILES:
            self.whole = False
            return
        content = None
        self.bytes += file.size
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
        self._layer[file.path] = replace(file, content=content)

    def link(self, path: str, target: str) -> None:
        source = self._layer.get(target) or self.files.get(target)
        if source is not None:
            self._layer[path] = replace(source, path=path)

    def remove(self, path: str, *, inside: bool = False) -> None:
        """Remove a file or folder of lower layers; `inside`: only its content."""
        gone = self._opaque if inside else self._gone
        if len(gone) < MOST_FILES:
            gone.add(path)
        else:
            self.whole = False

    def end_layer(self) -> None:
        if self.files:
            self.files = {
                path: file for path, file in self.files.items() if not self._is_covered(path)
            }
        self.files.update(self._layer)
        self._layer, self._gone, self._opaque = {}, set(), set()

    def _is_covered(self, path: str) -> bool:
        if path in self._gone:
            return True
        while (path := posixpath.dirname(path)) != "/":
            over = self._layer.get(path)
            if path in self._gone or path in self._opaque or (over and over.kind != "folder"):
                return True
        return "/" in self._opaque

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
        self.end_layer()
        whole = complete and self.whole
        return ImageTree(self.files.values(), config, complete=whole, mentions=self.mentions)


def _is_text(path: str, content: bytes) -> bool:
    return path.endswith(_TEXT) or b"\0" not in content[:4096]


def read_folder(
    folder: Path, names: Iterable[str] = (), config: ImageConfig | None = None
) -> ImageTree:
    """Return an unpacked image's files. Raises InputError."""
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder")
    kept = KeptFiles(names)
    unread: list[OSError | tarfile.ReadError] = []
    for place, folders, files in os.walk(folder, onerror=unread.append):
        for name in [*folders, *files]:
            full = os.path.join(place, name)
            try:
                path = _path(os.path.relpath(full, folder))
                kept.add(_described(path, os.lstat(full), full), partial(_read_file, full))
            except (OSError, tarfile.ReadError) as error:
                unread.append(error)
    return kept.tree(config or ImageConfig(reference=str(folder)), complete=not unread)


def _read_file(path: str) -> bytes:
    # The folder may change meanwhile: never wait for a pipe, never follow a link out of it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    with open(descriptor, "rb") as file:
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
    """Return an engine's image, through a container without starting it.

    Its whole file system passes the engine's socket: about a minute for 50 GB. Raises EngineError.
    """
    from orchestrator.container.code import Pieces
    from orchestrator.container.image import image_of
    from orchestrator.container.local import find_image

    if find_image(client, reference) is None:
        raise EngineError(
            f"the engine does not have {reference}",
            hint=f"orchestrator images pull --image {quoted(reference)}, or --from a tar of it",
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
    # for images without a command; it never runs
    container = api.create_container(known.id, command=["true"], labels={"orchestrator": "inspect"})
    try:
        pieces = api.export(container["Id"], chunk_size=1 << 21)
        kept = KeptFiles(names)
        with (
            Pieces.buffered(pieces) as stream,
            tarfile.open(fileobj=stream, mode="r|", tarinfo=Header) as tar,
        ):
            read_members(tar, kept, progress)
        return kept.tree(config)
    except tarfile.TarError as error:
        raise EngineError(f"the engine's archive of the image cannot be read: {error}") from error
    finally:
        api.remove_container(container["Id"], v=True, force=True)


def read_members(
    tar: tarfile.TarFile, kept: KeptFiles, progress: Progress = lambda text: None
) -> None:
    """Add the members of a tar: a layer, or a whole file system."""
    done = 0
    while (member := tar.next()) is not None:
        # tarfile keeps all members: a gigabyte for a million files.
        tar.members.clear()  # type: ignore[attr-defined]
        path = _path(member.name)
        name = posixpath.basename(path)
        if name.startswith(".wh."):
            folder = posixpath.dirname(path)
            if name == ".wh..wh..opq":
                kept.remove(folder, inside=True)
            elif not name.startswith(".wh..wh."):  # other marks of AUFS
                kept.remove(posixpath.join(folder, name[len(".wh.") :]))
            continue
        kept.add(_of_member(path, member), partial(_content, tar, member))
        if member.islnk():
            kept.link(path, _path(member.linkname))
        done += member.size
        if done >> 33 != (done - member.size) >> 33:
            progress(f"{done / 1e9:.0f} GB read")


def _path(name: str) -> str:
    """Return the absolute path of a name. Raises ReadError for a path that no image needs."""
    # Two slashes at the start would stay: normpath keeps them.
    path = posixpath.normpath("/" + name.lstrip("/")) if len(name) <= MOST_PATH else ""
    if not path or path.count("/") > MOST_FOLDERS:
        raise tarfile.ReadError(
            f"a path has more than {MOST_PATH} characters or {MOST_FOLDERS} folders: {name[:60]}..."
        )
    return path


def _of_member(path: str, member: tarfile.TarInfo) -> ImageFile:
    if member.issym():
        _path(member.linkname)
        return ImageFile(path, "link", member.mode, member.uid, link=member.linkname)
    if member.isdir():
        return ImageFile(path, "folder", member.mode, member.uid)
    if member.isfile() or member.islnk():
        return ImageFile(path, "file", member.mode, member.uid, member.size)
    return ImageFile(path, "other", member.mode, member.uid)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read(MOST_TEXT) if file else b""
