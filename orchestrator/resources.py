"""Paths of shipped templates and documents, of generated files, and of a user's files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def user_path(text: str) -> Path:
    """Return a typed path: `~` is the home folder; without a home a name."""
    return Path(os.path.expanduser(text))


def data_dir(kind: str) -> Path:
    """Return a shipped folder, such as "workloads/results": in `orchestrator/_data` of a wheel, at
    the top of a checkout."""
    packed = _PACKAGE / "_data" / kind
    return packed if packed.is_dir() else _PACKAGE.parent / kind


def generated_file(name: str) -> Path:
    """Return a file of `make reference` in `orchestrator/generated/`."""
    return _PACKAGE / "generated" / name


def file_sizes(folder: str | Path) -> Iterator[int]:
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # deleted meanwhile
                yield os.lstat(os.path.join(place, name)).st_size
