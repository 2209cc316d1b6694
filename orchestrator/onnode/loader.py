"""Run a bundle's program from its archive, read once and compared with its hash.

Started by value, so that no file decides what runs: python3 -I -S -B -c TEXT ARCHIVE SHA256 WORDS.
"""

import sys

if sys.version_info < (3, 9):  # before anything unreadable for an older Python
    raise SystemExit(
        "orchestrator: %s on %s is Python %d.%d; the bundle needs 3.9 or newer: install python3, "
        "or name another interpreter (`python:` in the site file, PYTHON=... for this bundle)"
        % (sys.executable, __import__("os").uname()[1], sys.version_info[0], sys.version_info[1])
    )
import hashlib
import os
import zlib
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


class Carried:
    """Imports a bundle's package `lib`. `files`: path -> content."""

    def __init__(self, files: "dict[str, bytes]") -> None:
        self.files = files

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> "ModuleSpec | None":
        if name.partition(".")[0] != "lib":
            return None
        stem = name.replace(".", "/")
        folder = any(file.startswith(stem + "/") for file in self.files)  # most have no __init__.py
        if not (folder or stem + ".py" in self.files):
            return None
        file = stem + ("/__init__.py" if folder else ".py")
        return ModuleSpec(name, self, origin=file, is_package=folder)  # type: ignore[arg-type]

    def create_module(self, spec: object) -> None:
        """Leave that to Python."""

    def exec_module(self, module: "ModuleType") -> None:
        file = str(module.__spec__ and module.__spec__.origin)
        exec(compile(self.files.get(file, b""), file, "exec", dont_inherit=True), module.__dict__)

    def get_source(self, name: str) -> str:
        """For tracebacks."""
        spec = self.find_spec(name)
        return self.files.get(str(spec and spec.origin), b"").decode()


def unpack(data: bytes) -> "dict[str, bytes]":
    """Return the files of a compressed tar archive."""
    tar, files, at = zlib.decompress(data, 31), {}, 0
    while tar[at : at + 1] > b"\0":
        name, size = tar[at : at + 100].rstrip(b"\0"), int(tar[at + 124 : at + 135], 8)
        files[name.decode("utf-8", "surrogateescape")] = tar[at + 512 : at + 512 + size]
        at += 512 + (size + 511) // 512 * 512
    return files


def run(archive: str, sha256: str, *arguments: str) -> int:
    """Run an archive's program; return its exit status."""
    try:
        # A pipe in its place must not be waited for.
        with open(os.open(archive, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = file.read(1 << 28)
    except OSError as error:
        raise SystemExit(f"orchestrator: {archive}: {error.strerror}") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise SystemExit(
            f"orchestrator: {archive} was changed, and is not run; "
            "`orchestrator resume` writes it anew"
        )
    carried = Carried(unpack(data))
    sys.meta_path.insert(0, carried)
    from importlib import import_module

    return int(import_module("lib.__main__").main((carried.files, archive, data), *arguments))


if __name__ == "__main__":
    raise SystemExit(run(*sys.argv[1:]))
