"""orchestrator.pyz: the command in one file, started by a Python that has nothing installed, without network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_wheel import has_network
from until import LIMIT_S

TOP = Path(__file__).resolve().parent.parent
LOGS = TOP / "tests/data/mllog"


pytestmark = [
    pytest.mark.long,  # a minute: it installs the whole command twice
    pytest.mark.usefixtures("own_home"),
]


@pytest.fixture(scope="module")
def pyz(own_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.environ.get("CI") != "true" and not has_network():
        pytest.skip("making the zipapp needs a package index")
    path = tmp_path_factory.mktemp("pyz") / "orchestrator.pyz"
    done = subprocess.run(
        [sys.executable, TOP / "tools/zipapp.py", path],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "already exists" not in done.stderr  # pip, of a folder of its earlier call
    return path


def bare_python() -> list[str]:
    """A Python of the version that makes the file, without packages; the system's where it is that version."""
    wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    system = "/usr/bin/python3"
    if os.path.exists(system):
        shown = subprocess.run([system, "-c", asked], capture_output=True, text=True).stdout.strip()
        if shown == wanted:
            return [system, "-I", "-S"]
    return [sys.executable, "-I", "-S"]


def without_network(argv: list[str]) -> list[str]:
    """The command where no network is, as far as this user may make such a place."""
    tried = (
        subprocess.run(["unshare", "--net", "true"], capture_output=True)
        if shutil.which("unshare")
        else None
    )
    return ["unshare", "--net", *argv] if tried and tried.returncode == 0 else argv


def test_it_scores_without_network_or_packages(pyz: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    folder = next(path.parent for path in sorted(LOGS.rglob("result_*.txt*")))
    argv = without_network([*bare_python(), str(pyz)])
    for _ in range(2):  # the first start unpacks
        done = subprocess.run(
            [*argv, "score", str(folder)], env=home, capture_output=True, text=True, timeout=300
        )
        assert done.returncode in (0, 1) and not done.stderr, done.stderr
        assert "olympic mean" in done.stdout
    [unpacked] = (tmp_path / ".cache/orchestrator-pyz").iterdir()
    assert unpacked.stat().st_mode & 0o077 == 0
    done = subprocess.run([*argv, "systems"], env=home, capture_output=True, text=True, timeout=300)
    assert "MI325X_08x08x32" in done.stdout, done.stderr
    done = subprocess.run(
        [*argv, "docs", "install"], env=home, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.startswith("# Install"), done.stderr


def test_another_python_is_told(pyz: Path, tmp_path: Path) -> None:
    program = "import sys, runpy; sys.version_info = (3, 99); sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", program, pyz, "score"],
        capture_output=True,
        text=True,
        env={"HOME": str(tmp_path)},
    )
    assert (
        done.returncode == 2
        and "was made for Python" in done.stderr
        and "Traceback" not in done.stderr
    )


def test_a_cache_that_cannot_be_written_is_told(pyz: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "file")}
    done = subprocess.run(
        [*bare_python(), str(pyz), "--version"],
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert (
        done.returncode == 2 and "cannot unpack" in done.stderr and "XDG_CACHE_HOME=" in done.stderr
    )
