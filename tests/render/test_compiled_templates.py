"""Compiled templates are kept in a folder that is the user's alone, and nothing depends on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


def job_of(tmp_path: Path, cache: str) -> str:
    """Return job.sh as rendered with this XDG_CACHE_HOME."""
    site = tmp_path / "site.yaml"
    site.write_text("log_dir: /shared/results\ndata: {flux1: {DATADIR: /data}}\n")
    argv = ["render", "MI325X_08x08x32", "flux1", "--site", str(site), "-o", "-"]
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(TOP),
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": cache,
    }
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *argv], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_they_are_kept_and_used(tmp_path: Path) -> None:
    first = job_of(tmp_path, str(tmp_path / "cache"))
    folder = tmp_path / "cache/orchestrator"
    kept = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert len(kept) == 10
    assert folder.stat().st_mode & 0o777 == 0o700
    assert job_of(tmp_path, str(tmp_path / "cache")) == first
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == kept


@pytest.mark.parametrize("kind", ["others may write", "a link", "a file", "relative", "damaged"])
def test_any_other_folder_is_left_alone(tmp_path: Path, kind: str) -> None:
    cache, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    cache.mkdir(), elsewhere.mkdir()
    folder = cache / "orchestrator"
    if kind == "others may write":
        folder.mkdir()
        folder.chmod(0o777)
    elif kind == "a link":
        folder.symlink_to(elsewhere)
    elif kind == "a file":
        folder.write_text("")
    elif kind == "damaged":
        job_of(tmp_path, str(cache))
        for path in folder.iterdir():
            path.write_bytes(b"damaged")
    assert "#SBATCH" in job_of(tmp_path, "cache" if kind == "relative" else str(cache))
    assert list(elsewhere.iterdir()) == []
    assert kind == "damaged" or not folder.is_dir() or list(folder.iterdir()) == []
