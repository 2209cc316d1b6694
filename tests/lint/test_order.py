"""How tests are run (tests/conftest.py): once, in random order, side by side; what a machine has once has one worker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import captured

HERE = Path(__file__).resolve().parents[1]

TESTS = """
import os
import pytest

def tell(name, k):
    with open("ran", "a") as file:
        file.write(f"{name} {k} {os.environ.get('PYTEST_XDIST_WORKER')}\\n")

@pytest.fixture(autouse=True)
def host_as_it_was():
    "Nothing here touches the machine, which others may be using."

@pytest.mark.parametrize("k", range(10))
def test_spread(k): tell("spread", k)

@pytest.mark.host
@pytest.mark.parametrize("k", range(10))
def test_host(k): tell("host", k)

@pytest.mark.long
def test_long(): tell("long", 0)

def test_bad():
    tell("bad", 0)
    assert 0
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A folder with tests of its own below this conftest.py, and the project's settings of pytest."""
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "labs.py", "machine.py", "processes.py", "until.py"):
        shutil.copy(HERE / name, tmp_path / "tests")
    shutil.copy(HERE.parent / "pyproject.toml", tmp_path)
    (tmp_path / "tests/test_it.py").write_text(TESTS)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # Without a folder of its own it would remove those of earlier runs, with hundred thousands of files.
    argv = [sys.executable, "-m", "pytest", "-q", f"--basetemp={folder / 'base'}", *arguments]
    return captured(argv, env, cwd=folder)


def ran(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "ran").read_text().splitlines()]


def test_side_by_side(suite: Path) -> None:
    done = run(suite, "-n", "2", "--dist", "loadgroup")
    assert done.returncode == 1, done.stdout
    assert "1 failed, 20 passed" in done.stdout
    workers = {
        name: {worker for test, _, worker in ran(suite) if test == name}
        for name in ("spread", "host", "bad")
    }
    assert len(workers["host"]) == 1
    assert set().union(*workers.values()) == {"gw0", "gw1"}
    assert [name for name, _, _ in ran(suite)].count("bad") == 1, "what fails is not tried again"


def test_the_seed_is_told_and_gives_the_same_order(suite: Path) -> None:
    first = run(suite)
    said = re.search(r"--randomly-seed=(\d+)", first.stdout)
    assert said, first.stdout
    run(suite, f"--randomly-seed={said[1]}")
    order = ran(suite)
    assert len(order) == 42 and order[:21] == order[21:]
    assert {name for name, _, _ in order[:10]} == {"host"}, "the longest queue is begun first"


def test_the_fast_ones_are_named(suite: Path) -> None:
    assert "1 failed, 10 passed, 11 deselected" in run(suite, "-m", "unit").stdout
