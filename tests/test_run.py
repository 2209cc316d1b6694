"""tests/run: what failed is run once more, alone, and both outcomes are told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parent / "run"

FLAKY = """
from pathlib import Path
import pytest

def first_time(name):
    mark = Path(__file__).with_name(name)
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

def test_good(): pass
def test_loaded(): assert not first_time("loaded")
"""


def run(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(text)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [RUN, "-p", "no:randomly", *words],
        cwd=folder,
        env={**env, "PYTHON": sys.executable},
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        check=False,
    )


def test_all_pass(tmp_path: Path) -> None:
    done = run(tmp_path, "def test_good(): pass\n")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("1 passed in ")
    assert "once more" not in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["test_it.py"]


def test_a_test_that_passes_alone_is_named_and_fails_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, FLAKY)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("1 failed, 1 passed in ")]
    assert "1 failed; once more, alone:" in lines and "  test_it.py::test_loaded" in lines
    assert "passed on the second try: test_it.py::test_loaded" in lines
    assert lines[-1].startswith("1 passed")


@pytest.mark.parametrize(
    "more",
    [
        "def test_bad(): assert 0\n",
        "def test_skipped_then():\n    assert not first_time('skip')\n    pytest.skip('away')\n",
        "@pytest.fixture\ndef torn():\n    yield\n    assert 0\ndef test_torn(torn): pass\n",
    ],
)
def test_one_that_does_not_pass_alone_fails_the_run(tmp_path: Path, more: str) -> None:
    done = run(tmp_path, FLAKY + more)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("passed on")] == [
        "passed on the second try: test_it.py::test_loaded"
    ]
    assert " in " in lines[-1] and " passed" in lines[-1]


def test_many_failures_are_not_repeated(tmp_path: Path) -> None:
    done = run(tmp_path, "import pytest\n@pytest.mark.parametrize('k', range(6))\ndef test_bad(k): assert 0\n")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("6 failed in ")
    assert "once more" not in done.stdout


@pytest.mark.parametrize(
    "end", ["os._exit(1)", "atexit.register(lambda: print('last words'))", "raise KeyboardInterrupt"]
)
def test_a_run_that_broke_is_not_repeated(tmp_path: Path, end: str) -> None:
    """Python's own exit code for a crash is pytest's for failed tests; most tests may never have run."""
    done = run(tmp_path, f"{FLAKY}\ndef test_that_breaks():\n    import atexit, os\n    {end}\n")
    assert done.returncode in (1, 2)
    assert "once more" not in done.stdout


@pytest.mark.parametrize(
    ("text", "words", "status"),
    [
        ("nonsense(\n", [], 2),
        ("def test_good(): pass\n", ["--no-such-option"], 4),
        ("", [], 5),
    ],
)
def test_what_is_no_matter_of_single_tests(tmp_path: Path, text: str, words: list[str], status: int) -> None:
    done = run(tmp_path, text, *words)
    assert done.returncode == status
    assert "once more" not in done.stdout
