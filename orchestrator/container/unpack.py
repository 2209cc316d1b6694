"""Unpacking the archive of somebody's image: nothing outside the folder is written or linked.

Paths are opened component by component, never through a link, and links are made last. tarfile's
filters could be led outside before 3.11.13, 3.12.11 and 3.13.4 (CVE-2025-4517).
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO

from orchestrator.errors import InputError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_COMPONENTS = 200
"""A path has at most 4096 bytes."""

Parts = tuple[str, ...]


@dataclass
class Unpacked:
    """`left_out`: devices, and links to places outside."""

    files: int = 0
    bytes: int = 0
    left_out: list[str] = field(default_factory=list)

    def count(self, size: int) -> None:
        """Count a file of `size` bytes."""
        self.files += 1
        self.bytes += size


def unpack(tar: tarfile.TarFile, folder: str | os.PathLike[str]) -> Unpacked:
    """Unpack an archive into a folder of this user.

    No owners, no set-uid, no right to write for others. A link stays inside its path's first
    component. Raises InputError for a path outside, OSError.
    """
    unpacked, links = Unpacked(), dict[Parts, str]()
    top = os.open(folder, _FOLDER)
    try:
        for member in tar:
            _take(tar, member, top, unpacked, links)
        for path, target in links.items():
            if not _link(top, path, target):
                unpacked.left_out.append("/".join(path))
    finally:
        os.close(top)
    return unpacked


def _take(
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
    top: int,
    unpacked: Unpacked,
    links: dict[Parts, str],
) -> None:
    path = _parts(member.name)
    if not path:
        return
    links.pop(path, None)  # a later member of the same name replaces it
    if member.isdir():
        with _below(top, path):
            pass
    elif member.issym():
        links[path] = member.linkname
    elif member.islnk():
        if not _hard_link(top, path, _parts(member.linkname)):
            unpacked.left_out.append(member.name)
    elif member.isfile() and (content := tar.extractfile(member)) is not None:
        _file(top, path, member, content)
        unpacked.count(member.size)
    else:
        unpacked.left_out.append(member.name)


def _parts(name: str) -> Parts:
    """Return the path's components. Raises InputError unless it is inside."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or ".." in parts or "\0" in name or len(parts) > MOST_COMPONENTS:
        raise InputError(f"the image's archive is not to be trusted: {name[:200]!r} is outside")
    return parts


@contextmanager
def _below(top: int, path: Parts, *, make: bool = True) -> Iterator[int]:
    """Open a folder below `top`. Raises OSError for a link or file on the way."""
    here = os.dup(top)
    try:
        for part in path:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=here)
            inner = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


def _file(top: int, path: Parts, member: tarfile.TarInfo, content: IO[bytes]) -> None:
    with _below(top, path[:-1]) as folder:
        with suppress(FileNotFoundError):
            os.unlink(path[-1], dir_fd=folder)
        fd = os.open(path[-1], _NEW, member.mode & 0o755 | 0o600, dir_fd=folder)
        with open(fd, "wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
            file.flush()
            os.utime(file.fileno(), (member.mtime, member.mtime))


def _hard_link(top: int, path: Parts, target: Parts) -> bool:
    """Link a file unpacked before; return whether it exists."""
    try:
        with _below(top, target[:-1], make=False) as source, _below(top, path[:-1]) as folder:
            os.link(
                target[-1], path[-1], src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False
            )
    except (OSError, IndexError):
        return False
    return True


def _link(top: int, path: Parts, target: str) -> bool:
    """Make a link if its target is inside; return whether it is.

    `..` may only stand at the start: behind a name it leads to the parent of the name's target.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    if target.startswith("/") or ".." in parts[ups:] or ups > len(path) - 2:
        return False
    try:
        with _below(top, path[:-1]) as folder:
            os.symlink(target, path[-1], dir_fd=folder)
    except (OSError, ValueError):
        return False
    return True
