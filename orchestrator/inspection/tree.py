"""An image's files, as far as they were read."""

from __future__ import annotations

import posixpath
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal

MOST_LINKS = 40
"""As Linux: more symbolic links are a circle."""

Kind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, slots=True)
class ImageFile:
    """`content` is None if not kept; `size` is in bytes."""

    path: str
    kind: Kind
    mode: int = 0o644
    uid: int = 0
    size: int = 0
    link: str = ""
    content: bytes | None = None

    @property
    def is_executable(self) -> bool:
        return self.kind == "file" and bool(self.mode & 0o111)


@dataclass(frozen=True)
class ImageConfig:
    """`size` is in bytes, 0 if unknown; `created_by` has the oldest layer first."""

    reference: str = ""
    id: str = ""
    digests: tuple[str, ...] = ()
    size: int = 0
    architecture: str = ""
    user: str = ""
    workdir: str = "/"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    created_by: tuple[str, ...] = ()
    labels: frozenset[str] = frozenset()
    """Their names."""

    @property
    def is_stand_in(self) -> bool:
        """Return whether lab/image made it, perhaps under a published name."""
        return any(name.startswith("orchestrator.lab.") for name in self.labels)

    @classmethod
    def of(cls, inspected: Mapping[str, Any], **known: Any) -> ImageConfig:
        """Return the settings in an image's description."""
        config = inspected.get("config") or inspected.get("Config") or {}
        pairs = (str(pair).partition("=") for pair in config.get("Env") or ())
        return cls(
            architecture=str(inspected.get("architecture") or inspected.get("Architecture") or ""),
            user=str(config.get("User") or ""),
            workdir=str(config.get("WorkingDir") or "/"),
            entrypoint=_words(config.get("Entrypoint")),
            command=_words(config.get("Cmd")),
            environment={name: value for name, _, value in pairs},
            labels=frozenset(map(str, config.get("Labels") or ())),
            created_by=tuple(
                str(layer.get("created_by") or layer.get("CreatedBy") or "")
                for layer in inspected.get("history") or ()
            ),
            **known,
        )


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return ("/bin/sh", "-c", value)
    return tuple(map(str, value)) if isinstance(value, list) else ()


class ImageTree:
    """An image's files by absolute path.

    Unless `complete`, missing files may exist. `mentions`: variable in a library -> a file with its
    name.
    """

    def __init__(
        self,
        files: Iterable[ImageFile],
        config: ImageConfig,
        *,
        complete: bool = True,
        mentions: Mapping[str, str] | None = None,
    ) -> None:
        self.config = config
        self.complete = complete
        self.mentions = dict(mentions or {})
        self._files: MutableMapping[str, ImageFile] = {file.path: file for file in files}
        self._names: MutableMapping[str, set[str]] = {}
        for path in list(self._files):
            self._note(path)

    def _note(self, path: str) -> None:
        while path != "/":
            folder, name = posixpath.split(path)
            names = self._names.setdefault(folder, set())
            if name in names:
                return
            names.add(name)
            path = folder

    def overlay(self) -> ImageTree:
        """Return a copy for a walk to add files."""
        tree = copy(self)
        tree._files = ChainMap({}, self._files)
        tree._names = ChainMap({}, self._names)
        return tree

    def write(self, path: str, text: str) -> None:
        content = text.encode("utf-8", "replace")
        self._files[path] = ImageFile(path, "file", 0o755, size=len(content), content=content)
        folder, name = posixpath.split(path)
        self._names[folder] = {*self._names.get(folder, ()), name}

    def __iter__(self) -> Iterator[ImageFile]:
        return iter(self._files.values())

    def __len__(self) -> int:
        return len(self._files)

    def resolve(self, path: str) -> str:
        """Return `path` without symbolic links; the last part need not exist."""
        done, left = "/", [part for part in path.split("/") if part]
        links = 0
        while left:
            part = left.pop(0)
            if part in (".", ".."):
                done = posixpath.dirname(done) if part == ".." else done
                continue
            here = posixpath.join(done, part)
            file = self._files.get(here)
            if file is None or file.kind != "link" or links == MOST_LINKS:
                done = here
                continue
            links += 1
            if file.link.startswith("/"):
                done = "/"
            left[:0] = [part for part in file.link.split("/") if part]
        return done

    def get(self, path: str) -> ImageFile | None:
        return self._files.get(self.resolve(path))

    def exists(self, path: str) -> bool:
        place = self.resolve(path)
        return place in self._files or place in self._names or place == "/"

    def is_folder(self, path: str) -> bool:
        place = self.resolve(path)
        file = self._files.get(place)
        return place in self._names or place == "/" or (file is not None and file.kind == "folder")

    def names(self, folder: str) -> list[str]:
        return sorted(self._names.get(self.resolve(folder), ()))

    def text(self, path: str) -> str | None:
        """Return a file's text; None if missing or not kept."""
        file = self.get(path)
        if file is None or file.content is None:
            return None
        return file.content.decode("utf-8", "replace")

    def below(self, folder: str) -> Iterator[ImageFile]:
        place = self.resolve(folder)
        for name in sorted(self._names.get(place, ())):
            path = posixpath.join(place, name)
            file = self._files.get(path)
            if file is not None and file.kind != "folder":
                yield file
            yield from self.below(path) if path in self._names else ()

    def program(self, name: str, search: str) -> str | None:
        """Return a command's path in `search` ($PATH), or None."""
        for folder in search.split(":"):
            file = self.get(posixpath.join(folder or "/", name))
            if file is not None and file.is_executable:
                return posixpath.join(folder or "/", name)
        return None
