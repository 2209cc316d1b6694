"""A container's content, read inside it: packages, libraries, code, models and tokenizers.

Runs alone in any image with Python 3.7: `python3 -I -S -B contents.py CODE [DATA ...]`. Imports
nothing from the image. Prints tab-separated lines (part, name, value), then `hash`, part and their
hash, then `done`; again for each line of its input. A part beyond its limits gets no hash.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import sys
import time
from collections.abc import Iterator

LIMIT_S = 8.0
MOST_ENTRIES, MOST_FILES = 40000, 4000
MOST_BYTES, MOST_FILE_BYTES = 256 << 20, 32 << 20
CODE_ENDS: tuple[str, ...] = (
    ".py",
    ".sh",
    ".yaml",
    ".yml",
    ".toml",
    ".cfg",
    ".ini",
    ".c",
    ".cc",
    ".cpp",
    ".cu",
)
CODE_ENDS += (".cuh", ".h", ".hpp", ".hip", ".jinja", ".patch")
SKIPPED = {"__pycache__", "logs", "results", "outputs", "wandb", "mlruns", "nemo_experiments"}
LIBRARY = re.compile(
    r"lib(?:rccl|nccl|(?:rccl|nccl)-net.*|amdhip64|hsa-runtime64|MIOpen|hipblaslt|rocblas|ibverbs|"
    r"rdmacm|mlx5|ionic|bnxt_re.*)\.so.*",
    re.DOTALL,
)
PROVIDER = re.compile(r"[^.].*\.so", re.DOTALL)
"""In libibverbs/."""
SMALL = re.compile(
    r"tokenizer.*|.*config\.json|vocab.*|merges\.txt|special_tokens_map\.json|added_tokens\.json|"
    r".*\.(?:tiktoken|spm)|sentencepiece.*|spiece\.model|.*index\.json"
)
"""Small files of models and tokenizers, without the weights."""
CONTROL = re.compile("[\x00-\x1f\x7f]")


class TooMuch(Exception):
    """A part exceeds its limits."""


class ContentReader:
    """Reads files, within limits."""

    def __init__(self, known: dict[tuple[int, ...], str]) -> None:
        """`known`: the hashes of files by their status."""
        self._known = known
        self.end_s = time.monotonic() + LIMIT_S
        self.entries, self.bytes = MOST_ENTRIES, MOST_BYTES

    def walk(self, top: str, depth: int = 12) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield (path below `top`, entry) of sorted files; links to files count."""
        folders = [("", depth)]
        while folders:
            below, left = folders.pop()
            try:
                with os.scandir(os.path.join(top, below)) as scan:
                    entries = sorted(scan, key=lambda entry: entry.name)
            except OSError:
                continue
            self.entries -= len(entries)
            if self.entries < 0 or time.monotonic() > self.end_s:
                raise TooMuch
            for entry in entries:
                path = os.path.join(below, entry.name)
                try:
                    if entry.is_dir(follow_symlinks=False):
                        if left and entry.name not in SKIPPED and not entry.name.startswith("."):
                            folders.append((path, left - 1))
                    elif entry.is_file():
                        yield path, entry
                except OSError:
                    continue

    def digest(self, path: str) -> str:
        """Return the content's hash, a large file's size, "?" if unreadable. A file is read again
        if its status has changed; nobody can set ctime."""
        try:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                size = status.st_size
                if size > MOST_FILE_BYTES:
                    return f"{size} bytes"
                identity = (
                    status.st_dev,
                    status.st_ino,
                    size,
                    status.st_mtime_ns,
                    status.st_ctime_ns,
                )
                if identity in self._known:
                    return self._known[identity]
                self.bytes -= size
                if self.bytes < 0 or time.monotonic() > self.end_s:
                    raise TooMuch
                sha = hashlib.sha256(file.read(MOST_FILE_BYTES)).hexdigest()[:16]
                self._known[identity] = sha
                return sha
        except OSError:
            return "?"


def site_packages() -> list[str]:
    """Package folders of this interpreter and its environment."""
    prefixes = [os.path.dirname(os.path.dirname(sys.executable)), sys.prefix, sys.exec_prefix]
    prefixes += ["/usr", "/usr/local", os.path.expanduser("~/.local")]
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(":") if folder]
    for prefix in prefixes:
        for lib in ("lib", "lib64", "local/lib"):
            for name in (version, "python3"):
                for last in ("site-packages", "dist-packages"):
                    folders.append(os.path.join(prefix, lib, name, last))
    real = [os.path.realpath(folder) for folder in folders if os.path.isdir(folder)]
    return list(dict.fromkeys(real))


def packages(read: ContentReader) -> Iterator[tuple[str, str]]:
    for folder in site_packages():
        for name in sorted(os.listdir(folder)):
            stem, end = os.path.splitext(name)
            if end not in (".dist-info", ".egg-info"):
                continue
            package, _, version = stem.partition("-")
            path = os.path.join(folder, name)
            files = ("RECORD", "PKG-INFO", "METADATA") if os.path.isdir(path) else ("",)
            present = (file for file in files if os.path.isfile(os.path.join(path, file)))
            record = next(present, None)
            sha = "-" if record is None else read.digest(os.path.join(path, record).rstrip("/"))
            yield package.lower().replace("_", "-"), f"{version or '?'} {sha}"


def libraries() -> Iterator[tuple[str, str]]:
    places = [os.path.realpath(path) for path in sorted(glob.glob("/opt/rocm*/lib"))]
    places += ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/lib"]
    for folder in site_packages():
        places.append(os.path.join(folder, "torch/lib"))
        for path in glob.glob(os.path.join(folder, "torch/version.py")):
            with open(path, encoding="utf-8", errors="replace") as file:
                match = re.search("^__version__ = ['\"]([^'\"]*)", file.read(10000), re.M)
            yield "torch", match.group(1) if match else "?"
    for path in sorted(glob.glob("/opt/rocm*/.info/version")):
        if not os.path.islink(os.path.dirname(os.path.dirname(path))):
            with open(path, encoding="utf-8", errors="replace") as file:
                yield "rocm", file.readline().strip()[:60]
    for place in dict.fromkeys(places):
        for folder, wanted in ((place, LIBRARY), (os.path.join(place, "libibverbs"), PROVIDER)):
            try:
                names = os.listdir(folder)  # once: some have thousands of files
            except OSError:
                continue
            for path in (os.path.join(folder, name) for name in names if wanted.fullmatch(name)):
                real = os.path.realpath(path)
                if os.path.isfile(real):
                    yield path, f"{os.path.basename(real)}, {os.path.getsize(real)} bytes"


def code(read: ContentReader, top: str) -> Iterator[tuple[str, str]]:
    for path, entry in read.walk(top):
        if entry.name.endswith(CODE_ENDS):
            yield path, read.digest(entry.path)


def caches(read: ContentReader, data: list[str]) -> Iterator[tuple[str, str]]:
    home = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    places = [os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub"), *data]
    places += [os.environ[name] for name in ("TRANSFORMERS_CACHE",) if os.environ.get(name)]
    for place in dict.fromkeys(places):
        for path, entry in read.walk(place, 6):
            if SMALL.match(entry.name) and "/blobs/" not in "/" + path:
                yield os.path.join(place, path), read.digest(entry.path)


def show(part: str, rows: Iterator[tuple[str, str]]) -> None:
    """Print sorted lines and their hash; nothing beyond a limit."""
    try:
        pairs = sorted({(CONTROL.sub("?", name), CONTROL.sub("?", value)) for name, value in rows})
    except (TooMuch, OSError):
        return
    if not pairs or len(pairs) > MOST_FILES:
        return
    text = "".join(f"{name}\t{value}\n" for name, value in pairs)
    sha = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    lines = "".join(f"{part}\t{name}\t{value}\n" for name, value in pairs)
    sys.stdout.buffer.write(lines.encode("utf-8", "replace"))
    sys.stdout.buffer.write(f"hash\t{part}\t{sha}\n".encode())


def main(top: str, *data: str) -> None:
    known: dict[tuple[int, ...], str] = {}
    while True:
        read = ContentReader(known)
        show("packages", packages(read))
        show("libraries", libraries())
        show("code", code(read, top))
        show("caches", caches(read, list(data)))
        print("done", flush=True)
        if not sys.stdin.readline():
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
