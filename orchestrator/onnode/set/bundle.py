"""Compare a bundle with its manifest before it runs, on both sides."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ..kernel.regular import parse, read_bytes
from .ledger import LedgerRecord

MANIFEST = "manifest.json"
OUTPUTS = "job_*.out"


def hashes(bundle: Path) -> dict[str, str]:
    """Return path -> SHA-256 of every file below `bundle`, in order; "no file" for links and the
    like. Raises OSError.

    Byte code is left out, and so is the output of jobs started by hand in it (`--output` of
    job.sh).
    """
    found: dict[str, str] = {}
    if os.path.isdir(bundle):
        _hash_below(os.fspath(bundle), "", found)
    return dict(sorted(found.items()))


def _hash_below(folder: str, prefix: str, found: dict[str, str]) -> None:
    """Add the hashes of all files in a folder, whose path below the bundle is `prefix`. A folder
    without files adds nothing."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    _hash_below(entry.path, f"{prefix}{entry.name}/", found)
            elif prefix or not fnmatch(entry.name, OUTPUTS):
                plain = entry.is_file(follow_symlinks=False)
                text = hashlib.sha256(read_bytes(entry.path)).hexdigest() if plain else "no file"
                found[prefix + entry.name] = text


def digest(found: dict[str, str]) -> str:
    """Return one hash for all files, as in job.sh: that of the lines of `sha256sum`, in byte
    order."""
    rows = sorted(
        (os.fsencode(f"./{name}"), sha) for name, sha in found.items() if sha != "no file"
    )
    return hashlib.sha256(
        b"".join(sha.encode() + b"  " + name + b"\n" for name, sha in rows)
    ).hexdigest()


def changed(found: dict[str, str], bundle: Path, sha256: str = "") -> dict[str, str]:
    """Return name -> hash now ("" if removed) of all files that differ from the manifest, which
    must be `sha256`."""
    try:
        made = parse(read_bytes(bundle / MANIFEST))["outputs"]
        wanted = {str(name): str(sha) for name, sha in made.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {MANIFEST: found.get(MANIFEST, "")}
    wanted[MANIFEST] = sha256 or found.get(MANIFEST, "")
    names = sorted({*wanted, *found})
    return {name: found.get(name, "") for name in names if wanted.get(name) != found.get(name)}


def accepted(entries: Iterable[LedgerRecord]) -> dict[str, str]:
    """Return the accepted edits in the ledger, name -> hash."""
    known: dict[str, str] = {}
    for one in entries:
        files: Any = one.data.get("files") if one.kind == "edit" else None
        if isinstance(files, dict):
            known = {str(name): str(sha) for name, sha in files.items()}
    return known


def unexpected(now: dict[str, str], meant: dict[str, str]) -> list[str]:
    """Return the files of a bundle that differ from the declared or accepted ones."""
    return sorted(
        name for name in {*now, *meant} if now.get(name, "as made") != meant.get(name, "as made")
    )
