"""A bundle's files in memory, their archive for nodes, and which parts of lib/ it carries.

They are read once: a file that changes later is never executed.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from typing import NamedTuple

from .regular import read_bytes

TYPE_CHECKING = False  # importing typing is slow
if TYPE_CHECKING:
    from typing import Union

    PathLike = Union[str, "os.PathLike[str]"]

LOADER = "lib/loader.py"
OUTPUTS = "job_*.out"
_BLOCK = 512


class Program(NamedTuple):
    """`archive`: its path, "" until written; `data`: its content; `folder`: the bundle started by
    hand, or ""."""

    files: Mapping[str, bytes]
    archive: str = ""
    data: bytes = b""
    folder: str = ""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def name(self) -> str:
        """The archive's file name, from its content."""
        return f"{self.sha256[:16]}.tar.gz"

    def packed(self) -> Program:
        """Fill `data`. Raises ValueError for too long names."""
        return self if self.data else self._replace(data=pack(self.files))

    def command(self, python: str, *arguments: str) -> list[str]:
        """Isolated from modules in a user's folders, and without byte code."""
        loader = self.files[LOADER].decode()
        start = [python or "python3", "-I", "-S", "-B", "-c", loader]
        return [*start, self.archive, self.sha256, *arguments]

    def below(self, prefix: str) -> dict[str, bytes]:
        """Return the files below a folder, without `prefix`."""
        return {
            name[len(prefix) :]: content
            for name, content in self.files.items()
            if name.startswith(prefix)
        }


def read(bundle: PathLike) -> Program:
    """Read a bundle's folder. Raises OSError."""
    files = {name: content for name, content in walk(bundle) if content is not None}
    return Program(files, folder=os.fspath(bundle))


def walk(bundle: PathLike) -> Iterator[tuple[str, bytes | None]]:
    """Yield (path below `bundle`, content) of every file; None for links and the like. Raises
    OSError.

    Leaves out byte code, empty folders, and output of jobs started in it (`--output` of job.sh).
    """
    if os.path.isdir(bundle):
        yield from _below(os.fspath(bundle), "")


def _below(folder: str, prefix: str) -> Iterator[tuple[str, bytes | None]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _below(entry.path, f"{prefix}{entry.name}/")
            elif prefix or not fnmatch(entry.name, OUTPUTS):
                plain = entry.is_file(follow_symlinks=False)
                yield prefix + entry.name, read_bytes(entry.path) if plain else None


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return a compressed tar archive of `files`; equal files give equal bytes. loader.py reads it.

    Raises ValueError for a name of more than 100 bytes.
    """
    parts = list[bytes]()
    for name, content in sorted(files.items()):
        path = name.encode("utf-8", "surrogateescape")
        if len(path) > 100:
            raise ValueError(f"{name}: the name has {len(path)} bytes, and at most 100 can be used")
        mode = 0o755 if content.startswith(b"#!") else 0o644
        fields = b"%-8s" * 3 % (b"%07o" % mode, b"%07o" % 0, b"%07o" % 0)
        head = path.ljust(100, b"\0") + fields.replace(b" ", b"\0")
        head += b"%011o\0%011o\0" % (len(content), 0)
        rest = b"0".ljust(101, b"\0") + b"ustar\x0000"
        checksum = b"%06o\0 " % (sum(head) + sum(rest) + 8 * ord(" "))
        parts += [(head + checksum + rest).ljust(_BLOCK, b"\0"), content]
        parts.append(b"\0" * (-len(content) % _BLOCK))
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(b"".join([*parts, b"\0" * 2 * _BLOCK])) + packer.flush()


# ---- the parts of lib/ that only some entries use ----


class LibPart(NamedTuple):
    """A file or folder of lib/, carried by a bundle whose entry has the `need`."""

    path: str
    need: str


PARTS = (
    LibPart("agent/reaper.py", "engine none"),
    LibPart("agent/container.py", "containers"),
    LibPart("agent/engine.py", "containers"),
    LibPart("agent/look.py", "look"),
    LibPart("agent/pull.py", "containers"),
    LibPart("agent/scratch.py", "scratch"),
    LibPart("agent/deep.py", "deep"),
    LibPart("loop/deep.py", "deep"),
    LibPart("policy/bandwidth.py", "deep"),
    LibPart("measure/", "deep"),
    LibPart("loop/notice.py", "notifications"),
    LibPart("loop/notify.py", "notifications"),
)
"""Other files are in every bundle."""

SITE = {
    "engine none": "`container: {engine: none}`",
    "containers": "an engine (`container: {engine: docker}`)",
    "deep": "`preflight: {deep: true}`",
    "notifications": "`notify:`",
    "scratch": "`container: {scratch: /a/local/folder}`",
}
"""Need -> its reason in the site file."""


def needs(engine: str, *, deep: bool, notifies: bool, scratch: bool) -> dict[str, bool]:
    return {
        "engine none": engine == "none",
        "containers": engine != "none",
        "deep": deep,
        "notifications": notifies,
        "scratch": scratch,
        "look": False,  # `orchestrator init` adds it
    }
