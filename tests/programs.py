"""Programs that a test needs and a machine may lack."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

PYENV = Path.home() / ".pyenv/versions"  # of the tester: a test may have a HOME of its own


def unavailable(message: str) -> NoReturn:
    """Skip the test; fail it with CI=true, where a skipped test would go unseen."""
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def need(*names: str, package: str = "", path: str | None = None) -> str:
    """Return the path of the first of these programs that this machine has. `package`: Debian's, if
    it has another name; `path`: folders to search instead of PATH."""
    for name in names:
        if place := shutil.which(name, path=path):
            return place
    unavailable(f"there is no {names[0]}: apt-get install {package or names[0]}")


def oldest(version: str) -> str:
    """The interpreter of this version, on PATH or of pyenv."""
    asked = "import sys; print(sys.executable)"
    for python in (
        f"python{version}",
        *PYENV.glob(f"{version}.*/bin/python"),
    ):
        try:
            done = subprocess.run([python, "-c", asked], capture_output=True, text=True)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            return done.stdout.strip()
    pytest.skip(f"no Python {version} on this machine")


def zstd(content: bytes) -> bytes:
    """Compress."""
    command = [need("zstd"), "--quiet", "--stdout"]
    return subprocess.run(command, input=content, capture_output=True, check=True).stdout
