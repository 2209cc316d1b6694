from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from preflight_parts import Node, small_process


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "host")


@pytest.fixture(scope="session", autouse=True)
def _no_process_stays() -> Iterator[None]:
    """End the pool: a test process of xdist does not wait for it."""
    yield
    if small_process.cache_info().currsize:
        small_process().shutdown()
