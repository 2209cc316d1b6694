"""Sets for the controller's tests: real ones of the built-in workload on this machine, and written ones."""

from __future__ import annotations

import os
import stat
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from controller_parts import FORGOTTEN, Commands
from processes import kill_all
from replayed import differences
from sites import write_site

from orchestrator.scheduler.local import Local
from orchestrator.scheduler.slurm import Slurm

if TYPE_CHECKING:
    from labs import Lab


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No site of whoever runs the tests, and a working directory without one."""
    monkeypatch.delenv("ORCHESTRATOR_SITE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A site file of this machine; whatever its sets left running is ended afterwards."""
    log_dir = tmp_path / "sets"
    yield write_site(tmp_path / "local.yaml", log_dir)
    for folder in log_dir.iterdir():
        if (folder / "set.json").is_file():
            for job_id in Local().jobs(names=[f"orch-{folder.name}"]):
                Local().cancel(job_id, 0.1)


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Commands:
    return Commands(capfd)


MARKED = r"""mark=
for word; do [[ $word != --format=* ]] || IFS=$'\x1f' read -r _ mark _ <<<"$word"; done
set -o pipefail
{
%s
} | sed "s/MARK/$mark/g"
"""
"""A squeue that writes the mark of the question for MARK."""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Path]]:
    """`fake("sbatch", body)`: a program of that name on PATH, whose calls are logged; returns the log. Such programs that
    still run at the end are killed. Beside a squeue, scontrol knows no job until the test says otherwise."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def make(name: str, body: str) -> Path:
        log = folder / f"{name}.calls"
        path = folder / name
        body = MARKED % body if name == "squeue" else body
        path.write_text(f'#!/bin/bash\nprintf "%s\\n" "$*" >>{log}\n{body}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        if name == "squeue" and not (folder / "scontrol").exists():
            make("scontrol", FORGOTTEN)
        return log

    yield make
    kill_all(folder)  # who asked them may have been ended first


@pytest.fixture
def shared(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of this test's own on the storage that all nodes see; this process talks to the lab's Slurm."""
    monkeypatch.setenv("SLURM_CONF", lab.env["SLURM_CONF"])
    path = lab.shared / f"controller-{uuid.uuid4().hex[:8]}"
    path.mkdir()
    yield path
    names = [f"orch-{folder.name}" for folder in path.iterdir()]
    for job in Slurm().jobs(names=names).values():
        if job.alive:
            Slurm().cancel(job.id, 0.1)
    assert differences(path) == []
    subprocess.run(["rm", "-rf", str(path)], check=True)


@pytest.fixture
def lab_site(shared: Path, tmp_path: Path) -> Path:
    return write_site(tmp_path / "lab.yaml", shared, scheduler="slurm", time_limit="00:10:00")
