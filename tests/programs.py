"""Programs that a test needs and a machine may lack."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def need(name: str) -> str:
    """Return the path of `name`, a Debian package of the same name; without it the test is
    skipped, and fails with CI=true, where a skipped test would go unseen."""
    path = shutil.which(name)
    if path is None:
        message = f"there is no {name}: apt-get install {name}"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(message)
    return path


def zstd(content: bytes) -> bytes:
    """Compress."""
    command = [need("zstd"), "--quiet", "--stdout"]
    return subprocess.run(command, input=content, capture_output=True, check=True).stdout
