from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from seeded_sets import cheaply
from worlds import Sets


@pytest.fixture(scope="session")
def place_of_worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worlds")


@pytest.fixture
def sets(place_of_worlds: Path) -> Iterator[Sets]:
    """Make worlds; each is resumed to its end, and checked, after the test."""
    made = Sets(place_of_worlds)
    with cheaply():
        yield made
        made.close()
