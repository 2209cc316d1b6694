"""What an attempt takes from the logs of its nodes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.onnode.kernel import records
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.world import THIS
from orchestrator.onnode.loop.attempt_logs import read_logs
from orchestrator.onnode.loop.set_job import SetJob

RECORD = b':::MLLOG {"key": "run_start", "time_ms": 1, "metadata": {}}\n'


@pytest.mark.parametrize(
    ("log", "started"),
    [
        (b"", False),
        (b"error: no run_start after 60 s\n", False),
        (b'{"key": "run_start", "time_ms": 1, "metadata": {}}\n', False),
        (RECORD, True),
        (b"0: noise " + RECORD + b"error: out of memory\n", True),
    ],
)
def test_a_run_has_started_by_a_record_alone(log: bytes, started: bool, tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.attempt(3, 1).mkdir(parents=True)
    layout.node_log(3, 1, 0).write_bytes(b"waiting for run_start of n1\n")
    layout.node_log(3, 1, 1).write_bytes(log)
    job: Any = SimpleNamespace(layout=layout, world=THIS)
    assert read_logs(job, 3, 1, ("n0", "n1")).started == started


def test_a_lost_file_of_the_environment_is_written_anew(tmp_path: Path) -> None:
    job: Any = SetJob.__new__(SetJob)
    job.layout, job.world, job._run_environment = Layout(tmp_path), THIS, b"A=1"
    job.folder = SimpleNamespace(put=records.replace)
    for _ in range(2):
        assert job.run_environment() == b"A=1" == job.layout.environment.read_bytes()
        job.layout.environment.unlink()
