from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tuning_parts import Host, watchdogs
from until import until


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.run("revert-all")
    until(lambda: not watchdogs(made.state))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until the test, or its end, kills it."""
    with subprocess.Popen(["sleep", "3600"]) as process:
        yield process
        process.kill()
