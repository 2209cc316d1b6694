"""A place where commands can do no harm: no Slurm, no engine, no settings of this machine, files of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from damaged_sets import full_set
from hostile_parts import alone


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return full_set(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, which is the current one."""
    with alone(tmp_path) as place:
        yield place
