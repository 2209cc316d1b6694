from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tuning_parts import Host, wait_for, watchdogs


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.run("revert-all")
    wait_for(lambda: not watchdogs(made.state), 5)
