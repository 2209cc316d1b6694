"""A set's bundle: its comparison with the manifest, and its archive.

A process reads the archive once and compares it with the hash in the job's environment.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..kernel import records
from ..kernel.files import HERE, Files, make_below
from ..kernel.layout import Layout
from ..kernel.program import LOADER, Program, walk
from ..kernel.regular import parse, read_bytes
from .ledger import LedgerRecord

MANIFEST = "manifest.json"
MOST_NAMES = 3
"""Files named in a message; `audit` lists all."""


def hashes(bundle: Path) -> dict[str, str]:
    """Return path -> SHA-256 of every file, sorted; "no file" for links and the like. Raises
    OSError."""
    pairs = (
        (name, "no file" if content is None else hashlib.sha256(content).hexdigest())
        for name, content in walk(bundle)
    )
    return dict(sorted(pairs))


def hashes_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """The same for a bundle in memory."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}


def digest(hashes: dict[str, str]) -> str:
    """Return one hash for all files: of the lines of `sha256sum`, in byte order."""
    rows = sorted(
        (os.fsencode(f"./{name}"), sha) for name, sha in hashes.items() if sha != "no file"
    )
    return hashlib.sha256(
        b"".join(sha.encode() + b"  " + name + b"\n" for name, sha in rows)
    ).hexdigest()


def changed(now: Mapping[str, str], bundle: Path, sha256: str = "") -> dict[str, str]:
    """Return name -> hash now ("" if removed) of files unlike the manifest, whose hash must be
    `sha256`."""
    try:
        manifest = read_bytes(bundle / MANIFEST)
    except OSError:
        manifest = b""
    return changed_from(manifest, now, sha256)


def changed_from(manifest: bytes, now: Mapping[str, str], sha256: str = "") -> dict[str, str]:
    """The same for a manifest in memory."""
    wanted = declared(manifest)
    if wanted is None:
        return {MANIFEST: now.get(MANIFEST, "")}
    wanted[MANIFEST] = sha256 or now.get(MANIFEST, "")
    names = sorted({*wanted, *now})
    return {name: now.get(name, "") for name in names if wanted.get(name) != now.get(name)}


def declared(manifest: bytes) -> dict[str, str] | None:
    """Return name -> hash of the other files in a manifest, None if it is damaged."""
    try:
        made = parse(manifest)["outputs"]
        return {str(name): str(sha) for name, sha in made.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def accepted(entries: Iterable[LedgerRecord]) -> dict[str, str]:
    """Return the bundle's differences from the manifest as last recorded, name -> hash."""
    known: dict[str, str] = {}
    for entry in entries:
        files: Any = entry.data.get("files") if entry.kind == "edit" else None
        if isinstance(files, dict):
            known = {str(name): str(sha) for name, sha in files.items()}
    return known


def unexpected(now: dict[str, str], meant: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the missing and the edited files unlike those declared and accepted."""
    wrong = sorted(name for name, sha in now.items() if sha != meant.get(name))
    return [name for name in wrong if not now[name]], [name for name in wrong if now[name]]


def named(files: list[str]) -> str:
    """Return a list's first files for people, and the number of others."""
    shown, more = files[:MOST_NAMES], len(files) - MOST_NAMES
    return ascii(", ".join(shown) + (f" and {more} more" if more > 0 else ""))[1:-1]


def keep(program: Program, layout: Layout, files: Files = HERE) -> Program:
    """Write a program's archive if it is missing; return the program with it.

    Raises ValueError for a bundle that cannot be carried, OSError.
    """
    if LOADER not in program.files:
        raise ValueError(f"{LOADER} is missing: an older version made this bundle")
    program = program.packed()
    path = layout.program / program.name
    if not _has(path, program.data, files):
        make_below(layout.root, path.parent, files)
        records.replace(path, program.data, files=files)
    return program._replace(archive=str(path))


def _has(path: Path, data: bytes, files: Files) -> bool:
    try:
        return files.read_bytes(path) == data
    except OSError:
        return False
