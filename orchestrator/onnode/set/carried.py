"""The archive of a bundle in a set's folder. It is read once by each process that runs it, and
compared with the hash in the job's own environment: who can replace it can only prevent its use."""

from __future__ import annotations

from pathlib import Path

from ..kernel import records
from ..kernel.files import HERE, Files
from ..kernel.layout import Layout
from ..kernel.program import LOADER, Program


def keep(program: Program, layout: Layout, files: Files = HERE) -> Program:
    """Write the archive of a program, unless it is there; return the program with it.

    Raises ValueError for a bundle that cannot be carried, OSError.
    """
    if LOADER not in program.files:
        raise ValueError(f"{LOADER} is missing: an older version made this bundle")
    program = program.packed()
    path = layout.program / program.name
    if not _has(path, program.data, files):
        files.make_folder(path.parent, parents=True, exist_ok=True)
        records.replace(path, program.data, files=files)
    return program._replace(archive=str(path))


def _has(path: Path, data: bytes, files: Files) -> bool:
    try:
        return files.read_bytes(path) == data
    except OSError:
        return False
