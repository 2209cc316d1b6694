"""The stand-in image in the lab's engine, and one test's data folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prepare_parts import Data, stand_in


@pytest.fixture(scope="session")
def image(lab: object) -> Iterator[str]:
    address = f"unix://{lab.docker_socket}"  # type: ignore[attr-defined]
    with stand_in(address):
        yield address


@pytest.fixture
def data(image: str, tmp_path: Path) -> Data:
    """Data folders whose preparation runs in the lab's engine."""
    return Data(tmp_path, image)


@pytest.fixture
def folders(tmp_path: Path) -> Data:
    """Data folders without an engine, for what needs none."""
    return Data(tmp_path, "unix:///nonexistent.sock")
