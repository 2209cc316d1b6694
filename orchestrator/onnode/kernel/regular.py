"""Read regular files of anybody, opened without waiting, up to a limit."""

from __future__ import annotations

import json
import os
import stat

TYPE_CHECKING = False  # importing typing is slow
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Union

    PathLike = Union[str, "os.PathLike[str]"]

MAX_BYTES = 16 << 20
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def open_fd(path: PathLike, flags: int = 0) -> tuple[int, int]:
    """Return descriptor and size. Raises OSError, also for irregular files."""
    fd = os.open(path, _READ | flags)
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            is_folder = stat.S_ISDIR(about.st_mode)
            what = "this is a folder, not a file" if is_folder else "no regular file"
            raise OSError(0, what, os.fspath(path))
    except OSError:
        os.close(fd)
        raise
    return fd, about.st_size


def open_regular(path: PathLike, *, raw: bool = False) -> BinaryIO:
    """Open for reading, `raw` without a buffer. Raises OSError, also for irregular files."""
    fd = open_fd(path)[0]
    # O_NONBLOCK has no effect on a regular file.
    return os.fdopen(fd, "rb", buffering=0 if raw else -1)


def read_with_time(path: PathLike, limit: int = MAX_BYTES) -> tuple[bytes, float]:
    """Return the first `limit` bytes and the time of change in seconds. Raises OSError.

    Opening makes an NFS client ask its server for the time.
    """
    fd = open_fd(path)[0]
    try:
        return _read(fd, limit), os.fstat(fd).st_mtime
    finally:
        os.close(fd)


def read_bytes(path: PathLike, limit: int = MAX_BYTES, *, follow: bool = True) -> bytes:
    """Raises OSError, also for irregular files, beyond `limit`, and for a link unless `follow`."""
    return read_fd(path, limit, *open_fd(path, 0 if follow else os.O_NOFOLLOW))


def read_fd(path: PathLike, limit: int, fd: int, size: int) -> bytes:
    """Read a file opened by `open_fd`, and close it. Raises OSError beyond `limit`."""
    try:
        if size > limit:
            raise OSError(0, f"it has {size} bytes, and at most {limit} are read", os.fspath(path))
        return _read(fd, size)
    finally:
        os.close(fd)


def _read(fd: int, size: int) -> bytes:
    """A failing server gives the first pages; the next read raises."""
    content = os.read(fd, size)
    while len(content) < size and (more := os.read(fd, size - len(content))):
        content += more
    return content


def parse(content: bytes) -> Any:
    """Parse JSON. Raises ValueError, also for NaN, half a surrogate, and deep nesting."""
    try:
        value = _DECODER.decode(content.decode())
        if b"\\ud" in content.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    return value


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
