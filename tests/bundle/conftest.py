from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from bundle_parts import Bundles, made


@pytest.fixture
def bundles(tmp_path: Path) -> Iterator[Bundles]:
    yield from made(tmp_path)


@pytest.fixture
def open_bundles() -> Iterator[Bundles]:
    """Bundles in a folder that every user may enter.

    pytest makes the parent of `tmp_path` private again whenever the same user starts another session.
    """
    with TemporaryDirectory(prefix="orchestrator-open-") as folder:
        Path(folder).chmod(0o755)
        yield from made(Path(folder))


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """`mount(folder, "size=1m")`: a small tmpfs there, gone after the test."""
    places: list[Path] = []

    def make(place: Path, options: str) -> Path:
        place.mkdir(exist_ok=True)
        if (
            os.geteuid() != 0
            or subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True
            ).returncode
        ):
            pytest.skip("mounting a small file system needs root")
        places.append(place)
        return place

    yield make
    for place in places:
        subprocess.run(["umount", "--lazy", place], check=True)
