"""A place where commands can do no harm: no Slurm, no engine, no settings of this machine, files of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from damaged_sets import full_set


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return full_set(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    for name in ("state", "config", "tmp", "path", "work"):
        (tmp_path / name).mkdir()
    for name in (
        "ORCHESTRATOR_SITE",
        "DOCKER_HOST",
        "SLURM_JOB_ID",
        "SLURM_JOB_NODELIST",
        "SLURM_CONF",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("ORCH_TUNABLES_ROOT", "/nowhere")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"
